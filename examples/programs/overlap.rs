//! How much of an all-reduce hides behind computing: each alone, and both at the same time.
//!
//! ```text
//! cargo build --release --example overlap
//! maypole run -n 2 target/release/examples/overlap
//! ```
//!
//! A call over shared memory needs a core, too, so it hides only where there are more cores than
//! ranks. Over a network its waiting hides in any case.

use maypole::{Communicator, ReduceOp, Result};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// 8 MiB of `f32`.
const COUNT: usize = 1 << 21;
/// The first calls of a length are slower: they try which way through memory is the fastest.
const ROUNDS: usize = 30;

/// Stands for the next layer: a sum that takes some milliseconds.
fn compute() -> f64 {
    (1..=2_000_000).map(|it| 1.0 / f64::from(black_box(it))).sum()
}

/// The time of the fastest of some rounds, which all ranks begin together.
fn fastest<T>(
    comm: &mut Communicator,
    mut round: impl FnMut(&mut Communicator) -> Result<T>,
) -> Result<Duration> {
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        comm.barrier()?;
        let start = Instant::now();
        black_box(round(comm)?);
        best = best.min(start.elapsed());
    }
    Ok(best)
}

fn main() -> Result<()> {
    let mut comm = Communicator::from_env()?;
    let mut x = vec![1f32; COUNT];
    let computing = fastest(&mut comm, |_| Ok(compute()))?;
    let summing = fastest(&mut comm, |comm| comm.all_reduce(&mut x, ReduceOp::Max))?;
    let both = fastest(&mut comm, |comm| {
        // A request borrows the buffer for the time of the scope.
        comm.scope(|scope| {
            let sum = scope.start_all_reduce(&mut x, ReduceOp::Max);
            black_box(compute());
            sum.wait().map(drop)
        })
    })?;
    assert!(x.iter().all(|it| *it == 1.0));
    let hidden = (computing + summing).saturating_sub(both).div_duration_f64(summing).min(1.0);
    let hidden = format!("{:.0} % hidden", 100.0 * hidden);
    println!("computing {computing:.1?}, all-reduce {summing:.1?}, both {both:.1?}: {hidden}");
    comm.close()
}

//! Measures requests of one element between two ranks, beside the blocking call in the same seconds.
//!
//! ```text
//! cargo bench --bench requests                         # two processes, through shared memory
//! MAYPOLE_TRANSPORT=tcp cargo bench --bench requests   # the same over TCP
//! ```
//!
//! In every round the ranks make as many calls in each way, one way after the other. The time of a call is the
//! median over rounds. A request that is waited for at once runs on the waiting thread; of a row of
//! requests, the later ones run while the caller starts others or waits.

use maypole::{Communicator, ReduceOp, Result, wait_all};
use std::process::Command;
use std::time::Instant;

const ROUNDS: usize = 21;
/// Calls of each way in a round.
const CALLS: usize = 2000;
/// Requests that are started before the first of them is waited for.
const ROW: usize = 16;

/// A way to make [`CALLS`] calls of one element.
type Way = fn(&mut Communicator) -> Result<()>;

const WAYS: [(&str, Way); 4] = [
    ("blocking calls", |comm| {
        (0..CALLS).try_for_each(|_| comm.all_reduce(&mut [1.0f32], ReduceOp::Sum))
    }),
    ("requests, each waited for at once", |comm| {
        (0..CALLS).try_for_each(|_| comm.start_all_reduce([1.0f32], ReduceOp::Sum).wait().map(drop))
    }),
    ("requests, sixteen in a row", |comm| {
        (0..CALLS / ROW).try_for_each(|_| {
            let row: Vec<_> =
                (0..ROW).map(|_| comm.start_all_reduce([1.0f32], ReduceOp::Sum)).collect();
            wait_all(row).map(drop)
        })
    }),
    ("requests in one scope, sixteen in a row", |comm| {
        comm.scope(|scope| {
            (0..CALLS / ROW).try_for_each(|_| {
                let row: Vec<_> =
                    (0..ROW).map(|_| scope.start_all_reduce([1.0f32], ReduceOp::Sum)).collect();
                wait_all(row).map(drop)
            })
        })
    }),
];

fn main() -> Result<()> {
    if std::env::var_os("MAYPOLE_WORLD").is_none() && std::env::var_os("MAYPOLE_RANK").is_none() {
        let this = std::env::current_exe().expect("a path");
        let maypole = option_env!("CARGO_BIN_EXE_maypole").unwrap_or("maypole");
        let status = Command::new(maypole).args(["run", "-n", "2"]).arg(this).status();
        std::process::exit(status.ok().and_then(|status| status.code()).unwrap_or(1));
    }
    let mut comm = Communicator::from_env()?;
    let mut times = [const { Vec::new() }; WAYS.len()];
    for round in 0..=ROUNDS {
        for ((_, way), times) in WAYS.iter().zip(&mut times) {
            comm.barrier()?;
            let start = Instant::now();
            way(&mut comm)?;
            // The first round makes connections and wakes threads.
            if round > 0 {
                times.push(start.elapsed().as_secs_f64() * 1e6 / CALLS as f64);
            }
        }
    }
    if comm.rank() == 0 {
        for ((name, _), mut times) in WAYS.iter().zip(times) {
            times.sort_by(f64::total_cmp);
            let (least, median) = (times[0], times[times.len() / 2]);
            println!("{median:>7.2} us a call (least {least:.2})  {name}");
        }
    }
    comm.close()
}

//! Lesson 12: registered memory, which the other ranks of a host reach in place during a call.
//!
//! ```text
//! cargo run --release --example 12_registered
//! ```

use maypole::{Communicator, ReduceOp};
use std::time::{Duration, Instant};

/// 4 MiB of `f32`.
const COUNT: usize = 1 << 20;

/// The time of the fastest of some sums of `values`.
fn fastest(comm: &mut Communicator, values: &mut [f32]) -> maypole::Result<Duration> {
    let mut best = Duration::MAX;
    for _ in 0..20 {
        values.fill(comm.rank() as f32 + 1.0);
        comm.barrier()?;
        let start = Instant::now();
        comm.all_reduce(&mut *values, ReduceOp::Sum)?;
        best = best.min(start.elapsed());
    }
    Ok(best)
}

fn main() -> maypole::Result<()> {
    let results = Communicator::run_local(2, |mut comm| -> maypole::Result<_> {
        // Other ranks cannot access a `Vec`. Its numbers go through slots that all ranks can read.
        let mut private = vec![0.0; COUNT];
        let through_slots = fastest(&mut comm, &mut private)?;

        // An arena is made by all ranks together, once. Then each cuts buffers from it alone. Ranks
        // read their inputs and write their results where they lie, so each number moves once.
        let arena = comm.arena(4 * COUNT)?;
        let mut registered = arena.alloc::<f32>(COUNT);
        let in_place = fastest(&mut comm, &mut registered)?;
        assert_eq!(private, *registered, "the same sums");

        // No room is left. The next buffer is private, and calls take it all the same.
        let more = arena.alloc::<f32>(COUNT);
        let calls = comm.counters().registered;
        Ok((through_slots, in_place, calls, more.is_registered()))
    });
    for (rank, result) in results.into_iter().enumerate() {
        let (through_slots, in_place, calls, more) = result?;
        println!("rank {rank}: a Vec {through_slots:.1?}, registered memory {in_place:.1?}");
        println!("rank {rank}: {calls} calls ran on registered memory; the next buffer: {more}");
    }
    Ok(())
}

//! Lesson 11: overlap communication with computation: while one layer is computed, the gradients of
//! the layer before are summed.
//!
//! ```text
//! cargo lesson 11_overlap
//! ```

use maypole::{Communicator, ReduceOp, wait_all};
use std::time::{Duration, Instant};

/// Stands for a layer's backward pass. A real one keeps the CPU busy; this one only sleeps.
fn compute(rank: usize, layer: usize) -> Vec<f32> {
    std::thread::sleep(Duration::from_millis(20));
    vec![(rank + 10 * layer) as f32; 50_000]
}

fn main() -> maypole::Result<()> {
    let results = Communicator::run_local(2, |mut comm| -> maypole::Result<_> {
        let rank = comm.rank();

        // A request owns its buffer until `wait` gives it back. Requests run in order on a
        // background thread of the communicator.
        comm.barrier()?;
        let start = Instant::now();
        let mut requests = Vec::new();
        for layer in (0..4).rev() {
            let gradients = compute(rank, layer);
            requests.push(comm.start_all_reduce(gradients, ReduceOp::Avg));
        }
        let computed = start.elapsed();
        let layers = wait_all(requests)?;
        let waited = start.elapsed() - computed;

        // In a scope, requests borrow slices of one flat buffer, without a copy.
        let mut flat = layers.concat();
        comm.scope(|scope| {
            for bucket in flat.chunks_mut(30_000) {
                bucket.iter_mut().for_each(|x| *x *= 2.0);
                let _under_way = scope.start_all_reduce(bucket, ReduceOp::Max);
            }
        });
        // All buckets are complete here. The next call returns the error of a failed one.
        comm.barrier()?;

        Ok((computed, waited, flat[0], comm.counters().payload()))
    });
    for (rank, result) in results.into_iter().enumerate() {
        let (computed, waited, first, bytes) = result?;
        println!("rank {rank} computed for {computed:.1?} and then waited {waited:.1?}");
        println!("rank {rank} sent {bytes} bytes; the last layer's average, doubled, is {first}");
    }
    Ok(())
}

//! The protocol of the kernel, millions of times. Run by `tests/gpu.sh`: `--ignored --nocapture`.

use crate::{alone, capture, quiet_stream, run};
use maypole::ReduceOp;
use maypole::algorithms::Algorithm;
use maypole::cuda::Comm;
use std::sync::Arc;

/// Three ranks sum their numbers in place, again and again, so that each number is three times the
/// one before: every publication of every call has to be the newest. On a GPU of 132
/// multiprocessors, these are more than ten million publications of lanes.
#[test]
#[ignore = "a stress test, which needs a GPU of its own"]
fn no_publication_is_old() {
    let Some(_alone) = alone() else { return };
    const CALLS: u32 = 500;
    const REPLAYS: u32 = 100;
    // Ranks that are threads share the driver's queue of launches. If one fills it, the others may
    // be unable to start the work that it waits for.
    const AT_ONCE: u32 = 2;
    // Lines, slots with packs of sixteen bytes, and slots whose parts are odd.
    for (count, algorithm) in
        [(1001, Algorithm::Ring), (300_000, Algorithm::Ring), (300_001, Algorithm::OneShot)]
    {
        let right = run(3, |mut comm| {
            let stream = quiet_stream(comm.rank());
            let gpu = Comm::new(&mut comm, Arc::clone(&stream)).unwrap();
            gpu.set_algorithm(Some(algorithm));
            let first: Vec<u32> = (0..count).map(|at| at * 2 + 1).collect();
            let mut data = stream.clone_htod(&first).unwrap();
            gpu.all_reduce_in_place(&mut data, &ReduceOp::Sum).unwrap();
            gpu.synchronize().unwrap();
            comm.barrier().unwrap();
            let graph = capture(&stream, || {
                for _ in 0..CALLS {
                    gpu.all_reduce_in_place(&mut data, &ReduceOp::Sum).unwrap();
                }
            });
            // Making a graph may wait until no kernel runs, also for those that wait for this rank.
            graph.upload().unwrap();
            comm.barrier().unwrap();
            for _ in 0..REPLAYS / AT_ONCE {
                (0..AT_ONCE).for_each(|_| graph.launch().unwrap());
                gpu.synchronize().unwrap();
            }
            let factor = 3u32.wrapping_pow(CALLS * REPLAYS + 1);
            let last = stream.clone_dtoh(&data).unwrap();
            last.iter().zip(&first).all(|(last, first)| *last == first.wrapping_mul(factor))
        });
        assert_eq!(right, [true; 3], "{algorithm}, {count} numbers");
        println!("{} calls of {count} numbers by {algorithm}: right", CALLS * REPLAYS);
    }
}

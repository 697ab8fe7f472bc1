//! Errors when ranks do not do their part.

use crate::{alone, run, stream};
use maypole::cuda::Comm;
use maypole::{Error, ReduceOp};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[test]
fn a_rank_that_never_calls_is_named() {
    let Some(_alone) = alone() else { return };
    let start = Instant::now();
    run(3, |mut comm| {
        let stream = stream(comm.rank()).unwrap();
        let gpu = Comm::new(&mut comm, Arc::clone(&stream)).unwrap();
        let mut data = stream.clone_htod(&vec![1.0f32; 100_000]).unwrap();
        gpu.all_reduce_in_place(&mut data, &ReduceOp::Sum).unwrap();
        gpu.synchronize().unwrap();
        if comm.rank() == 1 {
            // It stays, and does something else, until the others have aborted.
            return drop(comm.barrier());
        }
        gpu.set_timeout(Duration::from_secs(2));
        gpu.all_reduce_in_place(&mut data, &ReduceOp::Sum).unwrap();
        let error = gpu.synchronize().unwrap_err();
        assert!(matches!(error, Error::TimedOut { .. } | Error::Aborted { .. }), "{error}");
        assert!(gpu.all_reduce_in_place(&mut data, &ReduceOp::Sum).is_err());
        let _ = comm.barrier();
    });
    assert!(start.elapsed() < Duration::from_secs(60));
}

/// If both calls are known, they have programs, so only the kernels themselves can detect it.
#[test]
fn calls_that_do_not_match_are_an_error_on_both_ranks() {
    let Some(_alone) = alone() else { return };
    for known in [&[1000, 2000][..], &[]] {
        run(2, |mut comm| {
            let stream = stream(comm.rank()).unwrap();
            let gpu = Comm::new(&mut comm, Arc::clone(&stream)).unwrap();
            let mut data = stream.clone_htod(&vec![1.0f32; 2000]).unwrap();
            for count in known {
                gpu.all_reduce_in_place(&mut data.slice_mut(..*count), &ReduceOp::Sum).unwrap();
            }
            gpu.synchronize().unwrap();
            let count = [1000, 2000][comm.rank()];
            gpu.all_reduce_in_place(&mut data.slice_mut(..count), &ReduceOp::Sum).unwrap();
            let error = gpu.synchronize().unwrap_err();
            assert!(matches!(error, Error::Mismatch { .. }), "{error}");
            assert!(error.to_string().contains("2000"), "{error}");
        });
    }
}

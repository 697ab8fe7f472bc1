//! Panics and wrong arguments: every rank soon returns an error, with the event, its place and its cause.

use crate::report::SOON;
use maypole::{Error, FailureKind, Local, ReduceOp};
use std::time::{Duration, Instant};

#[test]
fn a_thread_panics() {
    let since = Instant::now();
    let errors = Local::new(3).run(|mut comm| {
        if comm.rank() == 1 {
            let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
                let _kept = &mut comm;
                std::panic::resume_unwind(Box::new("as planned"));
            }));
            assert!(panic.is_err());
            return None;
        }
        let error =
            if comm.rank() == 0 { comm.barrier() } else { comm.split(Some(0), 0).map(drop) }
                .unwrap_err();
        Some((comm.rank(), error))
    });
    for (rank, error) in errors.into_iter().flatten() {
        let told = error.to_string();
        assert!(matches!(error, Error::Aborted { .. }), "{told}");
        assert_eq!((error.kind(), error.culprit()), (Some(FailureKind::UserAbort), Some(1)));
        assert!(told.contains("because rank 1 panicked outside a call"), "rank {rank}: {told}");
    }
    assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
}

#[test]
fn wrong_arguments_do_no_harm() {
    use maypole::algorithms::Algorithm;
    Local::new(2).timeout(Duration::from_secs(60)).run(|mut comm| {
        let rank = comm.rank();
        let bad = [
            comm.broadcast(&mut [0u8; 4], 2),
            comm.all_reduce((&[0u8; 4], &mut [0; 3]), ReduceOp::Sum),
            comm.all_gather(&mut [0u8; 5]),
            comm.reduce_scatter((&[0u8; 4], &mut [0; 4]), ReduceOp::Sum),
        ];
        for error in bad.map(Result::unwrap_err) {
            assert!(
                matches!(&error, Error::Invalid { rank: who, .. } if *who == rank)
                    && error.is_harmless(),
                "{error}"
            );
        }
        comm.set_algorithm(Some(Algorithm::Pairwise));
        let error = comm.barrier().unwrap_err();
        assert!(matches!(
            error,
            Error::Unsupported { algorithm: Algorithm::Pairwise, operation: "barrier" }
        ));
        comm.set_algorithm(None);
        let error = comm.broadcast(&mut [0u8; 4], 2).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("rank {rank}: broadcast: root 2 is not one of the 2 ranks")
        );
        let mut data = [rank as u32 + 1];
        comm.all_reduce(&mut data, ReduceOp::Sum).unwrap();
        assert_eq!(data, [3]);
    });
}

//! How a world fails, and how ranks leave it.

use super::{LONG, WORLD, cause, soon, world};
use maypole::world::service::{DataPath, FailureKind, ServiceError};
use std::sync::Barrier;
use std::time::{Duration, Instant};

#[test]
fn all_ranks_name_the_same_first_cause() {
    let settled = world(4, |service| {
        use FailureKind::{Mismatch, Timeout, UserAbort};
        let kind = [Timeout, Timeout, Mismatch, UserAbort][service.rank()];
        let sequence = [6, 6, 5, 6][service.rank()];
        let settled = service.settle(cause(sequence, kind, service.rank()), LONG);
        assert!(service.alarm().raised());
        settled
    });
    assert!(
        settled.iter().all(|settled| *settled == cause(5, FailureKind::Mismatch, 2)),
        "{settled:?}"
    );
}

#[test]
fn the_connections_that_a_failed_rank_closes_are_no_cause() {
    let told = Barrier::new(2);
    let settled = world(2, |service| {
        if service.rank() == 1 {
            service.abort(cause(5, FailureKind::Mismatch, 1));
            told.wait();
            return service.settle(cause(5, FailureKind::Mismatch, 1), LONG);
        }
        told.wait();
        let alarm = service.alarm();
        while !alarm.raised() {
            std::thread::yield_now();
        }
        service.settle(cause(5, FailureKind::Death, 1), LONG)
    });
    assert_eq!(settled, [cause(5, FailureKind::Mismatch, 1), cause(5, FailureKind::Mismatch, 1)]);
}

#[test]
fn an_abort_ends_every_wait() {
    world(3, |service| match service.rank() {
        0 => {
            let error = service.exchange(WORLD, &[0, 1, 2], vec![], soon()).unwrap_err();
            assert!(matches!(error, ServiceError::Aborted { .. }), "{error}");
        }
        1 => {
            let error = service.connect(DataPath::Tcp, (WORLD, 0, 9), soon()).unwrap_err();
            assert!(matches!(error, ServiceError::Aborted { .. }), "{error}");
        }
        _ => service.abort(cause(0, FailureKind::UserAbort, 2)),
    });
}

#[test]
fn a_deadline_names_the_missing_ranks() {
    let gate = Barrier::new(3);
    world(3, |service| {
        let short = Instant::now() + Duration::from_millis(100);
        match service.rank() {
            2 => {}
            _ => match service.exchange(WORLD, &[0, 1, 2], vec![], short) {
                Err(ServiceError::TimedOut { missing, .. }) => {
                    assert!(missing.contains(&2), "{missing:?}")
                }
                other => panic!("{other:?}"),
            },
        }
        if service.rank() == 1 {
            let error = service
                .connect(DataPath::Tcp, (WORLD, 0, 5), Instant::now() + Duration::from_millis(50))
                .unwrap_err();
            assert!(matches!(error, ServiceError::TimedOut { .. }), "{error}");
        }
        gate.wait();
    });
}

#[test]
fn leaving_is_not_dying() {
    world(3, |service| {
        if service.rank() == 1 {
            service.leave(9, false).unwrap();
            service.leave(9, false).unwrap();
            return;
        }
        let error = service.exchange(WORLD, &[0, 1, 2], vec![], soon()).unwrap_err();
        assert!(matches!(error, ServiceError::Left { rank: 1 }), "{error}");
        if service.rank() == 2 {
            let error = service.connect(DataPath::Tcp, (WORLD, 1, 0), soon()).unwrap_err();
            assert!(matches!(error, ServiceError::Left { rank: 1 }), "{error}");
        }
        // The exchange of the other ranks does not need rank 1.
        service.exchange(WORLD, &[0, 2], vec![], soon()).unwrap();
        assert!(service.has_left(1));
        assert!(service.cause().is_none() && !service.alarm().raised());
    });
}

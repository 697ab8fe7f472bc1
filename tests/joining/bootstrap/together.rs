//! Operations of ranks that have joined.

use super::{WORLD, each, everybody, job, soon, world};
use maypole::world::service::ServiceError;

#[test]
fn a_large_payload_crosses_and_a_larger_one_is_refused() {
    world(2, |service| {
        let mine: Vec<u8> = (0..3_000_000u32).map(|i| (i >> service.rank()) as u8).collect();
        let all = service.exchange(WORLD, &[0, 1], mine.clone(), soon()).unwrap();
        assert_eq!(all[service.rank()], mine);
        let refused = service.exchange(WORLD, &[0, 1], vec![0; 9 << 20], soon());
        assert!(matches!(refused, Err(ServiceError::Refused(_))));
        assert!(
            matches!(service.exchange(WORLD, &[0], vec![], soon()), Err(ServiceError::Refused(_)))
                || service.rank() == 0
        );
    });
}

#[test]
fn more_ranks_than_may_be_half_open_join() {
    each(
        &job(80),
        |_| {},
        |service| {
            let service = service.unwrap();
            let all = service
                .exchange(WORLD, &everybody(&service), vec![service.rank() as u8], soon())
                .unwrap();
            assert!(all.iter().enumerate().all(|(rank, payload)| *payload == [rank as u8]));
        },
    );
}

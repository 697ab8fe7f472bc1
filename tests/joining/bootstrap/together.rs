//! Operations of ranks that have joined.

use super::{WORLD, each, everybody, job, read, soon, world, write};
use maypole::world::service::{DataPath, GroupId, ServiceError};
use maypole_kernels::{View, ViewMut};
use maypole_transports::{HEAD, Head, Stream};
use std::time::Instant;

#[test]
fn worlds_of_several_sizes_join_and_exchange() {
    for size in [1, 2, 4, 8] {
        world(size, |service| {
            assert_eq!((service.world(), service.hosts().len()), (size, size));
            assert!(service.hosts().iter().all(|host| *host == 0));
            for round in 0..3u8 {
                let mine = vec![service.rank() as u8; usize::from(round) * 1000];
                let all = service.exchange(WORLD, &everybody(service), mine, soon()).unwrap();
                let expected: Vec<_> =
                    (0..size).map(|rank| vec![rank as u8; usize::from(round) * 1000]).collect();
                assert_eq!(all, expected);
            }
            service.leave(3, false).unwrap();
            assert!(service.cause().is_none());
        });
    }
}

#[test]
fn groups_exchange_among_themselves() {
    world(4, |service| {
        let group = GroupId { parent_epoch: 1, counter: (service.rank() % 2) as u64 };
        // The order of members is the order of payloads.
        let members = if service.rank() % 2 == 0 { [2, 0] } else { [3, 1] };
        let all = service.exchange(group, &members, vec![service.rank() as u8], soon()).unwrap();
        assert_eq!(all, members.map(|member| vec![member as u8]));
    });
}

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
fn ranks_connect_on_several_lanes() {
    world(3, |service| {
        let me = service.rank();
        for lane in 0..2 {
            for peer in (0..3).filter(|peer| *peer != me) {
                let mut stream =
                    service.connect(DataPath::Tcp, (WORLD, peer, lane), soon()).unwrap();
                let head = |rank: usize| {
                    Head { position: rank as u64, fingerprint: u64::from(lane) }.to_bytes()
                };
                assert_eq!(stream.send(&head(me), View::EMPTY, 0).unwrap(), HEAD);
                let mut got = [0; HEAD];
                let mut received = 0;
                let deadline = soon();
                while received < HEAD {
                    assert!(Instant::now() < deadline, "rank {peer} sends nothing");
                    received += stream.receive(&mut got, ViewMut::EMPTY, received).unwrap();
                }
                assert_eq!(got, head(peer));
            }
        }
        assert!(matches!(
            service.connect(DataPath::Tcp, (WORLD, me, 0), soon()),
            Err(ServiceError::Refused(_))
        ));
        service.exchange(WORLD, &[0, 1, 2], vec![], soon()).unwrap();
    });
}

#[test]
fn ranks_of_one_host_share_memory() {
    world(3, |service| {
        let me = service.rank();
        for locals in [&[0, 1, 2][..], &[2, 0]] {
            if !locals.contains(&me) {
                continue;
            }
            let segment = service.share(WORLD, locals, 5000, soon()).unwrap();
            write(&segment, me * 8, me as u8 + 1);
            service.exchange(WORLD, locals, vec![], soon()).unwrap();
            for peer in locals {
                assert_eq!(read(&segment, peer * 8, 1), [*peer as u8 + 1]);
            }
        }
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

//! Ports that go down, and adapters that give queues up.

use crate::drive::{Message, TEST_TIMEOUT, exchange};
use crate::{fake, pair_on};
use maypole_transports::ib::VerbsStream;
use std::thread;
use std::time::{Duration, Instant};

const DOWN: &str = "1";
const ACTIVE: &str = "4";

/// Receives until the stream is lost; returns why, and how long that took.
fn loss(stream: &mut VerbsStream) -> (String, Duration) {
    let begun = Instant::now();
    loop {
        match Message::awaited(8).receive(stream, 0) {
            Ok(_) => assert!(begun.elapsed() < TEST_TIMEOUT, "no loss is noticed"),
            Err(fault) => return (fault.to_string(), begun.elapsed()),
        }
        thread::yield_now();
    }
}

#[test]
fn a_port_that_is_down_for_a_second_costs_a_second() {
    let (mut here, mut there) = pair_on("flap0");
    let messages: Vec<_> = (0..40).map(|at| Message::new(5, at, 100_000)).collect();
    let awaited: Vec<_> = (0..40).map(|_| Message::awaited(100_000)).collect();
    fake().set("flap0", "state", DOWN);
    thread::scope(|threads| {
        threads.spawn(|| exchange(&mut here, &messages, &[]));
        let far = threads.spawn(|| exchange(&mut there, &[], &awaited));
        thread::sleep(Duration::from_secs(1));
        assert!(!far.is_finished(), "the port is down");
        fake().set("flap0", "state", ACTIVE);
        assert!(far.join().unwrap() == messages);
    });
}

#[test]
fn a_port_that_stays_down_is_named() {
    let (mut here, there) = pair_on("down0");
    fake().set("down0", "state", DOWN);
    let (why, after) = loss(&mut here);
    assert!(why.contains("port 1 of down0 is down; see to its cable"), "{why}");
    assert!(after > Duration::from_millis(1500), "given up after {after:?}");
    assert!(after < Duration::from_secs(8), "found by what was not answered, after {after:?}");
    drop((here, there));
}

/// Events 0 to 3 of `enum ibv_event_type`. Nothing follows them, so a stream that missed them would
/// wait for its deadline.
#[test]
fn a_queue_that_an_adapter_gives_up_is_a_loss_at_once() {
    let events = [
        ("queue0", 0, "IBV_EVENT_CQ_ERR"),
        ("pair1", 1, "IBV_EVENT_QP_FATAL"),
        ("pair2", 2, "IBV_EVENT_QP_REQ_ERR"),
        ("pair3", 3, "IBV_EVENT_QP_ACCESS_ERR"),
    ];
    for (device, event, name) in events {
        let (mut here, mut there) = pair_on(device);
        assert_eq!(fake().raise(device, event), 2);
        for end in [&mut here, &mut there] {
            let (why, _) = loss(end);
            assert!(why.contains(&format!("{device} has given up")), "{why}");
            assert!(why.contains(name), "{why}");
        }
        // Later objects are not affected.
        drop((here, there));
        let (mut here, mut there) = pair_on(device);
        let message = [Message::new(6, 0, 50)];
        exchange(&mut here, &message, &[]);
        assert!(exchange(&mut there, &[], &message) == message);
    }
}

/// `IBV_EVENT_GID_CHANGE` of `enum ibv_event_type`.
const GID_CHANGE: i32 = 18;

/// Packets would still name the old address, which the peer's packets do not reach any more.
#[test]
fn an_address_that_changes_is_a_loss_and_another_one_is_none() {
    let (mut here, there) = pair_on("grown0");
    fake().raise("grown0", GID_CHANGE);
    let message = Message::new(7, 0, 8);
    for _ in 0..2000 {
        assert_eq!(Message::awaited(8).receive(&mut here, 0).unwrap(), 0);
    }
    drop((here, there));
    let (mut here, there) = pair_on("renamed0");
    fake().set("renamed0", "address", "99");
    fake().raise("renamed0", GID_CHANGE);
    let (why, _) = loss(&mut here);
    assert!(why.contains("port 1 of renamed0 has lost its address"), "{why}");
    assert!(why.contains("10.77."), "{why}");
    assert!(message.send(&mut here, 0).is_err());
    drop(there);
}

//! The cost of waits: the completion queue is armed for a sleep, and never for a poll.

use crate::drive::{Message, receive_all, send_all};
use crate::{fake, pair_on};
use maypole_transports::Stream;
use maypole_transports::poll::poll;
use std::thread;
use std::time::Duration;

#[test]
fn round_trips_that_spin_arm_no_queue() {
    const ROUND_TRIPS: u64 = 10_000;
    let (mut here, mut there) = pair_on("spin0");
    let message = Message::new(1, 0, 8);
    for _ in 0..ROUND_TRIPS {
        send_all(&mut here, &message);
        let taken = receive_all(&mut there, 8);
        send_all(&mut there, &taken);
        assert!(receive_all(&mut here, 8) == message);
    }
    assert_eq!(fake().counter("spin0", "arms"), 0);
    assert_eq!(fake().counter("spin0", "events"), 0);
}

/// A rank that waits for long sleeps again and again.
#[test]
fn sleeps_in_a_row_arm_the_queue_once() {
    let (_here, mut there) = pair_on("quiet0");
    for _ in 0..1000 {
        assert!(there.prepare_to_sleep());
    }
    assert_eq!(fake().counter("quiet0", "arms"), 1);
}

/// Every arrival between the last poll and the sleep ends the sleep.
#[test]
fn a_sleep_misses_nothing() {
    const SLEEPS: u64 = 200;
    let (mut here, mut there) = pair_on("sleep0");
    let message = Message::new(2, 0, 8);
    let is_lost = thread::scope(|threads| {
        threads.spawn(|| {
            for _ in 0..SLEEPS {
                send_all(&mut here, &message);
                assert!(receive_all(&mut here, 8) == message);
            }
        });
        let mut is_lost = false;
        for _ in 0..SLEEPS {
            let mut into = Message::awaited(8);
            let mut received = 0;
            while received < into.len() {
                received += into.receive(&mut there, received).unwrap();
                if received < into.len() && there.prepare_to_sleep() {
                    let before = std::time::Instant::now();
                    let interest = there.interest(true, false).expect("it can be polled for");
                    poll(&mut [interest], Duration::from_secs(20)).unwrap();
                    is_lost |= before.elapsed() > Duration::from_secs(19);
                }
            }
            send_all(&mut there, &into);
        }
        is_lost
    });
    assert!(!is_lost, "a message that came did not end a sleep");
    assert!(fake().counter("sleep0", "arms") > 0, "the test slept");
}

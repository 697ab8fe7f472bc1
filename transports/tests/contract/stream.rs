//! The contract of a stream. `super::pair` makes two ends, `super::LARGEST` is the length of a
//! large body, `super::NARROW` is true if the stream below an encrypted one holds less than a
//! record.

use super::{LARGEST, NARROW, pair};
use crate::drive::{
    Message, Random, TEST_TIMEOUT, TestDeadline, drain, exchange, receive_all, send_all,
};
use maypole_kernels::{View, ViewMut};
use maypole_transports::poll::poll;
use maypole_transports::{Fault, HEAD, Stream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Draws `count` messages: empty, tiny and middling messages, and one large message.
fn messages(seed: u64, count: u64) -> Vec<Message> {
    let mut random = Random(seed);
    let mut len = |position: u64| match random.next() % 4 {
        _ if position == count / 2 => LARGEST,
        0 => 0,
        1 => random.next() as usize % 9,
        2 => random.next() as usize % 300,
        _ => random.next() as usize % (LARGEST / 16),
    };
    (0..count).map(|position| Message::new(seed, position, len(position))).collect()
}

/// Two threads, each at one end, exchange messages.
fn both_ways(ours: Vec<Message>, theirs: Vec<Message>) {
    let (mut here, mut there) = pair();
    thread::scope(|threads| {
        let far = threads.spawn(|| {
            assert!(
                exchange(&mut there, &theirs, &ours) == ours,
                "the far end received other messages"
            );
        });
        assert!(
            exchange(&mut here, &ours, &theirs) == theirs,
            "the near end received other messages"
        );
        far.join().unwrap();
    });
}

#[test]
fn many_messages_arrive_in_order_and_intact_both_ways_at_once() {
    for seed in 1..4 {
        both_ways(messages(seed, 40), messages(!seed, 40));
    }
}

#[test]
fn one_way_may_be_idle() {
    both_ways(messages(5, 20), Vec::new());
    both_ways(Vec::new(), messages(6, 20));
}

/// Sends until the stream has taken nothing a hundred times. Returns how many bytes it took.
fn fill(here: &mut impl Stream, message: &Message) -> usize {
    let (mut sent, mut refusals) = (0, 0);
    let deadline = TestDeadline::new();
    while refusals < 100 && sent < message.len() {
        match message.send(here, sent).unwrap() {
            0 => refusals += 1,
            more => sent += more,
        }
        deadline.wait("a stream to fill");
    }
    assert_eq!(refusals, 100, "a stream holds a bounded number of bytes");
    sent
}

#[test]
fn sending_to_a_peer_that_takes_nothing_returns() {
    let (mut here, mut there) = pair();
    let message = Message::new(7, 0, 64 << 20);
    let sent = fill(&mut here, &message);
    drop(here);
    assert_eq!(drain(&mut there, sent + 1), message.bytes()[..sent]);
}

/// Moves the part `from..to` of `message` from `here` to `there`, and no byte more.
fn move_part(
    here: &mut impl Stream,
    there: &mut impl Stream,
    message: &Message,
    into: &mut Message,
    from: usize,
    to: usize,
) {
    let deadline = TestDeadline::new();
    let start = View::of(&message.body[..to.saturating_sub(HEAD)]);
    let mut sent = from;
    let mut received = from;
    while received < to {
        if sent < to {
            sent += here.send(&message.head, start, sent).unwrap().min(to - sent);
        }
        received += into.receive(there, received).unwrap();
        deadline.wait("a part of a message");
    }
    assert_eq!(received, to, "exactly what was sent");
}

#[test]
fn a_message_cut_anywhere_in_its_body_resumes_there() {
    let message = Message::new(8, 0, 11);
    for cut in HEAD..message.len() {
        let (mut here, mut there) = pair();
        let mut into = Message::awaited(11);
        move_part(&mut here, &mut there, &message, &mut into, 0, cut);
        assert_eq!(into.bytes()[..cut], message.bytes()[..cut]);
        assert!(
            into.bytes()[cut..].iter().all(|byte| *byte == 0xEE),
            "bytes after the cut are unchanged"
        );
        move_part(&mut here, &mut there, &message, &mut into, cut, message.len());
        assert_eq!(into, message);
    }
}

#[test]
fn any_rest_of_a_message_can_be_sent_and_received_alone() {
    let message = Message::new(9, 0, 5);
    for skip in 0..message.len() {
        let (mut here, mut there) = pair();
        let mut into = Message::awaited(5);
        move_part(&mut here, &mut there, &message, &mut into, skip, message.len());
        assert_eq!(into.bytes()[skip..], message.bytes()[skip..]);
        let bytes = into.bytes();
        let mut before = bytes[..skip].iter();
        assert!(before.all(|byte| *byte == 0xEE), "bytes before the rest are unchanged");
    }
}

#[test]
fn nothing_is_read_or_written_beyond_the_message() {
    let (mut here, mut there) = pair();
    let sent = [Message::new(10, 0, 9), Message::new(10, 1, 0), Message::new(10, 2, 40)];
    thread::scope(|threads| {
        threads.spawn(|| exchange(&mut here, &sent, &[]));
        for message in &sent {
            let len = message.body.len();
            let mut wide = vec![0xAA; len + 64];
            let mut head = [0; HEAD];
            let mut received = 0;
            let deadline = TestDeadline::new();
            while received < message.len() {
                let body = ViewMut::of(&mut wide).slice(32, len);
                received += there.receive(&mut head, body, received).unwrap();
                deadline.wait("a message");
            }
            assert_eq!(head, message.head);
            assert_eq!(wide[32..32 + len], message.body);
            let mut around = wide[..32].iter().chain(&wide[32 + len..]);
            assert!(around.all(|byte| *byte == 0xAA), "bytes around the body are unchanged");
        }
    });
}

#[test]
fn the_end_of_a_peer_comes_after_all_that_it_sent() {
    for len in [0, 5, 3000] {
        let (mut here, mut there) = pair();
        let message = Message::new(11, 0, len);
        let mut into = Message::awaited(len);
        let mut received = 0;
        let deadline = TestDeadline::new();
        // An encrypted stream takes bytes by the record. Over a stream that holds less, a record
        // leaves only while its peer receives.
        let sent = loop {
            match message.send(&mut here, 0).unwrap() {
                0 if NARROW => received += into.receive(&mut there, received).unwrap(),
                0 => panic!("an empty stream takes something"),
                sent => break sent,
            }
            deadline.wait("an empty stream to take something");
        };
        drop(here);
        while received < sent {
            received += into.receive(&mut there, received).unwrap();
            deadline.wait("what was sent");
        }
        assert_eq!(into.bytes()[..sent], message.bytes()[..sent]);
        assert!(drain(&mut there, 1).is_empty(), "nothing but what was sent");
        for _ in 0..3 {
            let received = Message::awaited(1).receive(&mut there, 0);
            assert!(matches!(received, Err(Fault::Closed | Fault::Cut)), "it stays closed");
        }
    }
}

#[test]
fn a_peer_that_vanishes_amid_a_transfer_ends_it_in_time() {
    let (mut here, mut there) = pair();
    let message = Message::new(12, 0, LARGEST);
    thread::scope(|threads| {
        threads.spawn(|| {
            let deadline = TestDeadline::new();
            let mut sent = 0;
            while sent < message.len() / 2 {
                sent += message.send(&mut here, sent).unwrap();
                deadline.wait("half a message");
            }
            drop(here);
        });
        let bytes = drain(&mut there, message.len());
        assert!(bytes.len() >= message.len() / 2 && bytes == message.bytes()[..bytes.len()]);
    });
}

#[test]
fn sending_to_a_vanished_peer_ends_in_closed() {
    let (mut here, there) = pair();
    drop(there);
    let deadline = TestDeadline::new();
    let message = Message::new(13, 0, 100);
    loop {
        match message.send(&mut here, 0) {
            Ok(_) => deadline.wait("the loss to be noticed"),
            Err(Fault::Closed) => break,
            Err(fault) => panic!("{fault}"),
        }
    }
    assert!(matches!(message.send(&mut here, 0), Err(Fault::Closed)), "it stays closed");
}

#[test]
fn an_end_that_has_finished_sends_nothing_more_and_still_receives() {
    let (mut here, mut there) = pair();
    let ours = Message::new(14, 0, LARGEST);
    let theirs = Message::new(15, 0, LARGEST);
    thread::scope(|threads| {
        let near = threads.spawn(|| {
            send_all(&mut here, &ours);
            here.finish();
            assert!(
                matches!(ours.send(&mut here, 0), Err(Fault::Closed)),
                "nothing is sent after the end"
            );
            assert!(receive_all(&mut here, LARGEST) == theirs);
            assert!(drain(&mut here, 1).is_empty());
        });
        assert!(drain(&mut there, ours.len() + 1) == ours.bytes());
        send_all(&mut there, &theirs);
        there.finish();
        // An encrypted stream whose link is full sends the end while it receives.
        let deadline = TestDeadline::new();
        while !near.is_finished() {
            let received = Message::awaited(1).receive(&mut there, 0);
            assert!(matches!(received, Err(Fault::Closed)), "the near end has finished");
            deadline.wait("the near end to see this end");
        }
    });
}

#[test]
fn finishing_twice_or_alone_does_no_harm() {
    let (mut here, mut there) = pair();
    here.finish();
    here.finish();
    let deadline = TestDeadline::new();
    while !matches!(Message::awaited(1).receive(&mut there, 0), Err(Fault::Closed)) {
        assert_eq!(Message::awaited(1).receive(&mut here, 0).unwrap(), 0);
        deadline.wait("the end");
    }
    drop(there);
    here.finish();
}

#[test]
fn a_descriptor_wakes_a_waiter_for_bytes_and_for_the_end() {
    let (mut here, mut there) = pair();
    if there.interest(true, false).is_none() {
        return; // The kernel takes no part in this stream.
    }
    let message = Message::new(16, 0, 0);
    thread::scope(|threads| {
        threads.spawn(|| send_all(&mut here, &message));
        assert!(waits_for_bytes(&mut there) < TEST_TIMEOUT, "not woken by bytes");
    });
    assert_eq!(receive_all(&mut there, 0), message);
    thread::scope(|threads| {
        threads.spawn(|| drop(here));
        assert!(waits_for_bytes(&mut there) < TEST_TIMEOUT, "not woken by the end");
    });
    assert!(drain(&mut there, 1).is_empty());
}

/// A sender whose stream is full sleeps until its peer has taken bytes, and no longer.
#[test]
fn an_interest_wakes_a_sender_once_there_is_room() {
    let (mut here, mut there) = pair();
    if here.interest(false, true).is_none() {
        return; // The kernel takes no part in this stream.
    }
    let message = Message::new(18, 0, 64 << 20);
    let mut sent = fill(&mut here, &message);
    let before = sent;
    let is_done = AtomicBool::new(false);
    thread::scope(|threads| {
        threads.spawn(|| {
            let mut into = Message::awaited(message.body.len());
            let mut received = 0;
            while !is_done.load(Ordering::Relaxed) {
                received += into.receive(&mut there, received).unwrap();
            }
        });
        while sent == before {
            if here.prepare_to_sleep() {
                let interest = here.interest(false, true).expect("it had one before");
                let start = Instant::now();
                poll(&mut [interest], TEST_TIMEOUT).unwrap();
                if start.elapsed() >= TEST_TIMEOUT {
                    break;
                }
            }
            sent += message.send(&mut here, sent).unwrap();
        }
        is_done.store(true, Ordering::Relaxed);
    });
    assert!(sent > before, "not woken by room");
}

/// Polls until a byte can be received, and returns how long that took.
fn waits_for_bytes(stream: &mut impl Stream) -> Duration {
    let start = Instant::now();
    if !stream.prepare_to_sleep() {
        return start.elapsed();
    }
    let interest = stream.interest(true, false).expect("a stream with a descriptor");
    poll(&mut [interest], TEST_TIMEOUT).unwrap();
    start.elapsed()
}

#[test]
#[should_panic(expected = "byte 19 is beyond a message of 16+3 bytes")]
fn a_message_that_is_over_cannot_be_sent() {
    let (mut here, _there) = pair();
    let _ = Message::new(17, 0, 3).send(&mut here, 19);
}

#[test]
#[should_panic(expected = "byte 19 is beyond a message of 16+3 bytes")]
fn a_message_that_is_over_cannot_be_received() {
    let (_here, mut there) = pair();
    let _ = Message::awaited(3).receive(&mut there, 19);
}

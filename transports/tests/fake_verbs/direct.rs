//! Writes past the rings of a stream.

use crate::drive::{Message, TEST_TIMEOUT, receive_all, send_all};
use crate::{fake, pair_between, pair_on};
use maypole_transports::ib::VerbsStream;
use maypole_transports::shm::Segment;
use maypole_transports::stream::direct::{DirectWrites, RemoteMemory};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

const LEN: usize = 300_000;

/// Both ends, and a segment of each that the other may write to.
struct DirectPair {
    ends: [VerbsStream; 2],
    segments: [Arc<Segment>; 2],
    there: RemoteMemory,
}

fn direct_pair(near: &str, far: &str) -> DirectPair {
    let (mut here, mut there) = pair_between(near, far);
    let segments = [(); 2].map(|()| Arc::new(Segment::create(LEN).unwrap()));
    here.register(&segments[0]).unwrap();
    let remote = there.register(&segments[1]).unwrap();
    DirectPair { ends: [here, there], segments, there: remote }
}

impl DirectPair {
    fn fill(&self, byte: u8) {
        // SAFETY: no write is under way.
        unsafe { self.segments[0].view() }.fill_from(&vec![byte; LEN]);
    }

    /// Writes the bytes from `at` on directly.
    fn write(&mut self, at: usize) -> u64 {
        // SAFETY: the test changes the bytes after the write is complete.
        let written = unsafe { self.ends[0].write((at, LEN - at), self.there) };
        written.unwrap().expect("there is room")
    }

    fn complete(&mut self, write: u64) {
        let begun = Instant::now();
        while !self.ends[0].is_complete(write).unwrap() {
            assert!(begun.elapsed() < TEST_TIMEOUT, "a write does not complete");
            thread::yield_now();
        }
    }
}

/// The fake lets bytes land as late as it may.
#[test]
fn a_message_arrives_behind_the_bytes_that_were_written_before() {
    let mut pair = direct_pair("ib0", "ib0");
    for round in 0..50 {
        pair.fill(round + 1);
        let at = usize::from(round) * 1000;
        let write = pair.write(at);
        let message = Message::new(8, round.into(), usize::from(round));
        send_all(&mut pair.ends[0], &message);
        assert!(receive_all(&mut pair.ends[1], usize::from(round)) == message);
        // SAFETY: the bytes have landed.
        let landed = unsafe { pair.segments[1].view() }.as_view().to_vec();
        assert!(landed[at..].iter().all(|byte| *byte == round + 1), "round {round}");
        pair.complete(write);
    }
    assert!(pair.ends[0].is_complete(0).unwrap());
    assert_eq!(fake().counter("ib0", "overwritten"), 0);
}

/// Until then the adapter may send the bytes again.
#[test]
fn a_write_is_complete_when_the_adapter_says_so() {
    let mut pair = direct_pair("direct0", "direct0");
    fake().set("direct0", "late", "600000");
    let write = pair.write(0);
    send_all(&mut pair.ends[0], &Message::new(9, 0, 0));
    receive_all(&mut pair.ends[1], 0);
    assert!(!pair.ends[0].is_complete(write).unwrap());
    fake().set("direct0", "late", "0");
    pair.complete(write);
}

/// So many writes are under way that the adapter has room for no more.
#[test]
fn a_full_queue_takes_no_write_until_one_is_complete() {
    let mut pair = direct_pair("direct1", "direct1");
    fake().set("direct1", "late", "600000");
    // SAFETY: nobody changes the bytes.
    let post = |pair: &mut DirectPair| unsafe { pair.ends[0].write((0, 8), pair.there) }.unwrap();
    let count = (0..).take_while(|_| post(&mut pair).is_some()).count();
    assert!((64..=256).contains(&count), "{count} writes");
    fake().set("direct1", "late", "0");
    pair.complete(count as u64);
    assert!(post(&mut pair).is_some());
}

/// Streams of a port share the registration of a segment, and the last one ends it.
#[test]
fn a_segment_is_registered_once() {
    let (mut here, mut there) = pair_on("quiet1");
    let [before, removed] = ["regions", "regions_removed"].map(|it| fake().counter("quiet1", it));
    let segment = Arc::new(Segment::create(LEN).unwrap());
    // Each end has opened the device for itself.
    for end in [&mut here, &mut there] {
        assert_eq!(end.register(&segment).unwrap(), end.register(&segment).unwrap());
    }
    assert_eq!(fake().counter("quiet1", "regions"), before + 2);
    drop((here, there));
    // The rings of both ends, and the segment for both.
    assert_eq!(fake().counter("quiet1", "regions_removed"), removed + 4);
}

#[test]
fn a_refused_key_is_told_with_the_port_and_the_remedy() {
    let mut pair = direct_pair("refusing0", "refusing0");
    pair.there.key += 1000;
    let write = pair.write(0);
    let begun = Instant::now();
    let why = loop {
        match pair.ends[0].is_complete(write) {
            Ok(is_complete) => assert!(!is_complete && begun.elapsed() < TEST_TIMEOUT),
            Err(fault) => break fault.to_string(),
        }
        thread::yield_now();
    };
    assert!(why.contains("refused a write by port 1 of refusing0"), "{why}");
    assert!(why.contains("MAYPOLE_CUDA_COURIERS=stream"), "{why}");
}

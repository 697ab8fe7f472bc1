//! Writes past a stream to memory of the peer.

use crate::drive::{Message, TEST_TIMEOUT, receive_all, send_all};
use maypole_transports::Fault;
use maypole_transports::ib::VerbsStream;
use maypole_transports::shm::Segment;
use maypole_transports::stream::direct::{DirectWrites, RemoteMemory};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

const LEN: usize = 300_000;

/// Both ends, and a segment of each that the other may write to.
pub(crate) struct DirectPair {
    pub(crate) ends: [VerbsStream; 2],
    segments: [Arc<Segment>; 2],
    pub(crate) there: RemoteMemory,
}

impl DirectPair {
    pub(crate) fn new((mut here, mut there): (VerbsStream, VerbsStream)) -> Self {
        let segments = [(); 2].map(|()| Arc::new(Segment::create(LEN).unwrap()));
        here.register(&segments[0]).unwrap();
        let remote = there.register(&segments[1]).unwrap();
        Self { ends: [here, there], segments, there: remote }
    }

    /// Writes the bytes from `at` on directly, if there is room.
    pub(crate) fn write(&mut self, at: usize) -> Option<u64> {
        // SAFETY: the tests change the bytes after the write is complete.
        unsafe { self.ends[0].write((at, LEN - at), self.there.from(at)) }.unwrap()
    }

    /// Waits until the write is complete, or has failed.
    pub(crate) fn complete(&mut self, write: u64) -> Result<(), Fault> {
        let begun = Instant::now();
        while !self.ends[0].is_complete(write)? {
            assert!(begun.elapsed() < TEST_TIMEOUT, "a write does not complete");
            thread::yield_now();
        }
        Ok(())
    }

    /// Checks that a message arrives behind the bytes that were written before.
    pub(crate) fn check_order(&mut self) {
        for round in 0..20 {
            // SAFETY: no write is under way.
            unsafe { self.segments[0].view() }.fill_from(&vec![round + 1; LEN]);
            let at = usize::from(round) * 1000;
            let write = self.write(at).expect("there is room");
            let message = Message::new(8, round.into(), usize::from(round));
            send_all(&mut self.ends[0], &message);
            assert!(receive_all(&mut self.ends[1], usize::from(round)) == message);
            // SAFETY: the bytes have landed.
            let landed = unsafe { self.segments[1].view() }.as_view().to_vec();
            assert!(landed[at..].iter().all(|byte| *byte == round + 1), "round {round}");
            self.complete(write).unwrap();
        }
    }
}

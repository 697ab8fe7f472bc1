//! What a communicator has moved so far.
//!
//! A call only counts that its program ran; how many bytes that is follows from the program, and is
//! worked out when somebody asks.

use crate::comm::Communicator;
use crate::execute::Moved;
use std::collections::BTreeMap;

/// What one rank has called, and what it sent for it, as [`Communicator::counters`] gives it.
///
/// *Payload* is elements on their way from this rank to another, as the schedules have it: what
/// theory counts. An all-reduce of n bytes by the ring algorithm sends 2 (p-1)/p n from each of p
/// ranks, over whatever transport. Ranks of one host read publications where they lie, so what
/// several of them read is *written* once and counts as payload for each reader. What is written
/// has a head of 16 bytes a message, which is no payload; a long message between two ranks is
/// announced by one head more. Copies within the rank, what the network adds below the stream,
/// answers of receivers and the control plane are left out; so are collectives that failed.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Counters {
    /// Calls that succeeded, by the name of their collective. One that passes variable counts which
    /// not all ranks know first tells them by an `all_gather`, which counts, too.
    pub calls: BTreeMap<&'static str, u64>,
    /// Through memory that ranks share: between threads, or processes of one host.
    pub board: Moved,
    /// Through streams: TCP, or memory between threads that pretend to be on different hosts.
    pub stream: Moved,
    /// Messages that were [sent](Communicator::send) to other ranks, through whatever they went.
    pub messages: Moved,
    /// Payload bytes to each rank.
    pub peers: Vec<Sent>,
}

/// Payload bytes to one rank.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Sent {
    /// That it read from our board.
    pub board: u64,
    /// By a stream.
    pub stream: u64,
    /// In messages.
    pub messages: u64,
}

impl Counters {
    pub(crate) fn new(world: usize) -> Self {
        Self { peers: vec![Sent::default(); world], ..Self::default() }
    }

    /// Payload bytes in all.
    pub fn payload(&self) -> u64 {
        self.board.payload + self.stream.payload + self.messages.payload
    }

    /// Bytes written in all.
    pub fn written(&self) -> u64 {
        self.board.written + self.stream.written + self.messages.written
    }

    /// What came after `earlier` counters of the same communicator.
    ///
    /// # Panics
    /// If they are of a larger world, or later.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut since = self.clone();
        for (name, calls) in &earlier.calls {
            *since.calls.entry(name).or_default() -= calls;
        }
        since.calls.retain(|_, calls| *calls > 0);
        since.board = self.board.less(earlier.board);
        since.stream = self.stream.less(earlier.stream);
        since.messages = self.messages.less(earlier.messages);
        for (peer, sent) in earlier.peers.iter().enumerate() {
            since.peers[peer].board -= sent.board;
            since.peers[peer].stream -= sent.stream;
            since.peers[peer].messages -= sent.messages;
        }
        since
    }
}

impl Communicator {
    /// What this rank has called on this communicator, and what it sent for it; groups count their
    /// own. Waits for requests in flight. Calls pay next to nothing for it.
    ///
    /// ```
    /// use maypole::{Communicator, ReduceOp, algorithms::Algorithm};
    /// let sent = Communicator::run_local(4, |mut comm| {
    ///     comm.set_algorithm(Some(Algorithm::Ring));
    ///     let before = comm.counters();
    ///     comm.all_reduce(&mut [1f32; 1000], ReduceOp::Sum).unwrap();
    ///     let during = comm.counters().since(&before);
    ///     assert_eq!(during.calls["all_reduce"], 1);
    ///     during.payload()
    /// });
    /// // 2 (p-1)/p of 4000 bytes.
    /// assert_eq!(sent, [6000; 4]);
    /// ```
    pub fn counters(&self) -> Counters {
        let mut counters = self.engine.get().counters();
        for (peer, sent) in self.engine.message_links().sent() {
            counters.messages += sent;
            counters.peers[peer].messages += sent.payload;
        }
        counters
    }
}

//! How much a communicator has moved so far.
//!
//! A call only counts the runs of its program. The bytes of one run follow from the program, so
//! [`Communicator::counters`] computes the bytes when it is called.

use crate::comm::Communicator;
use crate::execute::Moved;
use std::collections::BTreeMap;

/// The calls of one rank, and the bytes that it sent for them: see [`Communicator::counters`].
///
/// * *Payload* counts the elements that the schedules send from this rank to other ranks, as theory
///   does. An all-reduce of n bytes by the ring algorithm sends 2 (p-1)/p n from each of p ranks,
///   over every transport.
/// * *Written* counts the bytes that this rank writes. A publication on a board is written once,
///   but it is payload for each rank that reads it. Every message has a head of 16 bytes, which is
///   written but is no payload. A long message between two ranks has one head more, which
///   announces it.
///
/// Not counted are copies within the rank, what the network adds below the stream, answers of
/// receivers, the control plane, and collectives that failed.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Counters {
    /// Calls that succeeded, by the name of their collective. A call with counts that not all ranks
    /// know first makes an `all_gather` of the counts, which is counted, too.
    pub calls: BTreeMap<&'static str, u64>,
    /// Those among the calls that ran on [registered](Communicator::alloc) memory. Messages of such
    /// a call count as publications, and their payload as what they tell of.
    pub registered: u64,
    /// Those among the calls whose private memory was [copied](crate::CallPath::Copied) from rank to
    /// rank. They are counted as those on registered memory.
    pub copied: u64,
    /// Sent through boards, the memory that threads or processes of one host share.
    pub board: Moved,
    /// Sent through streams: TCP, or memory between threads that pretend to be on different hosts.
    pub stream: Moved,
    /// Messages that were [sent](Communicator::send) to other ranks, over any transport.
    pub messages: Moved,
    /// Payload bytes to each rank.
    pub peers: Vec<Sent>,
}

/// Payload bytes to one rank.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Sent {
    /// Bytes that it read from this rank's board.
    pub board: u64,
    /// Bytes through a stream.
    pub stream: u64,
    /// Bytes of messages.
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

    /// The difference to `earlier` counters of the same communicator.
    ///
    /// # Panics
    /// If `earlier` is of a larger world or was taken later.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut since = self.clone();
        for (name, calls) in &earlier.calls {
            *since.calls.entry(name).or_default() -= calls;
        }
        since.calls.retain(|_, calls| *calls > 0);
        since.registered -= earlier.registered;
        since.copied -= earlier.copied;
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
    /// The calls of this rank on this communicator, and the bytes that it sent for them. Groups
    /// count their own calls. Waits for requests in flight. Counting costs a call next to nothing.
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
        for (peer, sent) in self.engine.messages.sent() {
            counters.messages += sent;
            counters.peers[peer].messages += sent.payload;
        }
        counters
    }
}

//! Reports of the calls of a communicator: plain data.

use crate::execute::{Moved, StoreCounts};
use std::collections::BTreeMap;

/// The calls of one rank, and the bytes that it sent for them: see [`Communicator::counters`](crate::Communicator::counters).
///
/// * *Payload* counts the elements that the schedules send from this rank to other ranks, as theory
///   does. An all-reduce of n bytes by the ring algorithm sends 2 (p-1)/p n from each of p ranks,
///   over every transport.
/// * *Written* counts the bytes that this rank writes. A publication on a board is written once,
///   but it is payload for each rank that reads it. Every message has a head of 16 bytes, which is
///   written but is no payload. A long message between two ranks has one head more, which
///   announces it.
///
/// Not counted are copies within the rank, overhead of the network below the stream, credits and
/// clear-to-sends of receivers, the control plane, and collectives that failed.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Counters {
    /// Calls that succeeded, by the name of their collective. A call whose counts are local to some
    /// ranks begins with an `all_gather` of the counts, which is counted, too.
    pub calls: BTreeMap<&'static str, u64>,
    /// Those among the calls that ran on [registered](crate::Communicator::alloc) memory. Messages of such
    /// a call count as publications, and the data that they announce as their payload.
    pub registered: u64,
    /// Those among the calls whose private memory was [copied](crate::CallPath::Copied) from rank to
    /// rank. They are counted as those on registered memory.
    pub copied: u64,
    /// Sent through boards, the memory that threads or processes of one host share.
    pub board: Moved,
    /// Sent through streams: TCP, or memory between threads that pretend to be on different hosts.
    pub stream: Moved,
    /// Messages that were [sent](crate::Communicator::send) to other ranks, over any transport.
    pub messages: Moved,
    /// How large publications on boards were stored.
    pub stores: StoreCounts,
}

impl Counters {
    /// Payload bytes in all.
    pub fn payload(&self) -> u64 {
        self.board.payload + self.stream.payload + self.messages.payload
    }

    /// Bytes written in all.
    pub fn written(&self) -> u64 {
        self.board.written + self.stream.written + self.messages.written
    }
}

/// How a collective ran: see [`Communicator::last_call`](crate::Communicator::last_call).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct LastCall {
    /// The name of the algorithm.
    pub algorithm: &'static str,
    /// How ranks that share a board got at each other's bytes.
    pub path: CallPath,
}

/// How ranks that share a board got at each other's bytes in a call.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum CallPath {
    /// Through the slots of the board: a byte is copied into a slot, and out of it. Bytes to ranks
    /// of other boards go through streams.
    #[default]
    Staged,
    /// In [registered](crate::Communicator::alloc) memory, where they lie.
    Registered,
    /// From private memory to private memory, by the kernel: large calls that only move bytes, among
    /// processes that may read one another's memory.
    Copied,
}

impl CallPath {
    /// Returns the name that `maypole perf` writes: `staged`, `registered` or `copied`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Staged => "staged",
            Self::Registered => "registered",
            Self::Copied => "copied",
        }
    }
}

/// The programs of a communicator: see [`Communicator::programs`](crate::Communicator::programs).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct ProgramCache {
    /// Programs that were made so far, each by lowering the schedules of a call.
    pub lowered: u64,
    /// Programs that were dropped, because all programs together would have exceeded the budget.
    pub evicted: u64,
    /// The number of cached programs.
    pub kept: usize,
    /// Bytes that these take.
    pub bytes: usize,
    /// The most bytes that they may take.
    pub budget: usize,
}

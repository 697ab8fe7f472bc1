//! The machine model: ranks move and combine every byte on cores of their own, or on shared cores.
//!
//! * Publishing a message occupies the sender's core, and taking it occupies the receiver's core.
//!   In between, the message is in flight for [`LinkCost::latency`], which occupies no core.
//! * A span that goes to several ranks of one board is published once.
//! * If a core has read a publication for one of its ranks, it reads it for its other ranks from
//!   its own cache, unless [`MachineModel::reads_again`].
//! * A core runs one rank until that rank has to wait, then the next of its ranks. Each change of
//!   ranks costs a [`MachineModel::switch`], even if the next rank can do nothing.
//! * A board holds a limited number of messages of a rank. The next one waits until all readers
//!   have read the oldest.
//! * A rank begins a call when its own part of the call before is done, so ranks that only send run
//!   ahead of the others.
//! * A message of several chunks is published chunk by chunk.
//! * A rank with more than three streams polls all of them while it waits for one.
//! * A read of a stream takes all short messages that have arrived, so a rank that is later than
//!   its senders reads seldom.
//!
//! Everything is counted in whole picoseconds, and ties go to the lower rank, then to the earlier
//! window, then to the earlier step. So equal arguments give equal numbers on every host.

/// The costs of a message in picoseconds, and of its bytes in picoseconds per KiB.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct LinkCost {
    /// To publish a chunk of a message, at any length.
    pub post: u64,
    /// From its publication until it can be seen.
    pub latency: u64,
    /// To take a chunk of a message, at any length.
    pub take: u64,
    /// To poll one more peer's link while waiting.
    pub look: u64,
    /// To publish a KiB.
    pub post_kib: u64,
    /// To take a KiB as it is.
    pub copy_kib: u64,
    /// To take a KiB and combine it.
    pub fold_kib: u64,
}

/// Where ranks run, and the costs of the links between them.
#[derive(Clone, Debug)]
pub struct MachineModel<'a> {
    /// For each rank the number of its board: ranks with equal numbers share a board.
    pub boards: &'a [usize],
    /// The costs between ranks of one board.
    pub board: LinkCost,
    /// The costs between all other ranks.
    pub stream: LinkCost,
    /// How many ranks share a core.
    pub crowding: usize,
    /// Picoseconds for a core to change to another rank.
    pub switch: u64,
    /// How many messages of a rank a board holds until all readers have read them.
    pub slots: usize,
    /// The most bytes of a message that is received together with others of its stream.
    pub ahead: u64,
    /// True if a core that has read a publication for one rank takes as long to read it for another.
    pub reads_again: bool,
    /// How fast ranks of a board reach the memories that its slots are in; `None` if all alike.
    pub memories: Option<&'a MemoryRates>,
}

/// Memories of ranks, of which some are slower to reach or shared, as those of GPUs are.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct MemoryRates {
    /// By rank: how many ranks share its memory. Each has that part of the bandwidth.
    pub sharing: Vec<u64>,
    /// By rank that writes, then by rank that reads: picoseconds a KiB that the path between their
    /// memories takes at least.
    pub least: Vec<Vec<u64>>,
}

impl MemoryRates {
    /// The costs of a link of a board from rank `from` to rank `to`. A publication is written to
    /// the memory of its writer, and fetched from there by its readers.
    fn link(&self, board: LinkCost, from: usize, to: usize) -> LinkCost {
        let read = |kib: u64| (kib * self.sharing[to]).max(self.least[from][to]);
        LinkCost {
            post_kib: board.post_kib * self.sharing[from],
            copy_kib: read(board.copy_kib),
            fold_kib: read(board.fold_kib),
            ..board
        }
    }
}

/// The duration of a run, in picoseconds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct RunTime {
    /// Until the last rank is done.
    pub end: u64,
    /// Working time of the busiest core.
    pub busiest: u64,
}

impl MachineModel<'_> {
    pub(super) fn near(&self, a: usize, b: usize) -> bool {
        self.boards[a] == self.boards[b]
    }

    pub(super) fn link(&self, a: usize, b: usize) -> LinkCost {
        match self.memories {
            _ if !self.near(a, b) => self.stream,
            Some(memories) => memories.link(self.board, a, b),
            None => self.board,
        }
    }
}

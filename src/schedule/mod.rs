//! A schedule is a plain list of steps: one rank's part of a collective.
//!
//! A collective algorithm is a pure function from (collective, world, rank) to a [`Schedule`]. Four
//! readers share it: the checker proves it ([`verify`]), `maypole-pictures` draws it, [`simulate`] prices
//! it, and [`lower`](crate::lower) makes the program of one rank of it, by which
//! [`execute`](crate::execute), or a kernel on a GPU, moves real bytes.
//!
//! # The vocabulary
//!
//! Five verbs over three buffers. `Input` holds the rank's contribution and is never written.
//! `Output` holds its result in the end. `Scratch` is private to the rank. Steps name *chunks*,
//! never bytes: chunk `c` is the same part of the whole in every buffer of every rank (all-to-all
//! alone moves chunk `s` here to chunk `r` there). Scratch chunk `s` is as long as chunk `s mod
//! chunks`, so a rank may have several rows of scratch.
//!
//! # The law
//!
//! A send is *posted*: it does not wait, and its chunk may not be overwritten until its receiver
//! has taken it. Links hold nothing and keep their order: the n-th receive from a peer takes the
//! n-th send of that peer to us. Every other step waits for its inputs. Taken strictly in list
//! order this is the order of the *proof*, and [`walk`] is its one implementation. Executors may
//! use *conflict order*: a step waits only for earlier steps that use the same link in the same
//! direction, or whose span overlaps its own where one of the two writes. Schedules that complete
//! in proof order complete in conflict order, with the same bits.
//!
//! # Windows
//!
//! A schedule describes one window. Big buffers run the same steps for windows `0..W`, each an
//! equal fraction of every chunk, and windows overlap in time. This pipelines chains and trees. No
//! step mentions windows.

pub mod collective;
pub mod conflict;
pub mod hosts;
mod layout;
pub mod simulate;
pub mod trace;
pub mod verify;
pub mod walk;

pub use layout::{Layout, part};
use std::fmt;

/// One of a rank's three buffers.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Buffer {
    /// The rank's contribution; never written.
    Input,
    /// The rank's result.
    Output,
    /// Memory of the rank's own. Its content before and after the call means nothing.
    Scratch,
}

/// A chunk of a buffer.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Span {
    /// Which buffer.
    pub buffer: Buffer,
    /// Which chunk of it.
    pub chunk: usize,
}

/// Chunk `chunk` of the input.
pub const fn input(chunk: usize) -> Span {
    Span { buffer: Buffer::Input, chunk }
}

/// Chunk `chunk` of the output.
pub const fn output(chunk: usize) -> Span {
    Span { buffer: Buffer::Output, chunk }
}

/// Chunk `chunk` of the scratch space.
pub const fn scratch(chunk: usize) -> Span {
    Span { buffer: Buffer::Scratch, chunk }
}

impl Span {
    /// True if the two share bytes. In place, an input chunk and the output chunk of the same
    /// number do.
    pub fn overlaps(self, other: Self, placement: Placement) -> bool {
        self.in_place(placement) == other.in_place(placement)
    }

    /// The span that stands for all spans with the same bytes: two spans overlap if theirs are
    /// equal.
    pub(crate) fn in_place(self, placement: Placement) -> Self {
        match (placement, self.buffer) {
            (Placement::InPlace, Buffer::Input) => output(self.chunk),
            _ => self,
        }
    }
}

/// Where a rank's input and output lie. Each rank may choose its own placement, because the
/// placement never changes messages.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Placement {
    /// In two buffers.
    Apart,
    /// In one buffer: chunk `c` of the input is chunk `c` of the output.
    InPlace,
}

/// One action of one rank on one chunk.
///
/// Exhaustive on purpose: every reader of schedules must handle each step.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Step {
    /// Post `from` to rank `to`. The step does not wait.
    Send {
        /// The span that is sent.
        from: Span,
        /// The receiver.
        to: usize,
    },
    /// Wait for the next chunk of rank `from`; `into` becomes it.
    Recv {
        /// The span that is written.
        into: Span,
        /// The sender.
        from: usize,
    },
    /// Wait for the next chunk of rank `from`; `into` becomes `into` op received.
    RecvReduce {
        /// The span that is written.
        into: Span,
        /// The sender.
        from: usize,
    },
    /// `into` becomes `from`.
    Copy {
        /// The span that is read.
        from: Span,
        /// The span that is written.
        into: Span,
    },
    /// `into` becomes `into` op `from`.
    Reduce {
        /// The span that is read.
        from: Span,
        /// The span that is written.
        into: Span,
    },
}

impl Step {
    /// Returns the rank at the other end of the message that the step sends or receives, if there is one.
    pub fn peer(self) -> Option<usize> {
        match self {
            Self::Send { to: peer, .. }
            | Self::Recv { from: peer, .. }
            | Self::RecvReduce { from: peer, .. } => Some(peer),
            Self::Copy { .. } | Self::Reduce { .. } => None,
        }
    }

    /// The span that the step writes.
    pub fn writes(self) -> Option<Span> {
        match self {
            Self::Send { .. } => None,
            Self::Recv { into, .. }
            | Self::RecvReduce { into, .. }
            | Self::Copy { into, .. }
            | Self::Reduce { into, .. } => Some(into),
        }
    }

    /// The spans that the step reads.
    pub fn reads(self) -> impl Iterator<Item = Span> {
        let (a, b) = match self {
            Self::Send { from, .. } | Self::Copy { from, .. } => (Some(from), None),
            Self::Recv { .. } => (None, None),
            Self::RecvReduce { into, .. } => (Some(into), None),
            Self::Reduce { from, into } => (Some(from), Some(into)),
        };
        a.into_iter().chain(b)
    }

    /// Returns the same step with other spans and with another peer.
    ///
    /// ```
    /// use maypole::schedule::{Step, output, scratch};
    /// let step = Step::Recv { into: output(2), from: 0 };
    /// let moved = step.map(|span| scratch(span.chunk), |peer| peer + 3);
    /// assert_eq!(moved, Step::Recv { into: scratch(2), from: 3 });
    /// ```
    #[must_use]
    pub fn map(self, span: impl Fn(Span) -> Span, peer: impl Fn(usize) -> usize) -> Self {
        match self {
            Self::Send { from, to } => Self::Send { from: span(from), to: peer(to) },
            Self::Recv { into, from } => Self::Recv { into: span(into), from: peer(from) },
            Self::RecvReduce { into, from } => {
                Self::RecvReduce { into: span(into), from: peer(from) }
            }
            Self::Copy { from, into } => Self::Copy { from: span(from), into: span(into) },
            Self::Reduce { from, into } => Self::Reduce { from: span(from), into: span(into) },
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = match self.buffer {
            Buffer::Input => "in",
            Buffer::Output => "out",
            Buffer::Scratch => "tmp",
        };
        write!(f, "{letter}{}", self.chunk)
    }
}

/// How the schedules of all ranks follow from those of one board's ranks. Boards have equally many ranks, those
/// of each one after the other.
///
/// At the same place of its list, the rank at the same place of another board takes the same step with another
/// peer and with other chunks. So a message that a board receives is one that it sends itself, to another board.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Symmetry {
    /// What board `b` does with board `p`, board `b + k` does with board `p + k`, modulo the number of
    /// boards.
    Rotation,
    /// What board `b` does with board `p`, board `b xor k` does with board `p xor k`. There are a power
    /// of two of boards.
    ExclusiveOr,
}

impl Symmetry {
    /// The ranks that do what `ranks` do, moved so that the second of them is on board `home`. Each of the
    /// `boards` has `width` ranks.
    ///
    /// ```
    /// use maypole::schedule::Symmetry;
    /// assert_eq!(Symmetry::Rotation.moved([0, 3], 0, (8, 1)), [5, 0]);
    /// assert_eq!(Symmetry::ExclusiveOr.moved([0, 3], 0, (8, 1)), [3, 0]);
    /// // Four boards of two ranks: rank 7 is the second one of its board, as rank 3 is.
    /// assert_eq!(Symmetry::Rotation.moved([0, 7], 1, (4, 2)), [4, 3]);
    /// ```
    pub fn moved(
        self,
        ranks: [usize; 2],
        home: usize,
        (boards, width): (usize, usize),
    ) -> [usize; 2] {
        let from = ranks[1] / width;
        ranks.map(|rank| {
            let board = match self {
                Self::Rotation => (rank / width + home + boards - from) % boards,
                Self::ExclusiveOr => (rank / width) ^ from ^ home,
            };
            board * width + rank % width
        })
    }
}

/// One rank's steps, in order.
///
/// ```
/// use maypole::schedule::{Schedule, Step, input, output};
/// // Rank 1's half of a broadcast from rank 0 to rank 1.
/// let schedule = Schedule::new(1, vec![Step::Recv { into: output(0), from: 0 }]);
/// assert_eq!(schedule.steps[0].writes(), Some(output(0)));
/// ```
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct Schedule {
    /// The number of chunks of the whole; the same on every rank.
    pub chunks: usize,
    /// How many chunks of scratch the steps use.
    pub scratch: usize,
    /// The steps, in list order.
    pub steps: Vec<Step>,
}

impl Schedule {
    /// A schedule of `steps`, with as much scratch as they name.
    pub fn new(chunks: usize, steps: Vec<Step>) -> Self {
        let spans = steps.iter().flat_map(|step| step.reads().chain(step.writes()));
        let scratch =
            spans.filter(|s| s.buffer == Buffer::Scratch).map(|s| s.chunk + 1).max().unwrap_or(0);
        Self { chunks, scratch, steps }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scratch_is_counted_from_the_steps() {
        let steps = vec![
            Step::Recv { into: scratch(3), from: 0 },
            Step::Copy { from: scratch(3), into: output(0) },
        ];
        assert_eq!(Schedule::new(1, steps).scratch, 4);
    }
}

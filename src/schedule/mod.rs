//! A schedule is what one rank does, as a plain list of steps.
//!
//! A collective algorithm is a pure function from (collective, world, rank) to a [`Schedule`]. Five
//! readers share it: the checker proves it ([`verify`]), [`draw`]
//! pictures it, [`simulate`] prices it, [`execute`](crate::execute) moves real
//! bytes by it, and an interpreter on a GPU can walk the same steps.
//!
//! # The vocabulary
//!
//! Five verbs over three buffers. `Input` is what the rank brings and is never written. `Output` is
//! what it must hold in the end. `Scratch` is room of its own. Steps name *chunks*, never bytes:
//! chunk `c` is the same part of the whole in every buffer of every rank (all-to-all alone moves
//! chunk `s` here to chunk `r` there). Scratch chunk `s` is as long as chunk `s mod chunks`, so a
//! rank may have several rows of scratch.
//!
//! # The law
//!
//! A send is *posted*: it does not wait, and its chunk may not be overwritten until its receiver
//! has taken it. Links hold nothing and keep their order: the n-th receive from a peer takes the
//! n-th send of that peer to us. Every other step waits for what it needs. Taken strictly in list
//! order this is the order of the *proof*, and [`walk`] is its one implementation.
//! Executors may use *conflict order*: a step waits only for earlier steps that use the same link
//! in the same direction, or whose span overlaps its own where one of the two writes. What
//! completes in proof order completes in conflict order with the same bits.
//!
//! # Windows
//!
//! A schedule describes one window. Big buffers run the same steps for windows `0..W`, each an
//! equal fraction of every chunk, overlapped: that is what pipelines chains and trees. Schedules
//! never mention it.

pub mod collective;
mod conflict;
pub mod draw;
pub mod hosts;
pub mod simulate;
pub mod trace;
pub mod verify;
pub mod walk;

use std::fmt;
use std::ops::Range;

/// One of a rank's three buffers.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Buffer {
    /// What the rank brings; never written.
    Input,
    /// What the rank must hold in the end.
    Output,
    /// Room of its own; its content before and after means nothing.
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

    /// The span by which overlap is equality.
    pub(crate) fn in_place(self, placement: Placement) -> Self {
        match (placement, self.buffer) {
            (Placement::InPlace, Buffer::Input) => output(self.chunk),
            _ => self,
        }
    }
}

/// Where a rank's input and output lie. A local fact: it never changes what is sent.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Placement {
    /// In two buffers.
    Apart,
    /// In one: chunk `c` of the input is chunk `c` of the output.
    InPlace,
}

/// One thing that one rank does to one chunk.
///
/// Exhaustive on purpose: every reader of schedules must say what each step means.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Step {
    /// Post `from` to rank `to`; does not wait.
    Send {
        /// What.
        from: Span,
        /// To whom.
        to: usize,
    },
    /// Wait for the next chunk of rank `from`; `into` becomes it.
    Recv {
        /// Where to.
        into: Span,
        /// From whom.
        from: usize,
    },
    /// Wait for the next chunk of rank `from`; `into` becomes `into` op received.
    RecvReduce {
        /// Where to.
        into: Span,
        /// From whom.
        from: usize,
    },
    /// `into` becomes `from`.
    Copy {
        /// What.
        from: Span,
        /// Where to.
        into: Span,
    },
    /// `into` becomes `into` op `from`.
    Reduce {
        /// What.
        from: Span,
        /// Where to.
        into: Span,
    },
}

impl Step {
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

/// One rank's steps, in order.
///
/// ```
/// use maypole::schedule::{Schedule, Step, input, output};
/// // Rank 1's half of a broadcast from rank 0 to rank 1.
/// let schedule = Schedule { chunks: 1, scratch: 0, steps: vec![Step::Recv { into: output(0), from: 0 }] };
/// assert_eq!(schedule.steps[0].writes(), Some(output(0)));
/// ```
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct Schedule {
    /// Into how many chunks the whole is cut; the same on every rank.
    pub chunks: usize,
    /// How many chunks of scratch the steps use.
    pub scratch: usize,
    /// What to do.
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

/// How the whole is cut into chunks: chunk -> range of elements. Data, so that uneven counts need
/// no other algorithm.
///
/// ```
/// use maypole::schedule::Layout;
/// let layout = Layout::even(10, 4);
/// assert_eq!((0..4).map(|c| layout.range(c)).collect::<Vec<_>>(), [0..3, 3..6, 6..8, 8..10]);
/// assert_eq!(Layout::given(&[1, 0, 4]).range(2), 1..5);
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Layout(Cut);

#[derive(Clone, Debug, Eq, PartialEq)]
enum Cut {
    Even {
        count: usize,
        chunks: usize,
    },
    /// Where each chunk starts, and last where the last one ends.
    Given(Vec<usize>),
    /// By rank: the starts of its input's chunks, and of its output's.
    Pairs(Vec<[Vec<usize>; 2]>),
}

impl Layout {
    /// `count` elements in `chunks` chunks whose lengths differ by at most one, the longer ones
    /// first.
    ///
    /// # Panics
    /// If `chunks` is zero.
    pub const fn even(count: usize, chunks: usize) -> Self {
        assert!(chunks > 0, "a whole has at least one chunk");
        Self(Cut::Even { count, chunks })
    }

    /// One chunk for each of `counts`, as long as it says.
    pub fn given(counts: &[usize]) -> Self {
        Self(Cut::Given(starts(counts.iter().copied())))
    }

    /// For all-to-all: rank `s` has `counts[s][r]` elements for rank `r`. The chunks of an input
    /// lie one after another by receiver, those of an output by sender.
    ///
    /// # Panics
    /// If there are not as many counts of each rank as there are ranks.
    pub fn pairs(counts: &[Vec<usize>]) -> Self {
        assert!(
            counts.iter().all(|row| row.len() == counts.len()),
            "one count for each pair of ranks"
        );
        let of = |rank: usize| {
            [starts(counts[rank].iter().copied()), starts(counts.iter().map(|row| row[rank]))]
        };
        Self(Cut::Pairs((0..counts.len()).map(of).collect()))
    }

    /// Number of chunks.
    pub fn chunks(&self) -> usize {
        match &self.0 {
            Cut::Even { chunks, .. } => *chunks,
            Cut::Given(starts) => starts.len() - 1,
            Cut::Pairs(ranks) => ranks.len(),
        }
    }

    /// Number of elements in all; of counts by pairs, those of the longest buffer.
    pub fn count(&self) -> usize {
        match &self.0 {
            Cut::Even { count, .. } => *count,
            Cut::Given(starts) => starts[starts.len() - 1],
            Cut::Pairs(ranks) => {
                ranks.iter().flatten().map(|starts| starts[starts.len() - 1]).max().unwrap_or(0)
            }
        }
    }

    /// The elements of `chunk`, counted from the start of the whole.
    ///
    /// # Panics
    /// If there is no such chunk, or counts are by pairs: then it depends on the buffer, see
    /// [`of`](Self::of).
    pub fn range(&self, chunk: usize) -> Range<usize> {
        match &self.0 {
            Cut::Even { count, chunks } => part(*count, *chunks, chunk),
            Cut::Given(starts) => starts[chunk]..starts[chunk + 1],
            Cut::Pairs(_) => panic!("counts by pairs of ranks differ from buffer to buffer"),
        }
    }

    /// The elements of `span` of rank `rank`, counted from the start of the whole. Scratch chunk
    /// `s` is as long as chunk `s mod chunks`, and lies behind the rows before it.
    ///
    /// # Panics
    /// If there is no such chunk, or counts are by pairs and the span is scratch.
    pub fn of(&self, rank: usize, span: Span) -> Range<usize> {
        let (row, chunk) = (span.chunk / self.chunks(), span.chunk % self.chunks());
        let starts = match (&self.0, span.buffer) {
            (Cut::Pairs(ranks), Buffer::Input) => &ranks[rank][0],
            (Cut::Pairs(ranks), Buffer::Output) => &ranks[rank][1],
            (_, Buffer::Input | Buffer::Output) => return self.range(span.chunk),
            (_, Buffer::Scratch) => {
                let (range, before) = (self.range(chunk), row * self.count());
                return before + range.start..before + range.end;
            }
        };
        starts[span.chunk]..starts[span.chunk + 1]
    }

    /// Elements of the longest chunk.
    pub fn longest(&self) -> usize {
        match &self.0 {
            Cut::Even { count, chunks } => count.div_ceil(*chunks),
            Cut::Given(starts) => longest(starts),
            Cut::Pairs(ranks) => ranks.iter().map(|[inputs, _]| longest(inputs)).max().unwrap_or(0),
        }
    }
}

/// Where parts of these lengths start, and last where the last one ends.
fn starts(counts: impl Iterator<Item = usize>) -> Vec<usize> {
    let ends = counts.scan(0, |end, count| {
        *end += count;
        Some(*end)
    });
    std::iter::once(0).chain(ends).collect()
}

fn longest(starts: &[usize]) -> usize {
    starts.windows(2).map(|w| w[1] - w[0]).max().unwrap_or(0)
}

/// Part `part` of `len` elements cut into `parts`, the longer ones first. Quotient and remainder,
/// so that no product overflows.
pub(crate) const fn part(len: usize, parts: usize, part: usize) -> Range<usize> {
    let (quotient, remainder) = (len / parts, len % parts);
    let start = part * quotient + if part < remainder { part } else { remainder };
    start..start + quotient + (part < remainder) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parts_are_even_and_cover_everything(len in 0..1usize << 40, parts in 1..1000usize, at in 0..1000usize) {
            let at = at % parts;
            let here = part(len, parts, at);
            prop_assert_eq!(here.start, if at == 0 { 0 } else { part(len, parts, at - 1).end });
            prop_assert!(here.len() == len / parts || here.len() == len / parts + 1);
            prop_assert_eq!(part(len, parts, parts - 1).end, len);
        }
    }

    #[test]
    fn counts_by_pairs_give_each_buffer_its_own_cut() {
        let layout = Layout::pairs(&[vec![1, 2], vec![3, 4]]);
        assert_eq!((layout.of(0, input(1)), layout.of(1, output(0))), (1..3, 0..2));
        assert_eq!((layout.of(1, input(0)), layout.of(0, output(1))), (0..3, 1..4));
        assert_eq!((layout.longest(), layout.count()), (4, 7));
    }

    #[test]
    fn scratch_is_counted_from_the_steps() {
        let steps = vec![
            Step::Recv { into: scratch(3), from: 0 },
            Step::Copy { from: scratch(3), into: output(0) },
        ];
        assert_eq!(Schedule::new(1, steps).scratch, 4);
    }
}

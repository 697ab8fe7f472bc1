//! The partition of the whole into chunks, in elements.

use super::collective::HeldChunks;
use super::{Buffer, Span};
use std::ops::Range;

/// The partition of the whole into chunks: the range of elements of each chunk. The layout is data
/// apart from the schedule, so uneven counts need no other algorithm.
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
    /// Where each chunk starts, and at the end of the list where the last chunk ends.
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

    /// One chunk for each of `counts`, with that many elements.
    pub fn given(counts: &[usize]) -> Self {
        Self(Cut::Given(starts(counts.iter().copied())))
    }

    /// For all-to-all: rank `s` has `counts[s][r]` elements for rank `r`. The chunks of an input
    /// lie one after another by receiver, those of an output by sender.
    ///
    /// # Panics
    /// If a rank has not one count for each rank.
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

    /// Where in the whole a buffer lies that holds these chunks.
    pub fn held(&self, chunks: HeldChunks) -> Range<usize> {
        match chunks {
            HeldChunks::Nothing => 0..0,
            HeldChunks::One(chunk) => self.range(chunk),
            HeldChunks::All => 0..self.count(),
        }
    }

    /// Number of elements in all. If counts are by pairs: the number in the longest buffer.
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
    /// If there is no such chunk, or if counts are by pairs, because the range then depends on the
    /// buffer (see [`of`](Self::of)).
    pub fn range(&self, chunk: usize) -> Range<usize> {
        match &self.0 {
            Cut::Even { count, chunks } => part(*count, *chunks, chunk),
            Cut::Given(starts) => starts[chunk]..starts[chunk + 1],
            Cut::Pairs(_) => panic!("counts by pairs of ranks differ from buffer to buffer"),
        }
    }

    /// The elements of `span` of rank `rank`, counted from the start of the whole. Scratch chunk
    /// `s` is as long as chunk `s mod chunks`, and follows the rows of scratch before it.
    ///
    /// # Panics
    /// If there is no such chunk, or counts are by pairs and the span is scratch.
    pub fn of(&self, rank: usize, span: Span) -> Range<usize> {
        let row = span.chunk / self.chunks();
        let chunk = span.chunk % self.chunks();
        let starts = match (&self.0, span.buffer) {
            (Cut::Pairs(ranks), Buffer::Input) => &ranks[rank][0],
            (Cut::Pairs(ranks), Buffer::Output) => &ranks[rank][1],
            (_, Buffer::Input | Buffer::Output) => return self.range(span.chunk),
            (_, Buffer::Scratch) => {
                let range = self.range(chunk);
                let before = row * self.count();
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

/// Where parts of these lengths start, and at the end of the list where the last part ends.
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

/// Part `part` of `len` elements cut into `parts` parts, the longer parts first. Computed from
/// quotient and remainder, so that no product overflows.
///
/// ```
/// use maypole::schedule::part;
/// assert_eq!([0, 1, 2].map(|at| part(8, 3, at)), [0..3, 3..6, 6..8]);
/// ```
///
/// # Panics
/// If there are no parts.
pub const fn part(len: usize, parts: usize, part: usize) -> Range<usize> {
    let quotient = len / parts;
    let remainder = len % parts;
    let start = part * quotient + if part < remainder { part } else { remainder };
    start..start + quotient + (part < remainder) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{input, output};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parts_are_even_and_cover_everything(
            len in 0..1usize << 40,
            parts in 1..1000usize,
            at in 0..1000usize,
        ) {
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
        assert_eq!(layout.of(0, input(1)), 1..3);
        assert_eq!(layout.of(1, output(0)), 0..2);
        assert_eq!(layout.of(1, input(0)), 0..3);
        assert_eq!(layout.of(0, output(1)), 1..4);
        assert_eq!(layout.longest(), 4);
        assert_eq!(layout.count(), 7);
    }
}

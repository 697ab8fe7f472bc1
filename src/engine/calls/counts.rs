//! How many elements each rank has: one number for all ranks, or a number for each; and how long its
//! buffers must be for them.
//!
//! A gather, a scatter and an all-to-all have unequal counts only at the root or pairwise. A small
//! all-gather distributes them before the schedule runs. So every algorithm can run, and counts
//! that contradict one another are the same harmless error on every rank.

use crate::schedule::Layout;
use crate::schedule::collective::{Collective, HeldChunks};
use maypole_kernels::mix;
use std::fmt;

const COUNTS_SHOWN: usize = 32;

/// The counts of a call, in a form that is quick to compare.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum CallCount {
    /// Elements of the vector, or of every rank's block.
    Even(usize),
    /// The counts of this hash, which [`NamedCounts`] has until others are named. A collision of two
    /// hashes is as improbable as of two fingerprints, by which ranks compare their counts.
    Given(usize),
}

/// Counts that differ from rank to rank.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) enum RankCounts {
    /// Elements of each rank's block.
    Blocks(Vec<usize>),
    /// Elements that each rank sends to each rank: one row a sender.
    Pairs(Vec<Vec<usize>>),
}

impl RankCounts {
    pub(crate) fn layout(&self) -> Layout {
        match self {
            Self::Blocks(counts) => Layout::given(counts),
            Self::Pairs(counts) => Layout::pairs(counts),
        }
    }

    fn rows(&self) -> &[Vec<usize>] {
        match self {
            Self::Blocks(counts) => std::slice::from_ref(counts),
            Self::Pairs(counts) => counts,
        }
    }

    /// A hash of all counts, equal in every process.
    fn hash(&self) -> u64 {
        let rows = self.rows();
        let words = rows.iter().flat_map(|row| row.iter().copied().chain([usize::MAX]));
        words.fold(rows.len() as u64, |hash, count| mix(hash ^ count as u64))
    }
}

/// Prints the first counts. If there are more, adds their number and a hash, which distinguishes
/// counts with equal beginnings.
impl fmt::Display for RankCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.rows();
        let all: usize = rows.iter().map(Vec::len).sum();
        let shown = rows.iter().flatten().take(COUNTS_SHOWN).map(usize::to_string);
        f.write_str(&shown.collect::<Vec<_>>().join(" "))?;
        match all.saturating_sub(COUNTS_SHOWN) {
            0 => Ok(()),
            more => write!(f, " and {more} more of hash {:08x}", self.hash() >> 32),
        }
    }
}

/// The counts that were named last. A call is prepared right after its counts are named, and its
/// program needs them no more.
#[derive(Debug, Default)]
pub(crate) struct NamedCounts(Option<(usize, RankCounts)>);

impl NamedCounts {
    pub(crate) fn name(&mut self, counts: RankCounts) -> CallCount {
        let hash = counts.hash() as usize;
        self.0 = Some((hash, counts));
        CallCount::Given(hash)
    }

    /// The counts of a call that is about to be prepared.
    ///
    /// # Panics
    /// If others were named last.
    pub(crate) fn get(&self, hash: usize) -> &RankCounts {
        let last = self.0.as_ref().filter(|(last, _)| *last == hash);
        &last.expect("a call is prepared right after its counts are named").1
    }
}

/// The lengths of a rank's buffers, in elements.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BufferLengths {
    /// One buffer is input and output.
    InPlace(usize),
    Apart {
        input: usize,
        output: usize,
    },
}

impl BufferLengths {
    /// The elements of a vector, or of a rank's block, of a call that all ranks make with equal
    /// counts. A buffer that the rank does not need may have any length.
    ///
    /// # Errors
    /// Why there can be no such call.
    #[inline(always)]
    pub(crate) fn count(
        self,
        collective: Collective,
        rank: usize,
        world: usize,
    ) -> Result<usize, String> {
        let (brings, keeps) = (collective.input(rank), collective.output(rank));
        let blocks = |held| {
            if collective.is_blocked() && held == HeldChunks::All { world } else { 1 }
        };
        let (input, output) = match self {
            Self::InPlace(whole) => return of_block(whole, blocks(brings).max(blocks(keeps))),
            Self::Apart { input, output } => (input, output),
        };
        let count = match (brings, keeps) {
            (HeldChunks::Nothing, _) | (_, HeldChunks::One(_)) => output,
            _ => of_block(input, blocks(brings))?,
        };
        if brings != HeldChunks::Nothing {
            check_len("input", input, count * blocks(brings))?;
        }
        if keeps != HeldChunks::Nothing {
            check_len("output", output, count * blocks(keeps))?;
        }
        Ok(count)
    }
}

/// The elements of one of the `blocks` blocks of `len` elements.
#[inline(always)]
fn of_block(len: usize, blocks: usize) -> Result<usize, String> {
    if blocks == 1 {
        return Ok(len);
    }
    if len.is_multiple_of(blocks) { Ok(len / blocks) } else { Err(no_multiple(len, blocks)) }
}

#[cold]
fn no_multiple(len: usize, ranks: usize) -> String {
    format!("{len} elements are not a multiple of the {ranks} ranks")
}

/// Refuses a buffer of the wrong length.
#[inline(always)]
pub(crate) fn check_len(which: &str, len: usize, needed: usize) -> Result<(), String> {
    if len == needed { Ok(()) } else { Err(wrong_len(which, len, needed)) }
}

#[cold]
fn wrong_len(which: &str, len: usize, needed: usize) -> String {
    format!("the {which} has {len} elements and needs {needed}")
}

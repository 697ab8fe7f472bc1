//! How many elements each rank has: one number for all ranks, or a number for each; and how long its
//! buffers must be for them.
//!
//! A gather, a scatter and an all-to-all have unequal counts only at the root or pairwise. A small
//! all-gather distributes them before the schedule runs. So every algorithm can run, and counts
//! that contradict one another are the same harmless error on every rank.

use crate::schedule::Layout;
use crate::schedule::collective::{Collective, HeldChunks};
use maypole_kernels::mix;
use std::collections::HashMap;
use std::fmt;

const COUNTS_SHOWN: usize = 32;

/// The counts of a call, in a form that is quick to compare.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum CallCount {
    /// Elements of the vector, or of every rank's block.
    Even(usize),
    /// The counts that have this number in [`InternedCounts`].
    Given(u64),
}

impl CallCount {
    /// The index of an entry of [`InternedCounts`].
    fn number(self) -> Option<u64> {
        match self {
            Self::Even(_) => None,
            Self::Given(number) => Some(number),
        }
    }
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

    fn bytes(&self) -> usize {
        let counts = match self {
            Self::Blocks(counts) => counts.len(),
            Self::Pairs(counts) => counts.iter().map(|row| row.len() + 3).sum(),
        };
        counts * size_of::<usize>()
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

/// Counts, and the number of programs that use them.
#[derive(Debug)]
struct Interned {
    counts: RankCounts,
    programs: usize,
}

/// The counts that programs were made for, and those that were named last. Equal counts have one
/// number, which no other counts have at the same time.
#[derive(Debug, Default)]
pub(crate) struct InternedCounts {
    /// By hash, or by the next number that other counts do not have.
    known: HashMap<u64, Interned>,
    /// The number of the counts that were named last. They have no program yet if their call is
    /// about to be prepared.
    latest: Option<u64>,
}

impl InternedCounts {
    pub(crate) fn intern(&mut self, counts: RankCounts) -> CallCount {
        let mut number = counts.hash();
        while self.known.get(&number).is_some_and(|other| other.counts != counts) {
            number = number.wrapping_add(1);
        }
        self.known.entry(number).or_insert(Interned { counts, programs: 0 });
        if let Some(before) = self.latest.replace(number) {
            self.forget_unused(before);
        }
        CallCount::Given(number)
    }

    /// # Panics
    /// If `number` has no counts.
    pub(crate) fn get(&self, number: u64) -> &RankCounts {
        &self.known[&number].counts
    }

    pub(crate) fn hash(&self, number: u64) -> u64 {
        self.get(number).hash()
    }

    pub(super) fn bytes(&self, count: CallCount) -> usize {
        count.number().map_or(0, |number| self.get(number).bytes())
    }

    /// Keeps the counts of a call until [`release`](Self::release): it has a program now.
    pub(super) fn retain(&mut self, count: CallCount) {
        if let Some(number) = count.number()
            && let Some(interned) = self.known.get_mut(&number)
        {
            interned.programs += 1;
        }
    }

    /// Drops the counts of a call whose program was dropped, unless another program has them or
    /// they were named last.
    pub(super) fn release(&mut self, count: CallCount) {
        if let Some(number) = count.number()
            && let Some(interned) = self.known.get_mut(&number)
        {
            interned.programs -= 1;
            self.forget_unused(number);
        }
    }

    fn forget_unused(&mut self, number: u64) {
        let is_used = self.known.get(&number).is_none_or(|interned| interned.programs > 0);
        if is_used || self.latest == Some(number) {
            return;
        }
        self.known.remove(&number);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn number(count: CallCount) -> u64 {
        let CallCount::Given(number) = count else { panic!("{count:?} has no number") };
        number
    }

    #[test]
    fn counts_without_a_program_last_until_others_are_named() {
        let mut counts = InternedCounts::default();
        for length in 0..1000 {
            let named = number(counts.intern(RankCounts::Blocks(vec![length; 3])));
            assert_eq!(counts.get(named), &RankCounts::Blocks(vec![length; 3]));
            assert_eq!(counts.known.len(), 1);
        }
    }

    #[test]
    fn counts_last_as_long_as_one_of_their_programs() {
        let mut counts = InternedCounts::default();
        let kept = counts.intern(RankCounts::Blocks(vec![1, 2]));
        counts.retain(kept);
        counts.retain(kept);
        counts.intern(RankCounts::Pairs(vec![vec![7; 2]; 2]));
        assert_eq!(counts.intern(RankCounts::Blocks(vec![1, 2])), kept);
        counts.intern(RankCounts::Blocks(vec![9]));
        counts.release(kept);
        assert!(counts.known.contains_key(&number(kept)));
        counts.release(kept);
        assert!(!counts.known.contains_key(&number(kept)));
        let others = counts.intern(RankCounts::Blocks(vec![2, 1]));
        assert_ne!(others, kept, "other counts have another number");
    }
}

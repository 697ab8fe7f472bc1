//! How many elements each rank has: one number for all ranks, or a number for each.

use crate::schedule::Layout;
use maypole_kernels::mix;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// How many counts are printed.
const COUNTS_SHOWN: usize = 32;

/// The counts of a call, in a form that is quick to compare.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum CallCount {
    /// Elements of the vector, or of every rank's block.
    Even(usize),
    /// The counts that have this number in [`InternedCounts`].
    Given(u32),
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

    /// A hash of all counts, equal in every process.
    fn hash(&self) -> u64 {
        let rows = match self {
            Self::Blocks(counts) => std::slice::from_ref(counts),
            Self::Pairs(counts) => counts,
        };
        let words = rows.iter().flat_map(|row| row.iter().copied().chain([usize::MAX]));
        words.fold(rows.len() as u64, |hash, count| mix(hash ^ count as u64))
    }
}

/// Prints the first counts, and says how many more there are. Counts that print alike and differ
/// further on are told apart by their hash.
impl fmt::Display for RankCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = match self {
            Self::Blocks(counts) => std::slice::from_ref(counts),
            Self::Pairs(counts) => counts,
        };
        let all: usize = rows.iter().map(Vec::len).sum();
        let shown = rows.iter().flatten().take(COUNTS_SHOWN).map(usize::to_string);
        f.write_str(&shown.collect::<Vec<_>>().join(" "))?;
        match all.saturating_sub(COUNTS_SHOWN) {
            0 => Ok(()),
            more => write!(f, " and {more} more of hash {:08x}", self.hash() >> 32),
        }
    }
}

/// All counts that calls have passed so far. Equal counts have one number.
#[derive(Debug, Default)]
pub(crate) struct InternedCounts {
    known: Vec<Arc<RankCounts>>,
    numbers: HashMap<Arc<RankCounts>, u32>,
}

impl InternedCounts {
    pub(crate) fn intern(&mut self, counts: RankCounts) -> CallCount {
        if let Some(number) = self.numbers.get(&counts) {
            return CallCount::Given(*number);
        }
        let number = self.known.len() as u32;
        let counts = Arc::new(counts);
        self.known.push(Arc::clone(&counts));
        self.numbers.insert(counts, number);
        CallCount::Given(number)
    }

    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    /// # Panics
    /// If no such counts were numbered.
    pub(crate) fn get(&self, number: u32) -> &RankCounts {
        &self.known[number as usize]
    }

    pub(crate) fn hash(&self, number: u32) -> u64 {
        self.get(number).hash()
    }
}

//! How many elements each rank has: one number, or many.

use crate::comm::engine::call::mix;
use crate::schedule::Layout;
use std::collections::HashMap;
use std::sync::Arc;

/// The counts of a call, small enough to compare calls by.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Count {
    /// Elements of the vector, or of everybody's block.
    Even(usize),
    /// The counts with this number in [`Interned`].
    Given(u32),
}

/// Counts that differ.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Counts {
    /// Elements of each rank's block.
    Blocks(Vec<usize>),
    /// Elements that each rank has for each rank.
    Pairs(Vec<Vec<usize>>),
}

impl Counts {
    pub(crate) fn layout(&self) -> Layout {
        match self {
            Self::Blocks(counts) => Layout::given(counts),
            Self::Pairs(counts) => Layout::pairs(counts),
        }
    }

    /// All of them, condensed.
    fn hash(&self) -> u64 {
        let rows = match self {
            Self::Blocks(counts) => std::slice::from_ref(counts),
            Self::Pairs(counts) => counts,
        };
        let words = rows.iter().flat_map(|row| row.iter().copied().chain([usize::MAX]));
        words.fold(rows.len() as u64, |hash, count| mix(hash ^ count as u64))
    }
}

/// Counts that were given, each numbered once.
#[derive(Debug, Default)]
pub(crate) struct Interned {
    known: Vec<Arc<Counts>>,
    numbers: HashMap<Arc<Counts>, u32>,
}

impl Interned {
    pub(crate) fn number(&mut self, counts: Counts) -> Count {
        if let Some(number) = self.numbers.get(&counts) {
            return Count::Given(*number);
        }
        let (counts, number) = (Arc::new(counts), self.known.len() as u32);
        self.known.push(Arc::clone(&counts));
        self.numbers.insert(counts, number);
        Count::Given(number)
    }

    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    /// # Panics
    /// If no such counts were numbered.
    pub(crate) fn get(&self, number: u32) -> &Counts {
        &self.known[number as usize]
    }

    pub(crate) fn hash(&self, number: u32) -> u64 {
        self.get(number).hash()
    }
}

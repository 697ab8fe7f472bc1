//! Sets of contributions, as bits where they are of one chunk: those of a sum among 1,024 ranks take 128 bytes.

use crate::schedule::collective::Symbol;
use std::borrow::Cow;

/// A set that is not empty.
pub(super) enum Contributions {
    One(Symbol),
    /// Of one chunk: a bit for each rank.
    Ranks {
        chunk: usize,
        bits: Vec<u64>,
    },
    /// Of several chunks, sorted. Only a flawed sum has them, and a barrier.
    Mixed(Vec<Symbol>),
}

const BITS: usize = u64::BITS as usize;

impl Contributions {
    /// The first that `other` has, too.
    pub(super) fn shared(&self, other: &Self) -> Option<Symbol> {
        let (Some((chunk, bits)), Some((theirs, others))) = (self.bits(), other.bits()) else {
            let others = other.sorted();
            return self.sorted().into_iter().find(|it| others.binary_search(it).is_ok());
        };
        let both = |(a, b): (&u64, &u64)| a & b;
        let common = bits.iter().zip(&*others).map(both);
        let (word, found) = common.enumerate().find(|(_, common)| *common != 0)?;
        let rank = word * BITS + found.trailing_zeros() as usize;
        (chunk == theirs).then_some(Symbol { rank, chunk })
    }

    /// The union of the two.
    pub(super) fn joined(&self, other: &Self) -> Self {
        match (self.bits(), other.bits()) {
            (Some((chunk, ours)), Some((its, others))) if chunk == its => {
                let is_longer = ours.len() >= others.len();
                let (long, short) = if is_longer { (ours, others) } else { (others, ours) };
                let mut bits = long.into_owned();
                bits.iter_mut().zip(&*short).for_each(|(a, b)| *a |= b);
                Self::Ranks { chunk, bits }
            }
            _ => {
                let mut all = [self.sorted(), other.sorted()].concat();
                all.sort_unstable();
                all.dedup();
                Self::Mixed(all)
            }
        }
    }

    /// True if they are those of all ranks to this chunk, and no others.
    pub(super) fn are_all(&self, world: usize, of: usize) -> bool {
        let Self::Ranks { chunk, bits } = self else { return false };
        let full = |(at, word): (usize, &u64)| match (world - at * BITS).min(BITS) {
            BITS => *word == u64::MAX,
            ranks => *word == (1 << ranks) - 1,
        };
        *chunk == of && bits.len() == world.div_ceil(BITS) && bits.iter().enumerate().all(full)
    }

    /// All of them, sorted.
    pub(super) fn sorted(&self) -> Vec<Symbol> {
        match self {
            Self::One(symbol) => vec![*symbol],
            Self::Mixed(symbols) => symbols.clone(),
            Self::Ranks { chunk, bits } => {
                let is_set = |rank: &usize| bits[rank / BITS] >> (rank % BITS) & 1 == 1;
                let of = |rank| Symbol { rank, chunk: *chunk };
                (0..bits.len() * BITS).filter(is_set).map(of).collect()
            }
        }
    }

    /// The one chunk that they are of, with a bit for each rank.
    fn bits(&self) -> Option<(usize, Cow<'_, [u64]>)> {
        match self {
            Self::One(Symbol { rank, chunk }) => {
                let mut bits = vec![0; rank / BITS + 1];
                bits[rank / BITS] = 1 << (rank % BITS);
                Some((*chunk, bits.into()))
            }
            Self::Ranks { chunk, bits } => Some((*chunk, bits.into())),
            Self::Mixed(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn made(of: &BTreeSet<(usize, usize)>) -> Contributions {
        let mut all = of.iter().map(|(rank, chunk)| Symbol { rank: *rank, chunk: *chunk });
        let first = Contributions::One(all.next().unwrap());
        all.fold(first, |set, symbol| set.joined(&Contributions::One(symbol)))
    }

    proptest! {
        #[test]
        fn they_are_sets(
            chunks in 1..3_usize,
            a in proptest::collection::btree_set((0..200_usize, 0..2_usize), 1..40),
            b in proptest::collection::btree_set((0..200_usize, 0..2_usize), 1..40),
        ) {
            let [a, b] = [a, b].map(|set| set.into_iter().map(|(r, c)| (r, c % chunks)).collect());
            let pairs = |set: &Contributions| {
                set.sorted().iter().map(|it| (it.rank, it.chunk)).collect::<BTreeSet<_>>()
            };
            let (x, y) = (made(&a), made(&b));
            prop_assert_eq!(pairs(&x), a.clone());
            prop_assert_eq!(pairs(&x.joined(&y)), &a | &b);
            for world in [2, 64, 130] {
                let all = (0..world).map(|rank| (rank, 0)).collect::<BTreeSet<_>>();
                prop_assert_eq!(x.are_all(world, 0), a == all);
                prop_assert!(made(&all).are_all(world, 0));
                prop_assert!(!made(&all).are_all(world + 1, 0) && !made(&all).are_all(world, 1));
            }
            let shared = x.shared(&y).map(|it| (it.rank, it.chunk));
            prop_assert_eq!(shared, (&a & &b).first().copied());
            prop_assert!(x.sorted().is_sorted());
        }
    }
}

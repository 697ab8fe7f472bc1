//! The table: the algorithms, their names and the collectives that they implement.

use super::hierarchical::Levels;
use crate::schedule::Symmetry;
use crate::schedule::collective::Collective;
use crate::schedule::hosts::Boards;
use std::fmt;
use std::str::FromStr;

/// Declares the algorithms, each with its name, in the order of the table. Those before the semicolon do
/// not depend on hosts. One list makes all three, so that none of them lacks an algorithm.
macro_rules! algorithms {
    (
        $($(#[$about:meta])* $flat:ident = $flat_name:literal,)*;
        $($(#[$host_about:meta])* $by_host:ident = $host_name:literal,)*
    ) => {
        /// An algorithm that implements some of the collectives.
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        #[non_exhaustive]
        pub enum Algorithm {
            $($(#[$about])* $flat,)*
            $($(#[$host_about])* $by_host,)*
        }

        impl Algorithm {
            /// Every algorithm that does not depend on hosts, in the order of the table; of two that
            /// cost the same, the tuner takes the later one. [`Hierarchical`](Self::Hierarchical),
            /// which depends on the host of each rank, is not among them.
            pub const ALL: [Self; [$(Self::$flat),*].len()] = [$(Self::$flat),*];

            /// Its name on the command line and in tables: `ring`, `one-shot` ...
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$flat => $flat_name,)*
                    $(Self::$by_host => $host_name,)*
                }
            }

            /// All algorithms that can be chosen by name: [`ALL`](Self::ALL), and
            /// [`Hierarchical`](Self::Hierarchical).
            pub fn named() -> impl Iterator<Item = Self> {
                Self::ALL.into_iter().chain([$(Self::$by_host),*])
            }
        }
    };
}

algorithms! {
    /// Neighbours in a ring: reduce-scatter, all-gather, all-reduce; a pipelined chain for
    /// broadcast, reduce and scans.
    Ring = "ring",
    /// Pipelined binary tree: broadcast, reduce, all-reduce.
    Tree = "tree",
    /// Two binary trees, half of the vector on each: broadcast, reduce, all-reduce.
    DoubleTree = "double-tree",
    /// Binomial tree: broadcast, reduce, gather, scatter.
    Binomial = "binomial",
    /// Exchanges at doubling distance: all-reduce, all-gather, scans.
    RecursiveDoubling = "recursive-doubling",
    /// Exchanges of halves, and back: all-reduce, reduce-scatter.
    HalvingDoubling = "halving-doubling",
    /// Rounds of doubling distance around a ring: all-gather, all-to-all.
    Bruck = "bruck",
    /// Scatter, then all-gather: broadcast.
    ScatterAllGather = "scatter-all-gather",
    /// Reduce-scatter, then gather: reduce.
    ReduceScatterGather = "reduce-scatter-gather",
    /// Pairwise exchange: all-to-all, reduce-scatter.
    Pairwise = "pairwise",
    /// Every rank sends its whole vector to all others: all-reduce, barrier.
    OneShot = "one-shot",
    /// Direct reduce-scatter, then direct all-gather: all-reduce.
    TwoShot = "two-shot",
    /// Every rank sends each block straight to its receiver: all-gather, reduce-scatter,
    /// all-to-all.
    Direct = "direct",
    /// The root exchanges messages with every rank: broadcast, reduce, gather, scatter.
    Linear = "linear",
    /// Rounds of doubling distance: barrier.
    Dissemination = "dissemination",
    ;
    /// One algorithm within hosts, another across: all but all-to-all and scans.
    Hierarchical = "hierarchical",
}

impl Algorithm {
    /// The collectives that it implements, rooted ones at root 0 (it implements them at every
    /// root).
    pub const fn collectives(self) -> &'static [Collective] {
        use Collective::*;
        const BROADCAST: Collective = Broadcast { root: 0 };
        const REDUCE: Collective = Reduce { root: 0 };
        const GATHER: Collective = Gather { root: 0 };
        const SCATTER: Collective = Scatter { root: 0 };
        match self {
            Self::Ring => {
                &[BROADCAST, REDUCE, AllReduce, AllGather, ReduceScatter, Scan, ExclusiveScan]
            }
            Self::Tree | Self::DoubleTree => &[BROADCAST, REDUCE, AllReduce],
            Self::Binomial | Self::Linear => &[BROADCAST, REDUCE, GATHER, SCATTER],
            Self::RecursiveDoubling => &[AllReduce, AllGather, Scan, ExclusiveScan],
            Self::HalvingDoubling => &[AllReduce, ReduceScatter],
            Self::Bruck => &[AllGather, AllToAll],
            Self::ScatterAllGather => &[BROADCAST],
            Self::ReduceScatterGather => &[REDUCE],
            Self::Pairwise => &[AllToAll, ReduceScatter],
            Self::OneShot => &[AllReduce, Barrier],
            Self::TwoShot => &[AllReduce],
            Self::Direct => &[AllGather, ReduceScatter, AllToAll],
            Self::Dissemination => &[Barrier],
            Self::Hierarchical => {
                &[BROADCAST, REDUCE, AllReduce, GATHER, AllGather, SCATTER, ReduceScatter, Barrier]
            }
        }
    }

    /// True if it implements `collective`, whatever its root.
    ///
    /// ```
    /// use maypole::{algorithms::Algorithm, schedule::collective::Collective};
    /// assert!(Algorithm::Ring.supports(Collective::Broadcast { root: 3 }));
    /// assert!(!Algorithm::Ring.supports(Collective::Barrier));
    /// ```
    pub fn supports(self, collective: Collective) -> bool {
        self.collectives().contains(&collective.with_root(0))
    }
}

impl Algorithm {
    /// How the schedules of all ranks on `boards` follow from those of one board, if they do: at the same
    /// place of its list, the rank at the same place of each board does the same with spans that
    /// correspond. (Only the order of the two sides of a combination may differ, because it follows the
    /// ranks.) Then the schedules of one board are lowered instead of all.
    ///
    /// ```
    /// use maypole::schedule::{Symmetry, collective::Collective, hosts::Boards};
    /// use maypole::algorithms::Algorithm;
    /// let of = |algorithm: Algorithm, boards: &[usize]| {
    ///     algorithm.symmetry(Collective::ReduceScatter, &Boards::new(boards))
    /// };
    /// assert_eq!(of(Algorithm::Ring, &[0, 0, 1, 1, 2, 2]), Some(Symmetry::Rotation));
    /// assert_eq!(of(Algorithm::Ring, &[0, 0, 1, 2, 2]), None);
    /// assert_eq!(of(Algorithm::HalvingDoubling, &[0, 1, 2, 3]), Some(Symmetry::ExclusiveOr));
    /// assert_eq!(of(Algorithm::HalvingDoubling, &[0, 1, 2]), None);
    /// assert_eq!(of(Algorithm::Direct, &[0, 1, 2, 3]), None);
    /// ```
    pub fn symmetry(self, collective: Collective, boards: &Boards) -> Option<Symmetry> {
        boards.width()?;
        match self {
            Self::Hierarchical if boards.world() > 1 && self.supports(collective) => {
                let across = Levels::usual(collective, boards.count()).across;
                across.symmetry_of_ranks(collective, boards.count())
            }
            _ => self.symmetry_of_ranks(collective, boards.world()),
        }
    }

    /// The symmetry where each of `world` ranks has a board of its own.
    pub(super) fn symmetry_of_ranks(
        self,
        collective: Collective,
        world: usize,
    ) -> Option<Symmetry> {
        use Collective::*;
        let rotates = match self {
            Self::Ring => matches!(collective, AllReduce | AllGather | ReduceScatter),
            Self::Direct => matches!(collective, AllGather | AllToAll),
            Self::Pairwise | Self::Bruck | Self::Dissemination => self.supports(collective),
            _ => false,
        };
        let halves = match self {
            Self::HalvingDoubling => matches!(collective, AllReduce | ReduceScatter),
            Self::RecursiveDoubling => matches!(collective, AllReduce | AllGather),
            _ => false,
        };
        match rotates {
            true => Some(Symmetry::Rotation),
            false => (halves && world.is_power_of_two()).then_some(Symmetry::ExclusiveOr),
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// No algorithm has this name.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "no algorithm is called {name:?}; there are {}",
    Algorithm::named().map(Algorithm::name).collect::<Vec<_>>().join(", ")
)]
pub struct UnknownAlgorithm {
    /// The name that was given.
    pub name: String,
}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Self, UnknownAlgorithm> {
        let found = Self::named().find(|algorithm| algorithm.name() == name);
        found.ok_or_else(|| UnknownAlgorithm { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for algorithm in Algorithm::named() {
            assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
        }
        assert!("one shot".parse::<Algorithm>().unwrap_err().to_string().contains("one-shot"));
    }
}

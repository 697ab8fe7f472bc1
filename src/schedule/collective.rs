//! The contract of a collective: which chunks each rank holds before, and must hold after.
//!
//! Every collective is described over one *whole*: a vector cut into chunks. [`HeldChunks`] lists
//! the chunks that a rank's input and output buffers hold. In place, a rank's input and output are
//! parts of one buffer, and chunk `c` of the input *is* chunk `c` of the output. So one rule serves
//! every collective:
//!
//! | collective | input | output | chunk `c` of the output ends as |
//! |---|---|---|---|
//! | broadcast | all at the root | all | the root's chunk `c` |
//! | reduce | all | all at the root | chunk `c` of all ranks, combined |
//! | all-reduce | all | all | chunk `c` of all ranks, combined |
//! | gather | chunk `rank` | all at the root | rank `c`'s chunk |
//! | all-gather | chunk `rank` | all | rank `c`'s chunk |
//! | scatter | all at the root | chunk `rank` | the root's chunk `c` |
//! | reduce-scatter | all | chunk `rank` | chunk `c` of all ranks, combined |
//! | all-to-all | all | all | rank `c`'s chunk `rank` |
//! | scan | all | all | chunk `c` of ranks `0..=rank`, combined |
//! | exclusive scan | all | all, but nothing at rank 0 | chunk `c` of ranks `0..rank`, combined |
//! | barrier | one empty chunk | one empty chunk | a token to which every rank contributed |

use std::fmt;
use std::str::FromStr;

/// A collective: a call that a group of ranks makes together.
///
/// The pictures are values of three ranks, with sums, as `maypole draw --values` prints them.
///
/// Exhaustive on purpose: every reader must handle each collective.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Collective {
    /// The root's vector goes to all ranks.
    ///
    /// ```text
    /// broadcast, n = 3
    ///         before     after
    /// rank 0  1  2  3    1  2  3
    /// rank 1  .  .  .    1  2  3
    /// rank 2  .  .  .    1  2  3
    /// ```
    Broadcast {
        /// The rank whose vector it is.
        root: usize,
    },
    /// The vectors of all ranks are combined at the root.
    ///
    /// ```text
    /// reduce, n = 3
    ///         before           after
    /// rank 0    1    2    3    111  222  333
    /// rank 1   10   20   30      .    .    .
    /// rank 2  100  200  300      .    .    .
    /// ```
    Reduce {
        /// The rank that gets the result.
        root: usize,
    },
    /// The vectors of all ranks are combined on every rank.
    ///
    /// ```text
    /// all_reduce, n = 3
    ///         before           after
    /// rank 0    1    2    3    111  222  333
    /// rank 1   10   20   30    111  222  333
    /// rank 2  100  200  300    111  222  333
    /// ```
    AllReduce,
    /// The blocks of all ranks are collected at the root, in rank order.
    ///
    /// ```text
    /// gather, n = 3
    ///         before           after
    /// rank 0    1    .    .      1   20  300
    /// rank 1    .   20    .      .    .    .
    /// rank 2    .    .  300      .    .    .
    /// ```
    Gather {
        /// The rank that gets the blocks.
        root: usize,
    },
    /// The blocks of all ranks are collected on every rank, in rank order.
    ///
    /// ```text
    /// all_gather, n = 3
    ///         before           after
    /// rank 0    1    .    .      1   20  300
    /// rank 1    .   20    .      1   20  300
    /// rank 2    .    .  300      1   20  300
    /// ```
    AllGather,
    /// Block `r` of the root's vector goes to rank `r`.
    ///
    /// ```text
    /// scatter, n = 3
    ///         before     after
    /// rank 0  1  2  3    1  .  .
    /// rank 1  .  .  .    .  2  .
    /// rank 2  .  .  .    .  .  3
    /// ```
    Scatter {
        /// The rank whose vector it is.
        root: usize,
    },
    /// The vectors of all ranks are combined; block `r` of the result goes to rank `r`.
    ///
    /// ```text
    /// reduce_scatter, n = 3
    ///         before           after
    /// rank 0    1    2    3    111    .    .
    /// rank 1   10   20   30      .  222    .
    /// rank 2  100  200  300      .    .  333
    /// ```
    ReduceScatter,
    /// Block `r` of rank `s` becomes block `s` of rank `r`.
    ///
    /// ```text
    /// all_to_all, n = 3
    ///         before           after
    /// rank 0    1    2    3      1   10  100
    /// rank 1   10   20   30      2   20  200
    /// rank 2  100  200  300      3   30  300
    /// ```
    AllToAll,
    /// Rank `r` gets the vectors of ranks `0..=r`, combined: running totals.
    ///
    /// ```text
    /// scan, n = 3
    ///         before           after
    /// rank 0    1    2    3      1    2    3
    /// rank 1   10   20   30     11   22   33
    /// rank 2  100  200  300    111  222  333
    /// ```
    Scan,
    /// Rank `r` gets the vectors of ranks `0..r`, combined. Of lengths, this is where each rank's
    /// part begins. Rank 0 gets nothing, because no rank is before it and not every operation has a
    /// neutral element.
    ///
    /// ```text
    /// exclusive_scan, n = 3
    ///         before           after
    /// rank 0    1    2    3      .    .    .
    /// rank 1   10   20   30      1    2    3
    /// rank 2  100  200  300     11   22   33
    /// ```
    ExclusiveScan,
    /// No rank leaves before all ranks have entered.
    ///
    /// ```text
    /// barrier, n = 3
    ///         before  after
    /// rank 0    1     111
    /// rank 1   10     111
    /// rank 2  100     111
    /// ```
    Barrier,
}

/// Which chunks of the whole a buffer holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HeldChunks {
    /// None: the rank needs no such buffer.
    Nothing,
    /// This chunk alone.
    One(usize),
    /// Every chunk.
    All,
}

impl HeldChunks {
    /// True if the buffer holds chunk `chunk`.
    pub fn contains(self, chunk: usize) -> bool {
        match self {
            Self::Nothing => false,
            Self::One(c) => c == chunk,
            Self::All => true,
        }
    }
}

/// One contribution: chunk `chunk` of rank `rank`'s input.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Symbol {
    /// The rank whose input it is.
    pub rank: usize,
    /// The chunk of that input.
    pub chunk: usize,
}

impl fmt::Display for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "chunk {} of rank {}", self.chunk, self.rank)
    }
}

impl Collective {
    /// Every collective once, rooted ones at `root`.
    pub const fn all(root: usize) -> [Self; 11] {
        [
            Self::Broadcast { root },
            Self::Reduce { root },
            Self::AllReduce,
            Self::Gather { root },
            Self::AllGather,
            Self::Scatter { root },
            Self::ReduceScatter,
            Self::AllToAll,
            Self::Scan,
            Self::ExclusiveScan,
            Self::Barrier,
        ]
    }

    /// The name in JSON and in error messages: `all_reduce`, `reduce_scatter` ...
    #[inline]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Broadcast { .. } => "broadcast",
            Self::Reduce { .. } => "reduce",
            Self::AllReduce => "all_reduce",
            Self::Gather { .. } => "gather",
            Self::AllGather => "all_gather",
            Self::Scatter { .. } => "scatter",
            Self::ReduceScatter => "reduce_scatter",
            Self::AllToAll => "all_to_all",
            Self::Scan => "scan",
            Self::ExclusiveScan => "exclusive_scan",
            Self::Barrier => "barrier",
        }
    }

    /// The name on the command line: `all-reduce`, `reduce-scatter` ...
    pub fn option_name(self) -> String {
        self.name().replace('_', "-")
    }

    /// The names of all collectives on the command line, in the order of [`all`](Self::all),
    /// separated by commas, for help texts.
    pub fn option_names() -> String {
        Self::all(0).map(Self::option_name).join(", ")
    }

    /// The root, for the collectives that have one.
    #[inline]
    pub const fn root(self) -> Option<usize> {
        match self {
            Self::Broadcast { root }
            | Self::Reduce { root }
            | Self::Gather { root }
            | Self::Scatter { root } => Some(root),
            _ => None,
        }
    }

    /// The same collective at another root; rootless ones stay as they are.
    pub const fn with_root(self, root: usize) -> Self {
        match self {
            Self::Broadcast { .. } => Self::Broadcast { root },
            Self::Reduce { .. } => Self::Reduce { root },
            Self::Gather { .. } => Self::Gather { root },
            Self::Scatter { .. } => Self::Scatter { root },
            _ => self,
        }
    }

    /// True if elements are combined, so that a reduction operation matters.
    #[inline]
    pub const fn reduces(self) -> bool {
        matches!(
            self,
            Self::Reduce { .. }
                | Self::AllReduce
                | Self::ReduceScatter
                | Self::Scan
                | Self::ExclusiveScan
        )
    }

    /// True if the whole is one block a rank, so that it has as many chunks as there are ranks.
    /// The other collectives let the algorithm choose how to cut the vector.
    #[inline]
    pub const fn is_blocked(self) -> bool {
        matches!(
            self,
            Self::Gather { .. }
                | Self::AllGather
                | Self::Scatter { .. }
                | Self::ReduceScatter
                | Self::AllToAll
        )
    }

    /// The chunks that `rank`'s input holds before the call.
    #[inline]
    pub const fn input(self, rank: usize) -> HeldChunks {
        match self {
            Self::Broadcast { root } | Self::Scatter { root } if rank != root => {
                HeldChunks::Nothing
            }
            Self::Gather { .. } | Self::AllGather => HeldChunks::One(rank),
            Self::Broadcast { .. } | Self::Scatter { .. } | Self::Reduce { .. } => HeldChunks::All,
            Self::AllReduce | Self::ReduceScatter | Self::AllToAll => HeldChunks::All,
            Self::Scan | Self::ExclusiveScan | Self::Barrier => HeldChunks::All,
        }
    }

    /// The chunks that `rank`'s output must hold after the call.
    #[inline]
    pub const fn output(self, rank: usize) -> HeldChunks {
        match self {
            Self::Reduce { root } | Self::Gather { root } if rank != root => HeldChunks::Nothing,
            Self::Scatter { .. } | Self::ReduceScatter => HeldChunks::One(rank),
            Self::ExclusiveScan if rank == 0 => HeldChunks::Nothing,
            Self::Broadcast { .. } | Self::Reduce { .. } | Self::Gather { .. } => HeldChunks::All,
            Self::AllReduce | Self::AllGather | Self::AllToAll => HeldChunks::All,
            Self::Scan | Self::ExclusiveScan | Self::Barrier => HeldChunks::All,
        }
    }

    /// The contributions that chunk `chunk` of `rank`'s output must be made of, sorted, each
    /// exactly once. (A barrier's token may hold a contribution more than once.)
    ///
    /// ```
    /// use maypole::schedule::collective::{Collective, Symbol};
    /// let before = |rank| Collective::ExclusiveScan.result(4, rank, 0);
    /// assert_eq!(before(2), [Symbol { rank: 0, chunk: 0 }, Symbol { rank: 1, chunk: 0 }]);
    /// assert!(before(0).is_empty());
    /// ```
    pub fn result(self, world: usize, rank: usize, chunk: usize) -> Vec<Symbol> {
        match self {
            Self::Broadcast { root } | Self::Scatter { root } => vec![Symbol { rank: root, chunk }],
            Self::Gather { .. } | Self::AllGather => vec![Symbol { rank: chunk, chunk }],
            Self::AllToAll => vec![Symbol { rank: chunk, chunk: rank }],
            Self::Reduce { .. } | Self::AllReduce | Self::ReduceScatter | Self::Barrier => {
                (0..world).map(|rank| Symbol { rank, chunk }).collect()
            }
            Self::Scan => (0..=rank).map(|rank| Symbol { rank, chunk }).collect(),
            Self::ExclusiveScan => (0..rank).map(|rank| Symbol { rank, chunk }).collect(),
        }
    }

    /// True if a message may carry one chunk and be received as another: all-to-all moves chunk `s`
    /// of rank `r` to chunk `r` of rank `s`. In every other collective a chunk keeps its number,
    /// and so its length.
    pub const fn transposes(self) -> bool {
        matches!(self, Self::AllToAll)
    }
}

/// No collective has this name.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("no collective is called {name:?}; there are {}", Collective::option_names())]
pub struct UnknownCollective {
    /// The name that was given.
    pub name: String,
}

impl FromStr for Collective {
    type Err = UnknownCollective;

    /// Reads `all-reduce`, `all_reduce` and `allreduce` alike. Rooted collectives get root 0.
    fn from_str(name: &str) -> Result<Self, UnknownCollective> {
        let plain = |name: &str| name.replace(['-', '_'], "");
        let found = Self::all(0).into_iter().find(|it| plain(it.name()) == plain(name));
        found.ok_or_else(|| UnknownCollective { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for collective in Collective::all(0) {
            assert_eq!(collective.name().parse(), Ok(collective));
            assert_eq!(collective.option_name().parse(), Ok(collective));
        }
        let unknown = "sum".parse::<Collective>().unwrap_err().to_string();
        assert!(unknown.contains("exclusive-scan"), "{unknown}");
    }
}

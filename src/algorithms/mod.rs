//! The algorithms: pure functions from (collective, world, rank) to a [`Schedule`].
//!
//! One file an idea. Each opens with its picture for four ranks, printed by
//! [`draw`](crate::schedule::draw), then what it costs, when to choose it, and where it comes from.
//! Costs are in `a` (seconds a message is under way), `b` (seconds a byte) and `S` (bytes of the
//! whole); `n` is the world and `lg` the logarithm to base two.
//!
//! | algorithm | collectives |
//! |---|---|
//! | [`ring`] | broadcast and reduce (a chain), all-reduce, all-gather, reduce-scatter; [scans](scan) |
//! | [`tree`] | broadcast, reduce, all-reduce |
//! | [`double_tree`] | broadcast, reduce, all-reduce |
//! | [`binomial`] | broadcast, reduce, gather, scatter |
//! | [`doubling`] | all-reduce, all-gather; [scans](scan) |
//! | [`halving`] | all-reduce, reduce-scatter |
//! | [`bruck`] | all-gather, all-to-all |
//! | [`scatter_gather`] | broadcast, reduce |
//! | [`pairwise`] | all-to-all, reduce-scatter |
//! | [`direct`] | all-reduce in one or two shots; all-gather, reduce-scatter, all-to-all |
//! | [`linear`] | broadcast, reduce, gather, scatter by the root itself |
//! | [`dissemination`] | barrier |
//! | [`hierarchical`] | two of them, within hosts and across: all but all-to-all and scans |
//! | [`reordered`] | any of them with the ranks in another order, or in several at once |
//!
//! Where results are combined, the order is part of the algorithm: the contributions of the ranks
//! meet in the order the steps say, and [`verify`](crate::schedule::verify) derives whether that is
//! the order of the ranks.

pub mod binomial;
pub mod bruck;
mod compose;
pub mod direct;
pub mod dissemination;
pub mod double_tree;
pub mod doubling;
pub mod halving;
pub mod hierarchical;
pub mod linear;
pub mod pairwise;
pub mod reordered;
pub mod ring;
pub mod scan;
pub mod scatter_gather;
pub mod surplus;
pub mod tree;

use crate::schedule::collective::{Collective, HeldChunks};
use crate::schedule::{Schedule, Span, Step, input, output};
use hierarchical::Levels;
use std::fmt;
use std::str::FromStr;

/// How a collective is done.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Algorithm {
    /// Neighbours in a ring: reduce-scatter, all-gather, all-reduce; a pipelined chain for
    /// broadcast, reduce and scans.
    Ring,
    /// Pipelined binary tree: broadcast, reduce, all-reduce.
    Tree,
    /// Two binary trees, half of the vector on each: broadcast, reduce, all-reduce.
    DoubleTree,
    /// Binomial tree: broadcast, reduce, gather, scatter.
    Binomial,
    /// Exchanges at doubling distance: all-reduce, all-gather, scans.
    RecursiveDoubling,
    /// Exchanges of halves, and back: all-reduce, reduce-scatter.
    HalvingDoubling,
    /// Rounds of doubling distance around a ring: all-gather, all-to-all.
    Bruck,
    /// Scatter, then all-gather: broadcast.
    ScatterAllGather,
    /// Reduce-scatter, then gather: reduce.
    ReduceScatterGather,
    /// Pairwise exchange: all-to-all, reduce-scatter.
    Pairwise,
    /// Everybody sends everything to everybody: all-reduce.
    OneShot,
    /// Direct reduce-scatter, then direct all-gather: all-reduce.
    TwoShot,
    /// Everybody sends to everybody what it needs: all-gather, reduce-scatter, all-to-all.
    Direct,
    /// The root talks to everybody itself: broadcast, reduce, gather, scatter.
    Linear,
    /// Rounds of doubling distance: barrier.
    Dissemination,
    /// One algorithm within hosts, another across: all but all-to-all and scans.
    Hierarchical,
}

impl Algorithm {
    /// Every algorithm for which all ranks are alike, in the order of the table; the tuner decides
    /// ties for the later one. [`Hierarchical`](Self::Hierarchical), for which it matters who is on
    /// whose host, comes besides.
    pub const ALL: [Self; 15] = [
        Self::Ring,
        Self::Tree,
        Self::DoubleTree,
        Self::Binomial,
        Self::RecursiveDoubling,
        Self::HalvingDoubling,
        Self::Bruck,
        Self::ScatterAllGather,
        Self::ReduceScatterGather,
        Self::Pairwise,
        Self::OneShot,
        Self::TwoShot,
        Self::Direct,
        Self::Linear,
        Self::Dissemination,
    ];

    /// Its name on the command line and in tables: `ring`, `one-shot` ...
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ring => "ring",
            Self::Tree => "tree",
            Self::DoubleTree => "double-tree",
            Self::Binomial => "binomial",
            Self::RecursiveDoubling => "recursive-doubling",
            Self::HalvingDoubling => "halving-doubling",
            Self::Bruck => "bruck",
            Self::ScatterAllGather => "scatter-all-gather",
            Self::ReduceScatterGather => "reduce-scatter-gather",
            Self::Pairwise => "pairwise",
            Self::OneShot => "one-shot",
            Self::TwoShot => "two-shot",
            Self::Direct => "direct",
            Self::Linear => "linear",
            Self::Dissemination => "dissemination",
            Self::Hierarchical => "hierarchical",
        }
    }

    /// The collectives that it can do, rooted ones at root 0 (it can do them at every root).
    pub const fn collectives(self) -> &'static [Collective] {
        use Collective::*;
        match self {
            Self::Ring => &[
                Broadcast { root: 0 },
                Reduce { root: 0 },
                AllReduce,
                AllGather,
                ReduceScatter,
                Scan,
                ExclusiveScan,
            ],
            Self::Tree | Self::DoubleTree => {
                &[Broadcast { root: 0 }, Reduce { root: 0 }, AllReduce]
            }
            Self::Binomial | Self::Linear => &[
                Broadcast { root: 0 },
                Reduce { root: 0 },
                Gather { root: 0 },
                Scatter { root: 0 },
            ],
            Self::RecursiveDoubling => &[AllReduce, AllGather, Scan, ExclusiveScan],
            Self::HalvingDoubling => &[AllReduce, ReduceScatter],
            Self::Bruck => &[AllGather, AllToAll],
            Self::ScatterAllGather => &[Broadcast { root: 0 }],
            Self::ReduceScatterGather => &[Reduce { root: 0 }],
            Self::Pairwise => &[AllToAll, ReduceScatter],
            Self::OneShot | Self::TwoShot => &[AllReduce],
            Self::Direct => &[AllGather, ReduceScatter, AllToAll],
            Self::Dissemination => &[Barrier],
            Self::Hierarchical => &[
                Broadcast { root: 0 },
                Reduce { root: 0 },
                AllReduce,
                Gather { root: 0 },
                AllGather,
                Scatter { root: 0 },
                ReduceScatter,
                Barrier,
            ],
        }
    }

    /// All that can be asked for by name: [`ALL`](Self::ALL), and
    /// [`Hierarchical`](Self::Hierarchical).
    pub fn named() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().chain([Self::Hierarchical])
    }

    /// True if it has an answer to `collective`, whatever its root.
    ///
    /// ```
    /// use maypole::{algorithms::Algorithm, schedule::collective::Collective};
    /// assert!(Algorithm::Ring.supports(Collective::Broadcast { root: 3 }));
    /// assert!(!Algorithm::Ring.supports(Collective::Barrier));
    /// ```
    pub fn supports(self, collective: Collective) -> bool {
        self.collectives().contains(&collective.with_root(0))
    }

    /// True if its schedules for `collective` are right for every world and root also when input
    /// and output are one buffer, so that nobody need copy the input aside first. (A barrier has no
    /// buffer that could be in place.)
    ///
    /// What combines left to right begins with rank 0's part, which would overwrite a rank's own;
    /// and all-to-all swaps.
    ///
    /// ```
    /// use maypole::{algorithms::Algorithm, schedule::collective::Collective};
    /// assert!(Algorithm::Pairwise.works_in_place(Collective::ReduceScatter));
    /// assert!(!Algorithm::Pairwise.works_in_place(Collective::AllToAll));
    /// ```
    pub fn works_in_place(self, collective: Collective) -> bool {
        let clobbers = match self {
            Self::OneShot | Self::TwoShot | Self::Dissemination => true,
            Self::Linear => matches!(collective, Collective::Reduce { .. }),
            Self::Direct => !matches!(collective, Collective::AllGather),
            Self::Pairwise | Self::Bruck => matches!(collective, Collective::AllToAll),
            Self::Ring => matches!(collective, Collective::Scan | Collective::ExclusiveScan),
            Self::Tree
            | Self::DoubleTree
            | Self::Binomial
            | Self::RecursiveDoubling
            | Self::HalvingDoubling
            | Self::ScatterAllGather
            | Self::ReduceScatterGather
            | Self::Hierarchical => false,
        };
        self.supports(collective) && !clobbers
    }

    /// What `rank` of `world` does, or `None` if this algorithm has no answer to `collective`.
    ///
    /// Every rank computes its own schedule, or anybody's. In a world of one, a copy from input to
    /// output is all, if there is anything to do.
    ///
    /// ```
    /// use maypole::{algorithms::Algorithm, schedule::collective::Collective};
    /// let schedule = Algorithm::Ring.schedule(Collective::AllGather, 4, 0).unwrap();
    /// assert_eq!((schedule.chunks, schedule.steps.len()), (4, 1 + 2 * 3));
    /// assert_eq!(Algorithm::Ring.schedule(Collective::AllToAll, 4, 0), None);
    /// ```
    ///
    /// # Panics
    /// If `rank` or the collective's root is not below `world`.
    pub fn schedule(self, collective: Collective, world: usize, rank: usize) -> Option<Schedule> {
        assert!(rank < world, "rank {rank} in a world of {world}");
        assert!(
            collective.root().is_none_or(|root| root < world),
            "{collective:?} in a world of {world}"
        );
        if !self.supports(collective) {
            return None;
        }
        if world == 1 {
            let copies = collective.output(0) != HeldChunks::Nothing;
            let copy = Step::Copy { from: input(0), into: output(0) };
            return Some(Schedule::new(1, copies.then_some(copy).into_iter().collect()));
        }
        match self {
            Self::Ring => ring::schedule(collective, world, rank),
            Self::Tree => tree::schedule(collective, world, rank),
            Self::DoubleTree => double_tree::schedule(collective, world, rank),
            Self::Binomial => binomial::schedule(collective, world, rank),
            Self::RecursiveDoubling => doubling::schedule(collective, world, rank),
            Self::HalvingDoubling => halving::schedule(collective, world, rank),
            Self::Bruck => bruck::schedule(collective, world, rank),
            Self::ScatterAllGather => {
                collective.root().map(|root| scatter_gather::broadcast(world, rank, root))
            }
            Self::ReduceScatterGather => {
                collective.root().map(|root| scatter_gather::reduce(world, rank, root))
            }
            Self::Pairwise => pairwise::schedule(collective, world, rank),
            Self::OneShot => Some(direct::one_shot(world, rank)),
            Self::TwoShot => Some(direct::two_shot(world, rank)),
            Self::Direct => direct::schedule(collective, world, rank),
            Self::Linear => linear::schedule(collective, world, rank),
            Self::Dissemination => Some(dissemination::barrier(world, rank)),
            Self::Hierarchical => hierarchical::schedule(
                collective,
                &vec![0; world],
                rank,
                Levels::usual(collective, 1),
            ),
        }
    }

    /// [`schedule`](Self::schedule) for ranks that are spread over hosts: rank `r` is on host
    /// `hosts[r]`. To all algorithms but [`Hierarchical`](Self::Hierarchical) that is all the same.
    ///
    /// ```
    /// use maypole::{algorithms::Algorithm, schedule::collective::Collective};
    /// let (collective, hosts) = (Collective::AllReduce, [0, 0, 1, 1]);
    /// let flat = Algorithm::Ring.schedule_on(collective, &hosts, 0);
    /// assert_eq!(flat, Algorithm::Ring.schedule(collective, 4, 0));
    /// // Rank 0 sends to the other one of its host, and to one of the other host.
    /// let steps = Algorithm::Hierarchical.schedule_on(collective, &hosts, 0).unwrap().steps;
    /// assert!(steps.iter().all(|step| !matches!(step, maypole::schedule::Step::Send { to: 3, .. })));
    /// ```
    ///
    /// # Panics
    /// If `rank` or the collective's root is not below the number of hosts given, one for each
    /// rank.
    pub fn schedule_on(
        self,
        collective: Collective,
        hosts: &[usize],
        rank: usize,
    ) -> Option<Schedule> {
        match self {
            Self::Hierarchical if hosts.len() > 1 && self.supports(collective) => {
                let levels = Levels::usual(collective, hierarchical::nodes(hosts));
                hierarchical::schedule(collective, hosts, rank, levels)
            }
            _ => self.schedule(collective, hosts.len(), rank),
        }
    }

    /// What each rank does, as [`schedule_on`](Self::schedule_on) says.
    ///
    /// # Panics
    /// If the collective's root is not below the number of ranks.
    pub fn schedules_on(self, collective: Collective, hosts: &[usize]) -> Option<Vec<Schedule>> {
        (0..hosts.len()).map(|rank| self.schedule_on(collective, hosts, rank)).collect()
    }

    /// What each rank of `world` does, or `None` if this algorithm has no answer to `collective`.
    ///
    /// # Panics
    /// If the collective's root is not below `world`.
    pub fn schedules(self, collective: Collective, world: usize) -> Option<Vec<Schedule>> {
        (0..world).map(|rank| self.schedule(collective, world, rank)).collect()
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// No algorithm has this name.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("no algorithm is called {name:?}; there are {}", Algorithm::named().map(Algorithm::name).collect::<Vec<_>>().join(", "))]
pub struct UnknownAlgorithm {
    /// What was asked for.
    pub name: String,
}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Self, UnknownAlgorithm> {
        let found = Self::named().find(|algorithm| algorithm.name() == name);
        found.ok_or_else(|| UnknownAlgorithm { name: name.to_owned() })
    }
}

/// Everybody else, starting behind `rank`, so that not all talk to the same one at once.
fn others(world: usize, rank: usize) -> impl Iterator<Item = usize> + Clone {
    (1..world).map(move |distance| (rank + distance) % world)
}

/// `spans` go to rank `to`.
fn send(to: usize, spans: impl IntoIterator<Item = Span>) -> impl Iterator<Item = Step> {
    spans.into_iter().map(move |from| Step::Send { from, to })
}

/// `chunks` of the output come from rank `from`.
fn receive(from: usize, chunks: impl IntoIterator<Item = usize>) -> impl Iterator<Item = Step> {
    chunks.into_iter().map(move |chunk| Step::Recv { into: output(chunk), from })
}

/// `into` becomes x0 op x1 op x2 ..., left to right: mine is `mine`, the others' are received. The
/// same order on every rank, so the same bits on every rank, also where rounding or the operation
/// depends on order.
fn fold_in_rank_order(
    world: usize,
    rank: usize,
    mine: Span,
    into: Span,
) -> impl Iterator<Item = Step> {
    (0..world).map(move |peer| match (peer == 0, peer == rank) {
        (true, true) => Step::Copy { from: mine, into },
        (true, false) => Step::Recv { into, from: peer },
        (false, true) => Step::Reduce { from: mine, into },
        (false, false) => Step::RecvReduce { into, from: peer },
    })
}

/// `into` becomes `mine` and what `peer` sends, combined in the order of the two ranks. The two
/// spans must differ, in place too, because the part of a lower peer comes first.
fn combine(rank: usize, peer: usize, mine: Span, into: Span) -> [Step; 2] {
    if peer < rank {
        [Step::Recv { into, from: peer }, Step::Reduce { from: mine, into }]
    } else {
        [Step::Copy { from: mine, into }, Step::RecvReduce { into, from: peer }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_says_what_the_functions_do() {
        for algorithm in Algorithm::named() {
            for collective in Collective::all(1) {
                assert_eq!(
                    algorithm.schedules(collective, 4).is_some(),
                    algorithm.supports(collective)
                );
            }
        }
    }

    #[test]
    fn names_are_read_back() {
        for algorithm in Algorithm::named() {
            assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
        }
        assert!("one shot".parse::<Algorithm>().unwrap_err().to_string().contains("one-shot"));
    }
}

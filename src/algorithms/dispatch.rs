//! From the table to the pages: an algorithm's schedule for a collective.

use super::hierarchical::{self, Levels};
use super::table::Algorithm;
use super::{
    binomial, bruck, direct, dissemination, double_tree, doubling, halving, linear, pairwise, ring,
    scatter_gather, tree,
};
use crate::schedule::collective::{Collective, HeldChunks};
use crate::schedule::{Schedule, Step, input, output};

impl Algorithm {
    /// The schedule of `rank` of `world`, or `None` if this algorithm does not implement
    /// `collective`.
    ///
    /// A pure function, so every rank can compute its own schedule and that of any other rank. In a
    /// world of one the schedule is a copy from input to output, or nothing where there is no
    /// output.
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
            Self::ScatterAllGather | Self::ReduceScatterGather => {
                scatter_gather::schedule(collective, world, rank)
            }
            Self::Pairwise => pairwise::schedule(collective, world, rank),
            Self::OneShot => Some(direct::one_shot(world, rank)),
            Self::TwoShot => Some(direct::two_shot(world, rank)),
            Self::Direct => direct::schedule(collective, world, rank),
            Self::Linear => linear::schedule(collective, world, rank),
            Self::Dissemination => Some(dissemination::barrier(world, rank)),
            Self::Hierarchical => self.schedule_on(collective, &vec![0; world], rank),
        }
    }

    /// [`schedule`](Self::schedule) for ranks that are spread over hosts: rank `r` is on host
    /// `hosts[r]`. Only [`Hierarchical`](Self::Hierarchical) depends on the hosts.
    ///
    /// ```
    /// use maypole::{algorithms::Algorithm, schedule::collective::Collective};
    /// let collective = Collective::AllReduce;
    /// let hosts = [0, 0, 1, 1];
    /// let flat = Algorithm::Ring.schedule_on(collective, &hosts, 0);
    /// assert_eq!(flat, Algorithm::Ring.schedule(collective, 4, 0));
    /// // Rank 0 sends to rank 1 of its host and to rank 2 of the other host, never to rank 3.
    /// let steps = Algorithm::Hierarchical.schedule_on(collective, &hosts, 0).unwrap().steps;
    /// use maypole::schedule::Step;
    /// assert!(steps.iter().all(|step| !matches!(step, Step::Send { to: 3, .. })));
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

    /// The schedules of all ranks, as of [`schedule_on`](Self::schedule_on).
    ///
    /// # Panics
    /// If the collective's root is not below the number of ranks.
    pub fn schedules_on(self, collective: Collective, hosts: &[usize]) -> Option<Vec<Schedule>> {
        (0..hosts.len()).map(|rank| self.schedule_on(collective, hosts, rank)).collect()
    }

    /// The schedule of each rank of `world`, or `None` if this algorithm does not implement
    /// `collective`.
    ///
    /// # Panics
    /// If the collective's root is not below `world`.
    pub fn schedules(self, collective: Collective, world: usize) -> Option<Vec<Schedule>> {
        (0..world).map(|rank| self.schedule(collective, world, rank)).collect()
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
}

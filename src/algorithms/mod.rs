//! The algorithms: pure functions from (collective, world, rank) to a [`Schedule`].

use crate::collective::Collective;
use crate::schedule::Schedule;

/// How a collective is done.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Algorithm {
    /// Neighbours in a ring: reduce-scatter, all-gather, all-reduce; a pipelined chain for broadcast and reduce.
    Ring,
    /// Pipelined binary tree: broadcast, reduce, all-reduce.
    Tree,
    /// Binomial tree: broadcast, reduce, gather, scatter.
    Binomial,
    /// Pairwise exchange: all-to-all.
    Pairwise,
    /// Everybody sends everything to everybody: all-reduce.
    OneShot,
    /// Direct reduce-scatter, then direct all-gather: all-reduce.
    TwoShot,
    /// The root talks to everybody itself: broadcast, gather, scatter.
    Linear,
    /// Rounds of doubling distance: barrier.
    Dissemination,
}

impl Algorithm {
    /// What `rank` of `world` does, or `None` if this algorithm has no answer to `collective`.
    ///
    /// # Panics
    /// If `rank` or the collective's root is not below `world`.
    pub fn schedule(self, collective: Collective, world: usize, rank: usize) -> Option<Schedule> {
        let _ = (collective, world, rank);
        todo!()
    }
}

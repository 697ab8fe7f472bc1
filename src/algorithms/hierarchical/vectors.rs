//! Collectives of whole vectors, which may be cut as the algorithms of the parts need it.

use super::group::{ChunkMap, HostGroup};
use crate::algorithms::compose::Composer;
use crate::algorithms::compose::WholeBuffer::{Input, Output};
use crate::schedule::Schedule;
use crate::schedule::collective::Collective::{AllReduce, Barrier, Broadcast, Reduce};

impl HostGroup {
    pub(super) fn all_reduce(&self) -> Option<Schedule> {
        let leaders = self.nodes.iter().map(Vec::len).min().expect("there is a host");
        let pieces = self.chunks(AllReduce)?;
        let mut whole = Composer::new(leaders * pieces);
        let sums = whole.row();
        let slice = |leader| ChunkMap::Vector((leader * pieces..(leader + 1) * pieces).collect());
        let beginning_here = |leader| {
            let nth = self.beginning_here(AllReduce, pieces);
            ChunkMap::Vector(nth.map(|piece| leader * pieces + piece).collect())
        };
        for root in 0..leaders {
            self.within(&mut whole, Reduce { root }, &beginning_here(root), (Input, sums))?;
        }
        for leader in 0..leaders {
            let ranks: Vec<usize> = self.nodes.iter().map(|node| node[leader]).collect();
            self.across(&mut whole, AllReduce, &ranks, &slice(leader), (sums, Output))?;
        }
        for root in 0..leaders {
            self.within(&mut whole, Broadcast { root }, &beginning_here(root), (Output, Output))?;
        }
        Some(whole.end())
    }

    pub(super) fn broadcast(&self, root: usize) -> Option<Schedule> {
        let across = Broadcast { root: self.node_of(root) };
        let pieces = self.chunks(across)?;
        let mut whole = Composer::new(pieces);
        let all = ChunkMap::Vector((0..pieces).collect());
        let leaders = self.leaders(root);
        self.across(&mut whole, across, &leaders, &all, (Input, Output))?;
        let local = Broadcast { root: self.place(leaders[self.node]) };
        self.within(&mut whole, local, &all, (Output, Output))?;
        Some(whole.end())
    }

    pub(super) fn reduce(&self, root: usize) -> Option<Schedule> {
        let across = Reduce { root: self.node_of(root) };
        let pieces = self.chunks(across)?;
        let mut whole = Composer::new(pieces);
        let all = ChunkMap::Vector((0..pieces).collect());
        let leaders = self.leaders(root);
        let sums = whole.row();
        let local = Reduce { root: self.place(leaders[self.node]) };
        self.within(&mut whole, local, &all, (Input, sums))?;
        self.across(&mut whole, across, &leaders, &all, (sums, Output))?;
        Some(whole.end())
    }

    /// A reduce within hosts completes when all ranks of a host have entered; then a barrier across
    /// hosts; then a broadcast within hosts lets all ranks leave. The chunk is a token.
    pub(super) fn barrier(&self) -> Option<Schedule> {
        let collectives = [Barrier, AllReduce];
        let across =
            collectives.into_iter().find(|&collective| self.levels.across.supports(collective))?;
        let pieces = self.chunks(across)?;
        let mut whole = Composer::new(pieces);
        let all = ChunkMap::Vector((0..pieces).collect());
        let leaders = self.leaders(0);
        let heard = whole.row();
        self.within(&mut whole, Reduce { root: 0 }, &all, (Input, heard))?;
        self.across(&mut whole, across, &leaders, &all, (heard, Output))?;
        self.within(&mut whole, Broadcast { root: 0 }, &all, (Output, Output))?;
        Some(whole.end())
    }
}

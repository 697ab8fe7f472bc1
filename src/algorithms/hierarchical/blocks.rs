//! Collectives of one block a rank. Across hosts, the blocks of a host travel together.

use super::group::{ChunkMap, HostGroup};
use crate::algorithms::compose::Composer;
use crate::algorithms::compose::WholeBuffer::{Input, Output};
use crate::schedule::Schedule;
use crate::schedule::collective::Collective::{
    self, AllGather, Broadcast, Gather, Reduce, ReduceScatter, Scatter,
};

impl HostGroup {
    pub(super) fn gather(&self, root: usize) -> Option<Schedule> {
        let mut whole = Composer::new(self.world());
        let leaders = self.leaders(root);
        let room = if self.rank == root { Output } else { whole.row() };
        let local = Gather { root: self.place(leaders[self.node]) };
        self.within(&mut whole, local, &self.own_blocks(), (Input, room))?;
        let across = Gather { root: self.node_of(root) };
        self.across(&mut whole, across, &leaders, &self.blocks_of_hosts(), (room, Output))?;
        Some(whole.end())
    }

    pub(super) fn all_gather(&self) -> Option<Schedule> {
        let mut whole = Composer::new(self.world());
        let leaders = self.leaders(0);
        let all = self.all_blocks(AllGather);
        self.within(&mut whole, Gather { root: 0 }, &self.own_blocks(), (Input, Output))?;
        let rooms = (Output, Output);
        self.across(&mut whole, AllGather, &leaders, &self.blocks_of_hosts(), rooms)?;
        self.within(&mut whole, Broadcast { root: 0 }, &all, rooms)?;
        Some(whole.end())
    }

    pub(super) fn scatter(&self, root: usize) -> Option<Schedule> {
        let mut whole = Composer::new(self.world());
        let leaders = self.leaders(root);
        // The root keeps the blocks of its host where they are.
        let room = if self.rank == root { Input } else { whole.row() };
        let across = Scatter { root: self.node_of(root) };
        self.across(&mut whole, across, &leaders, &self.blocks_of_hosts(), (Input, room))?;
        let local = Scatter { root: self.place(leaders[self.node]) };
        self.within(&mut whole, local, &self.own_blocks(), (room, Output))?;
        Some(whole.end())
    }

    pub(super) fn reduce_scatter(&self) -> Option<Schedule> {
        let mut whole = Composer::new(self.world());
        let leaders = self.leaders(0);
        let all = self.all_blocks(ReduceScatter);
        let sums = whole.row();
        let results = whole.row();
        self.within(&mut whole, Reduce { root: 0 }, &all, (Input, sums))?;
        self.across(&mut whole, ReduceScatter, &leaders, &self.blocks_of_hosts(), (sums, results))?;
        self.within(&mut whole, Scatter { root: 0 }, &self.own_blocks(), (results, Output))?;
        Some(whole.end())
    }

    fn world(&self) -> usize {
        self.nodes.iter().map(Vec::len).sum()
    }

    /// The blocks of all ranks, host by host.
    fn all_blocks(&self, across: Collective) -> ChunkMap {
        let nodes = self.beginning_here(across, self.nodes.len());
        ChunkMap::Vector(nodes.flat_map(|node| self.nodes[node].iter().copied()).collect())
    }

    /// The chunks of a part among the ranks of this host: one block for each rank.
    fn own_blocks(&self) -> ChunkMap {
        ChunkMap::Blocks(self.locals().iter().map(|&rank| vec![rank]).collect())
    }

    /// The chunks of a part across hosts: all blocks of a host for each host.
    fn blocks_of_hosts(&self) -> ChunkMap {
        ChunkMap::Blocks(self.nodes.clone())
    }
}

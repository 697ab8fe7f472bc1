//! The ranks by host, their leaders, and how a part of the schedule is added.

use super::Levels;
use crate::algorithms::Algorithm;
use crate::algorithms::compose::{Composer, SubSchedule, WholeBuffer};
use crate::schedule::collective::Collective;
use crate::schedule::{Symmetry, part};

/// The ranks by host, from the point of view of one rank.
pub(super) struct HostGroup {
    pub(super) levels: Levels,
    pub(super) rank: usize,
    /// The ranks of each host, ascending; hosts by their lowest rank.
    pub(super) nodes: Vec<Vec<usize>>,
    /// The index of this rank's host in `nodes`.
    pub(super) node: usize,
}

impl HostGroup {
    pub(super) fn new(hosts: &[usize], rank: usize, levels: Levels) -> Self {
        // In a time that hardly grows with the hosts: sorting what is sorted is quick.
        let mut ranks: Vec<usize> = (0..hosts.len()).collect();
        ranks.sort_by_key(|&other| hosts[other]);
        let together = |a: &usize, b: &usize| hosts[*a] == hosts[*b];
        let mut nodes: Vec<Vec<usize>> = ranks.chunk_by(together).map(<[_]>::to_vec).collect();
        nodes.sort_unstable_by_key(|node| node[0]);
        let node =
            nodes.iter().position(|node| node.contains(&rank)).expect("every rank has a host");
        Self { levels, rank, nodes, node }
    }

    /// The ranks of this rank's host.
    pub(super) fn locals(&self) -> &[usize] {
        &self.nodes[self.node]
    }

    /// The index of `local` among the ranks of this host.
    pub(super) fn place(&self, local: usize) -> usize {
        self.locals().iter().position(|&rank| rank == local).expect("the rank is on this host")
    }

    pub(super) fn node_of(&self, rank: usize) -> usize {
        self.nodes.iter().position(|node| node.contains(&rank)).expect("every rank has a host")
    }

    /// One leader a host: `root` on its own host, the lowest rank on the others.
    pub(super) fn leaders(&self, root: usize) -> Vec<usize> {
        self.nodes.iter().map(|node| if node.contains(&root) { root } else { node[0] }).collect()
    }

    /// All hosts, or chunks that correspond to them, beginning here. So the steps of a rank with
    /// them are those of the rank at its place of another host, at the same place of its schedule,
    /// if the algorithm across hosts is [symmetric](Algorithm::symmetry).
    pub(super) fn beginning_here(
        &self,
        across: Collective,
        count: usize,
    ) -> impl Iterator<Item = usize> {
        let hosts = self.nodes.len();
        let symmetry = self.levels.across.symmetry_of_ranks(across, hosts);
        let halves = symmetry == Some(Symmetry::ExclusiveOr) && count == hosts;
        // Halving leaves a chunk to the rank whose number has the bits of the chunk's, reversed.
        let reversed = self.node.reverse_bits().checked_shr(hosts.leading_zeros() + 1).unwrap_or(0);
        let node = self.node;
        (0..count).map(move |at| if halves { at ^ reversed } else { (at + node) % count })
    }

    /// Into how many chunks a vector is cut: as many as the algorithm across hosts needs.
    pub(super) fn chunks(&self, across: Collective) -> Option<usize> {
        Some(self.levels.across.schedule(across, self.nodes.len(), 0)?.chunks)
    }

    /// Adds a part among the ranks of this host. The root of `collective` is an index among them.
    pub(super) fn within(
        &self,
        whole: &mut Composer,
        collective: Collective,
        cut: &ChunkMap,
        rooms: (WholeBuffer, WholeBuffer),
    ) -> Option<()> {
        add(whole, self.levels.local, collective, self.locals(), self.rank, cut, rooms)
    }

    /// Adds a part among `leaders`, if this rank is one of them.
    pub(super) fn across(
        &self,
        whole: &mut Composer,
        collective: Collective,
        leaders: &[usize],
        cut: &ChunkMap,
        rooms: (WholeBuffer, WholeBuffer),
    ) -> Option<()> {
        add(whole, self.levels.across, collective, leaders, self.rank, cut, rooms)
    }
}

/// The chunks of the whole that each chunk of a part stands for.
pub(super) enum ChunkMap {
    /// These chunks, divided among the chunks of the part.
    Vector(Vec<usize>),
    /// One list for each chunk of the part.
    Blocks(Vec<Vec<usize>>),
}

impl ChunkMap {
    fn chunks(&self, parts: usize) -> Vec<Vec<usize>> {
        match self {
            Self::Vector(chunks) => {
                (0..parts).map(|nth| chunks[part(chunks.len(), parts, nth)].to_vec()).collect()
            }
            Self::Blocks(blocks) => blocks.clone(),
        }
    }
}

/// Adds `collective` among `ranks`, if `rank` is one of them. `None` if the algorithm does not
/// implement the collective.
fn add(
    whole: &mut Composer,
    algorithm: Algorithm,
    collective: Collective,
    ranks: &[usize],
    rank: usize,
    cut: &ChunkMap,
    (input, output): (WholeBuffer, WholeBuffer),
) -> Option<()> {
    if !algorithm.supports(collective) {
        return None;
    }
    let Some(place) = ranks.iter().position(|&member| member == rank) else { return Some(()) };
    let schedule = algorithm.schedule(collective, ranks.len(), place)?;
    let chunks = cut.chunks(schedule.chunks);
    whole.then(&SubSchedule { schedule: &schedule, ranks, chunks: &chunks, input, output });
    Some(())
}

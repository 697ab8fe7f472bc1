//! Smaller worlds that represent a large one.

use super::gpus::{busiest, memories};
use super::network::WIRE;
use super::{Network, Question};
use crate::schedule::hosts::Boards;
use crate::schedule::simulate::MemoryRates;
use crate::schedule::{Schedule, Step};
use crate::topology::DeviceLinks;

/// The ranks of a world, as far as prices depend on them.
pub(super) struct WorldShape {
    pub(super) boards: Boards,
    /// How many ranks share a core.
    pub(super) crowding: usize,
    pub(super) root: usize,
    pub(super) links: Option<DeviceLinks>,
    pub(super) memories: Option<MemoryRates>,
    unit: usize,
}

impl WorldShape {
    /// The world of a call.
    pub(super) fn new(question: &Question<'_>) -> Self {
        let gpus = question.gpus.map(|gpus| (gpus.links.clone(), gpus.unit));
        let (links, unit) = gpus.unzip();
        let unit = unit.unwrap_or(1);
        Self {
            boards: question.boards.clone(),
            crowding: question.crowding.max(1),
            root: question.collective.root().unwrap_or(0),
            memories: links.as_ref().map(|links| memories(links, unit)),
            links,
            unit,
        }
    }

    pub(super) fn world(&self) -> usize {
        self.boards.world()
    }

    /// Picoseconds that the busiest link between GPUs takes for a KiB of every chunk of `schedules`, or the
    /// interface of the busiest host of `network`, which is longer. Then those that a machine takes for all that
    /// its hosts send, if several share it.
    pub(super) fn busiest_links(&self, schedules: &[Schedule], network: Network) -> [u64; 2] {
        let links = self.links.as_ref().map_or(0, |links| busiest(schedules, links, self.unit));
        if network.is_near() {
            return [links, 0];
        }
        let moved = self.moved(schedules);
        let sent = moved.iter().map(|it| it[0]).sum::<u64>();
        let of_machine = sent.checked_div(network.machines).unwrap_or(0);
        let of_host = moved.into_iter().flatten().max().unwrap_or(0);
        let of_units =
            |chunks: u64, kib: u64| chunks.saturating_mul(kib).saturating_mul(self.unit as u64);
        [of_units(of_host, network.wire).max(links), of_units(of_machine, WIRE)]
    }

    /// By host: the chunks that leave it, and those that arrive.
    fn moved(&self, schedules: &[Schedule]) -> Vec<[u64; 2]> {
        let mut moved = vec![[0; 2]; self.boards.count()];
        for (from, schedule) in schedules.iter().enumerate() {
            for step in &schedule.steps {
                if let Step::Send { to, .. } = step
                    && self.boards.of(from) != self.boards.of(*to)
                {
                    moved[self.boards.of(from)][0] += 1;
                    moved[self.boards.of(*to)][1] += 1;
                }
            }
        }
        moved
    }

    /// A world half as large: with every second rank of each board, or, if no board has more than
    /// two ranks, with every second board. There are as many cores as before, and at least one
    /// rank is left on each board.
    pub(super) fn half(&self) -> Self {
        let world = self.world();
        let most = self.boards.sizes().into_iter().max().unwrap_or(1);
        let mut seen = vec![0_usize; self.boards.count()];
        let is_kept = |rank: &usize| {
            let board = self.boards.of(*rank);
            let nth = seen[board];
            seen[board] += 1;
            (if most > 2 { nth } else { board }).is_multiple_of(2)
        };
        let kept: Vec<usize> = (0..world).filter(is_kept).collect();
        let crowding = (self.crowding * kept.len()).div_ceil(world).max(1);
        let root = kept.partition_point(|rank| *rank < self.root).min(kept.len() - 1);
        let links = self.links.as_ref().map(|links| links.subset(&kept));
        let memories = links.as_ref().map(|links| memories(links, self.unit));
        let unit = self.unit;
        Self { boards: self.boards.subset(&kept), crowding, root, links, memories, unit }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::collective::Collective;

    fn halves(boards: &Boards, root: usize) -> Vec<(Vec<usize>, usize, usize)> {
        let collective = Collective::Broadcast { root };
        let question = Question { collective, boards, bytes: 8, crowding: 5, gpus: None };
        let mut shape = WorldShape::new(&question);
        let mut shapes = Vec::new();
        while shape.world() > 2 {
            shape = shape.half();
            shapes.push((shape.boards.numbers().to_vec(), shape.crowding, shape.root));
        }
        shapes
    }

    #[test]
    fn boards_shrink_before_they_vanish() {
        let shapes = halves(&Boards::new(&[0, 0, 0, 0, 1, 1, 1, 1]), 7);
        assert_eq!(shapes, [(vec![0, 0, 1, 1], 3, 3), (vec![0, 0], 2, 1)]);
    }

    #[test]
    fn an_odd_world_stays_odd() {
        let worlds: Vec<usize> =
            halves(&Boards::separate(65), 0).iter().map(|(boards, ..)| boards.len()).collect();
        assert_eq!(worlds, [33, 17, 9, 5, 3, 2]);
    }
}

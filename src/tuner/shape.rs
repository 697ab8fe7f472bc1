//! Smaller worlds that represent a large one.

use super::Question;
use super::gpus::{busiest, memories};
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
    /// busiest host, whose interface takes `wire` for a KiB in each direction.
    pub(super) fn busiest_link(&self, schedules: &[Schedule], wire: u64) -> u64 {
        match &self.links {
            Some(links) => busiest(schedules, links, self.unit),
            None if wire == 0 => 0,
            None => self.busiest_host(schedules).saturating_mul(wire),
        }
    }

    /// The most chunks that leave a board, or that arrive at one.
    fn busiest_host(&self, schedules: &[Schedule]) -> u64 {
        let mut moved = vec![[0_u64; 2]; self.boards.count()];
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
        moved.into_iter().flatten().max().unwrap_or(0)
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

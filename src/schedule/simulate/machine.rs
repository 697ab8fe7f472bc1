//! The machine model: ranks move and combine every byte on cores of their own, or on shared cores.
//!
//! * Publishing a message occupies the sender's core, and taking it the receiver's. In between it
//!   is in flight for [`LinkCost::latency`], which occupies no core.
//! * A span that goes to several ranks of one board is published once.
//! * A core that has read a publication reads it again, for another of its ranks, from its own
//!   cache.
//! * A core runs one rank until that rank has to wait, then the next of its ranks. Each change of
//!   ranks costs a [`MachineModel::switch`], also where the next rank can do nothing.
//! * A board holds a limited number of messages of a rank. The next one waits until all readers
//!   have read the oldest.
//! * A rank begins a call when its own part of the call before is done, so ranks that only send run
//!   ahead of the others.
//! * A rank with more than three streams polls all of them while it waits for one.
//!
//! Everything is counted in whole picoseconds, ties go to the lower rank, the earlier window, the
//! earlier step: equal arguments give equal numbers on every host, whatever its arithmetic.

use super::StepOrder;
use super::turns::{RunLength, Turns};
use crate::schedule::Schedule;
use crate::schedule::conflict::ConflictGraph;
use crate::schedule::walk::Stuck;

/// The costs of a message in picoseconds, and of its bytes in picoseconds per KiB.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct LinkCost {
    /// To publish a message, whatever its length.
    pub post: u64,
    /// From its publication until it can be seen.
    pub latency: u64,
    /// To take a message, whatever its length.
    pub take: u64,
    /// To poll one more peer's link while waiting.
    pub look: u64,
    /// To publish a KiB.
    pub post_kib: u64,
    /// To take a KiB as it is.
    pub copy_kib: u64,
    /// To take a KiB and combine it.
    pub fold_kib: u64,
}

/// Where ranks run, and the costs of the links between them.
#[derive(Clone, Debug)]
pub struct MachineModel<'a> {
    /// For each rank the number of its board: ranks with equal numbers are joined by it.
    pub boards: &'a [usize],
    /// Between ranks of one board.
    pub board: LinkCost,
    /// Between all others.
    pub stream: LinkCost,
    /// How many ranks share a core.
    pub crowding: usize,
    /// For a core to turn to another rank.
    pub switch: u64,
    /// How many messages of a rank a board holds until all have read them.
    pub slots: usize,
}

/// Schedules, ready to be priced for several sizes.
pub struct Simulation {
    graph: ConflictGraph,
    world: usize,
}

impl Simulation {
    /// Finds for each step the steps that it waits for.
    ///
    /// # Errors
    /// [`Stuck`] if the steps cannot all be taken.
    pub fn new(schedules: &[Schedule]) -> Result<Self, Stuck> {
        Ok(Self {
            graph: ConflictGraph::new(StepOrder::Conflict, schedules)?,
            world: schedules.len(),
        })
    }

    /// Number of events in a window, to which the cost of pricing a window is proportional.
    pub fn events(&self) -> usize {
        self.graph.nodes.len()
    }

    /// How long `calls` calls take, one after the other, if every chunk is `windows` windows of
    /// `bytes` bytes: a rank begins a call when its own part of the call before is done.
    ///
    /// # Panics
    /// If there is not one board for each rank.
    pub fn run(
        &self,
        machine: &MachineModel<'_>,
        calls: usize,
        windows: usize,
        bytes: usize,
    ) -> RunTime {
        assert_eq!(machine.boards.len(), self.world, "one board for each rank");
        Turns::new(
            &self.graph,
            machine,
            RunLength { world: self.world, calls, windows, bytes: bytes as u64 },
        )
        .run()
    }
}

impl std::fmt::Debug for Simulation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Simulation")
            .field("world", &self.world)
            .field("events", &self.events())
            .finish()
    }
}

/// The duration of a run, in picoseconds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct RunTime {
    /// Until the last rank is done.
    pub end: u64,
    /// Working time of the busiest core.
    pub busiest: u64,
}

impl MachineModel<'_> {
    pub(super) fn near(&self, a: usize, b: usize) -> bool {
        self.boards[a] == self.boards[b]
    }

    pub(super) fn link(&self, a: usize, b: usize) -> LinkCost {
        if self.near(a, b) { self.board } else { self.stream }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithms::Algorithm;
    use crate::schedule::collective::Collective;

    const LINK: LinkCost = LinkCost {
        post: 10,
        latency: 100,
        take: 5,
        look: 0,
        post_kib: 1024,
        copy_kib: 2048,
        fold_kib: 3072,
    };

    fn time(
        algorithm: Algorithm,
        collective: Collective,
        boards: &[usize],
        crowding: usize,
        bytes: usize,
    ) -> u64 {
        let schedules = algorithm.schedules(collective, boards.len()).unwrap();
        let machine =
            MachineModel { boards, board: LINK, stream: LINK, crowding, switch: 1000, slots: 8 };
        Simulation::new(&schedules).unwrap().run(&machine, 1, 1, bytes).end
    }

    #[test]
    fn a_pair_exchanges_in_one_hop() {
        assert_eq!(time(Algorithm::OneShot, Collective::AllReduce, &[0, 0], 1, 0), 10 + 100 + 5);
        assert_eq!(
            time(Algorithm::OneShot, Collective::AllReduce, &[0, 0], 1, 8),
            10 + 8 + 100 + 5 + 24
        );
    }

    #[test]
    fn a_board_publishes_once_and_streams_send_to_each() {
        let broadcast = Collective::Broadcast { root: 0 };
        assert_eq!(time(Algorithm::Linear, broadcast, &[0, 0, 0], 1, 8), 10 + 8 + 100 + 5 + 16);
        assert_eq!(
            time(Algorithm::Linear, broadcast, &[0, 1, 2], 1, 8),
            2 * (10 + 8) + 100 + 5 + 16
        );
    }

    #[test]
    fn ranks_of_one_core_take_turns() {
        // Rank 0 publishes; the core turns to rank 1, which publishes and takes; then back, once
        // that can be seen.
        assert_eq!(
            time(Algorithm::OneShot, Collective::AllReduce, &[0, 0], 2, 0),
            10 + 1000 + 10 + 100 + 1000 + 5
        );
    }
}

//! Schedules on a machine model: prepared once, run for several sizes.

use super::machine::{MachineModel, RunTime};
use super::turns::{RunLength, Turns};
use crate::schedule::Schedule;
use crate::schedule::conflict::{ConflictGraph, StepOrder};
use crate::schedule::walk::Stuck;

/// Schedules, ready to be priced for several sizes.
#[derive(Debug)]
pub struct Simulation(ConflictGraph);

impl Simulation {
    /// Finds for each step the steps that it waits for.
    ///
    /// # Errors
    /// [`Stuck`] if the steps cannot all be taken.
    pub fn new(schedules: &[Schedule]) -> Result<Self, Stuck> {
        ConflictGraph::new(StepOrder::Conflict, schedules).map(Self)
    }

    /// Number of events in a window, to which the cost of pricing a window is proportional.
    pub fn events(&self) -> usize {
        self.0.nodes.len()
    }

    /// How long `calls` calls take, one after the other, if every chunk is `windows` windows of
    /// `bytes` bytes: a rank begins a call when its own part of the call before is done.
    ///
    /// # Panics
    /// If `machine` does not name one board for each rank.
    pub fn run(
        &self,
        machine: &MachineModel<'_>,
        calls: usize,
        windows: usize,
        bytes: usize,
    ) -> RunTime {
        let world = machine.boards.len();
        assert_eq!(world, self.0.node_of.len(), "one board for each rank");
        Turns::new(&self.0, machine, RunLength { world, calls, windows, bytes: bytes as u64 }).run()
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::LinkCost;
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
        row(1, algorithm, collective, boards, crowding, bytes)
    }

    /// How long a row of `calls` calls takes.
    fn row(
        calls: usize,
        algorithm: Algorithm,
        collective: Collective,
        boards: &[usize],
        crowding: usize,
        bytes: usize,
    ) -> u64 {
        let schedules = algorithm.schedules(collective, boards.len()).unwrap();
        let machine = MachineModel {
            boards,
            board: LINK,
            stream: LINK,
            crowding,
            switch: 1000,
            slots: 8,
            ahead: 64,
            reads_again: false,
            memories: None,
        };
        Simulation::new(&schedules).unwrap().run(&machine, calls, 1, bytes).end
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
        // Rank 0 publishes; the core turns to rank 1, which publishes and takes; then back to rank
        // 0, once rank 1's message can be seen.
        assert_eq!(
            time(Algorithm::OneShot, Collective::AllReduce, &[0, 0], 2, 0),
            10 + 1000 + 10 + 100 + 1000 + 5
        );
    }

    #[test]
    fn a_message_of_several_chunks_is_published_chunk_by_chunk() {
        // Rank 0 sends rank 2 its chunk and that of rank 3, which rank 2 passes on.
        let scatter = Collective::Scatter { root: 0 };
        let found = |boards| time(Algorithm::Binomial, scatter, boards, 1, 0);
        assert_eq!(found(&[0, 0, 0, 0]), 2 * 10 + 100 + 2 * 5 + 10 + 100 + 5);
        // Both of these short messages leave together, and are received by one read.
        assert_eq!(found(&[0, 1, 2, 3]), 10 + 100 + 5 + 10 + 100 + 5);
        // Long ones leave one by one.
        let long = |boards| time(Algorithm::Binomial, scatter, boards, 1, 65);
        let (sends, receives) = (10 + 65, 5 + 2 * 65);
        assert_eq!(long(&[0, 1, 2, 3]), 2 * sends + 100 + 2 * receives + sends + 100 + receives);
    }

    #[test]
    fn a_rank_that_is_behind_receives_several_short_messages_by_one_read() {
        // The core turns to rank 1, which sends the messages of three calls, and back to rank 0.
        let reduce = Collective::Reduce { root: 0 };
        let found = |boards, bytes| row(3, Algorithm::Linear, reduce, boards, 2, bytes);
        let seen = 1000 + 10 + 100;
        assert_eq!(found(&[0, 1], 0), seen + 1000 + 5);
        assert_eq!(found(&[0, 0], 0), seen + 1000 + 3 * 5, "a board is read by publication");
        // Longer messages are received one by one.
        assert_eq!(found(&[0, 1], 65), 1000 + 3 * (10 + 65) + 1000 + 3 * (5 + 3 * 65));
    }
}

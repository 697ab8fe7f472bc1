//! The price of a candidate: the time of its schedules on simulated clocks.
//!
//! Long calls and large worlds are not simulated in full. Windows soon settle into a steady state,
//! so a few windows show what one more costs. The growth of a price from 16 to 32 to 64 ranks shows
//! how it continues.
//!
//! The price is the time that one more call adds to a row of calls. A program that reduces layer
//! after layer spends this time, and benchmarks measure it. In a row of calls, ranks that only send
//! run ahead of the others, so chains and trees cost less than a call alone. In worlds of more than
//! [`ROW`] ranks, one call alone is simulated.

use super::candidates::{longest_chunk, rows};
use super::{Candidate, CandidateVerdict, CostTable, Plan, Question};
use crate::algorithms::Algorithm;
use crate::schedule::simulate::{MachineModel, Simulation};
use maypole_transports::board::{CHUNK, SlotClass};

/// Limits of a simulation: at most this many events, and this many windows.
const EVENTS: usize = 1024;
const WINDOWS: usize = 4;
/// The largest world in which a row of calls is simulated, and the number of calls.
const ROW: usize = 16;
const CALLS: usize = 3;
/// The largest world that is simulated.
const WORLD: usize = 64;

/// Every row with its price.
pub(super) fn priced(
    question: &Question<'_>,
    only: Option<Algorithm>,
    table: &CostTable,
) -> Vec<Candidate> {
    let mut pricer: Option<Pricer<'_>> = None;
    let price = |plan: Plan| {
        // Rows of one algorithm follow one another and share its simulation.
        if pricer.as_ref().is_none_or(|pricer| pricer.algorithm() != plan.algorithm) {
            pricer = Some(Pricer::new(question, plan.algorithm, table));
        }
        pricer.as_ref().expect("just made").candidate(plan)
    };
    rows(question, only).into_iter().map(price).collect()
}

/// One plan with its price.
pub(super) fn price_of(question: &Question<'_>, plan: Plan, table: &CostTable) -> Candidate {
    Pricer::new(question, plan.algorithm, table).candidate(plan)
}

/// Prices the rows of one algorithm.
pub(super) struct Pricer<'a> {
    question: &'a Question<'a>,
    algorithm: Algorithm,
    table: &'a CostTable,
    longest: usize,
    /// The world itself, or smaller ones, each half the next.
    simulations: Vec<(usize, Simulation)>,
}

impl<'a> Pricer<'a> {
    pub(super) fn new(
        question: &'a Question<'a>,
        algorithm: Algorithm,
        table: &'a CostTable,
    ) -> Self {
        let worlds = match question.world() {
            world if world <= WORLD => vec![world],
            _ => vec![WORLD / 4, WORLD / 2, WORLD],
        };
        let simulation_of = |world: usize| {
            let root = question.collective.root().unwrap_or(0) % world;
            let schedules = algorithm.schedules_on(
                question.collective.with_root(root),
                &question.boards.numbers()[..world],
            );
            let schedules = schedules.expect("only algorithms that have an answer are candidates");
            (
                world,
                Simulation::new(&schedules)
                    .expect("the algorithms of the table are proved to complete"),
            )
        };
        let simulations = worlds.into_iter().map(simulation_of).collect();
        Self {
            question,
            algorithm,
            table,
            longest: longest_chunk(question, algorithm),
            simulations,
        }
    }

    pub(super) fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    pub(super) fn candidate(&self, plan: Plan) -> Candidate {
        let limit =
            if self.question.boards.is_shared() { plan.window.min(CHUNK) } else { plan.window };
        let windows = self.longest.div_ceil(limit.max(1)).max(1);
        let bytes = self.longest.div_ceil(windows);
        let prices: Vec<u64> =
            self.simulations.iter().map(|it| self.long(it, windows, bytes)).collect();
        let picoseconds = match prices[..] {
            [small, middle, large] => grown(small, middle, large, self.question.world()),
            _ => prices[0],
        };
        Candidate {
            plan,
            windows,
            predicted_ns: picoseconds.div_ceil(1000),
            verdict: CandidateVerdict::Slower,
        }
    }

    /// Picoseconds of `windows` windows of `bytes` bytes a chunk.
    fn long(&self, (world, simulation): &(usize, Simulation), windows: usize, bytes: usize) -> u64 {
        let machine = MachineModel {
            boards: &self.question.boards.numbers()[..*world],
            board: self.table.board(bytes, self.question.crowding),
            stream: self.table.stream(self.question.crowding),
            crowding: self.question.crowding,
            switch: self.table.switch,
            slots: SlotClass::holding(bytes).unwrap_or(SlotClass::Chunk).slots(*world),
        };
        let most = (EVENTS / simulation.events().max(1)).clamp(2, WINDOWS);
        if windows <= most {
            return one_more(simulation, &machine, windows, bytes);
        }
        let run = |windows| simulation.run(&machine, 1, windows, bytes);
        let half = run(most / 2);
        let full = run(most);
        // While a pipeline fills, a window adds less time than its work takes.
        let work = full.busiest.saturating_sub(half.busiest);
        let each = work.max(full.end.saturating_sub(half.end)) / (most - most / 2) as u64;
        one_more(simulation, &machine, most, bytes)
            .saturating_add(each.saturating_mul((windows - most) as u64))
    }
}

/// The time that one more call adds to a row of calls.
fn one_more(
    simulation: &Simulation,
    machine: &MachineModel<'_>,
    windows: usize,
    bytes: usize,
) -> u64 {
    let alone = simulation.run(machine, 1, windows, bytes);
    if machine.boards.len() > ROW {
        return alone.end;
    }
    let row = simulation.run(machine, CALLS, windows, bytes);
    let work = row.busiest.saturating_sub(alone.busiest);
    work.max(row.end.saturating_sub(alone.end)) / (CALLS - 1) as u64
}

/// The price in a world that is larger than those simulated. Each doubling of the ranks adds more
/// than the doubling before it, by the factor that the simulated worlds show.
fn grown(small: u64, middle: u64, large: u64, world: usize) -> u64 {
    let before = u128::from(middle.saturating_sub(small)).max(1);
    let mut step = u128::from(large.saturating_sub(middle));
    let first = step;
    let mut at = WORLD;
    let mut price = u128::from(large);
    while at < world {
        step = (step * first / before).min(u128::from(u64::MAX));
        let next = (2 * at).min(world);
        price += step * (next - at) as u128 / at as u128;
        at *= 2;
    }
    price.try_into().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_grow_as_they_did() {
        assert_eq!(grown(10, 20, 30, 256), 50, "logarithmic stays logarithmic");
        assert_eq!(grown(16, 32, 64, 256), 256, "linear stays linear");
        assert_eq!(grown(16, 32, 64, 96), 96);
    }
}

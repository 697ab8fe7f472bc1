//! The price of a candidate: the time of its schedules on simulated clocks.
//!
//! Long calls and large worlds are not simulated in full. Windows soon settle into a steady state,
//! so a few windows show the cost of one more. Of a large world, a [scaled](super::shape) world,
//! its half and its quarter are simulated, and the growth of the price from one to the next shows
//! how it continues. So pricing takes 3 ms for the seven all-reduce algorithms among 64 ranks,
//! where simulating all of them took 55 ms. Over TCP, all algorithms of a collective together take
//! at most 4 ms among 16 ranks, and at most 11 ms among 1,024. Of 1,224 calls of 12 to 64 ranks, 29
//! are given a plan that costs more than 1.3 times the best one in a full simulation of rows of
//! calls.
//!
//! There are two prices. One is the time that one more call adds to a row of calls: a program that reduces
//! layer after layer spends it. In a row, ranks that only send run ahead of the others, so chains and trees
//! cost less than a call alone. The other is the time of a call alone, from when all ranks begin until the last
//! one ends: a program that broadcasts its parameters once, and waits, spends that. If a row would
//! take too long to simulate, both are of one call alone. So are those of calls that copy other
//! ranks' private memory, because its owners wait until they are done. Calls of GPUs stand in the
//! rows of a stream, so both are of a row.

use super::candidates::{longest_chunk, rows, steps};
use super::gpus::schedules;
use super::shape::WorldShape;
use super::{Candidate, CandidateVerdict, CostTable, OWN_WINDOW, Plan, Question};
use crate::algorithms::Algorithm;
use crate::schedule::Schedule;
use crate::schedule::hosts::ReachedMemory;
use crate::schedule::simulate::{MachineModel, RunTime, Simulation};
use crate::schedule::walk::Stuck;
use maypole_transports::board::{CHUNK, SlotClass};
use maypole_transports::{HEAD, LONGEST_AHEAD};

/// Worlds with more steps than this are scaled down, unless they are `EXACT`.
const STEPS: usize = 1024;
/// Limits of a simulation: about this many events, and this many windows.
const EVENTS: usize = 512;
const WINDOWS: usize = 4;
/// How many calls a row has.
const CALLS: usize = 4;
/// Worlds up to `EXACT` are never scaled down; worlds above `LARGEST` always.
const EXACT: usize = 8;
const LARGEST: usize = 128;

/// Every row with its price.
pub(super) fn priced(
    question: &Question<'_>,
    only: Option<Algorithm>,
    table: &CostTable,
) -> Vec<Candidate> {
    let rows = rows(question, only);
    let of_algorithm = |rows: &[Plan]| {
        let pricer = Pricer::new(question, rows[0].algorithm, table);
        rows.iter().map(|plan| pricer.candidate(*plan)).collect::<Vec<_>>()
    };
    rows.chunk_by(|a, b| a.algorithm == b.algorithm).flat_map(of_algorithm).collect()
}

/// The price of a call by `schedules`, one for each rank, computed as that of a candidate:
/// nanoseconds that one more call adds to a row of calls. Windows have at most [`OWN_WINDOW`]
/// bytes.
///
/// # Errors
/// [`Stuck`] if the steps cannot all be taken.
///
/// # Panics
/// If there is not one schedule for each rank of the question.
pub fn price_of_schedules(
    question: &Question<'_>,
    schedules: &[Schedule],
    table: &CostTable,
) -> Result<u64, Stuck> {
    assert_eq!(schedules.len(), question.world(), "one schedule for each rank");
    let shape = WorldShape::new(question);
    let simulation = Simulation::new(schedules)?;
    let busiest_kib = shape.busiest_links(schedules, table.network);
    let pricer = Pricer {
        question,
        table,
        longest: question.bytes.div_ceil(schedules[0].chunks.max(1)),
        access: None,
        halvings: 0,
        worlds: vec![PricedWorld { shape, simulation, busiest_kib }],
    };
    Ok(pricer.nanoseconds(OWN_WINDOW).1.row)
}

/// The time of a call, in one unit of time.
#[derive(Clone, Copy)]
struct Prices {
    /// One more call of a row.
    row: u64,
    /// One call, from when all ranks begin until the last one ends.
    alone: u64,
}

impl Prices {
    fn map(self, price: impl Fn(u64) -> u64) -> Self {
        Self { row: price(self.row), alone: price(self.alone) }
    }
}

/// Prices the rows of one algorithm.
pub(super) struct Pricer<'a> {
    question: &'a Question<'a>,
    table: &'a CostTable,
    longest: usize,
    /// How ranks reach one another's buffers; `None` if bytes go through slots and streams.
    access: Option<ReachedMemory>,
    /// How often the world was halved.
    halvings: usize,
    /// The world itself; or three smaller ones, each half the next.
    worlds: Vec<PricedWorld>,
}

/// A world whose schedules are priced.
struct PricedWorld {
    shape: WorldShape,
    simulation: Simulation,
    /// Picoseconds that the busiest link between GPUs, or the busiest host, takes for a KiB of every chunk; and those
    /// that it costs the processor which carries it between hosts of one machine.
    busiest_kib: [u64; 2],
}

impl<'a> Pricer<'a> {
    pub(super) fn new(
        question: &'a Question<'a>,
        algorithm: Algorithm,
        table: &'a CostTable,
    ) -> Self {
        let (shapes, halvings) = shapes(question, algorithm);
        let worlds = shapes.into_iter().map(|shape| {
            let collective = question.collective.with_root(shape.root);
            let schedules = schedules(algorithm, collective, &shape.boards, shape.links.as_ref());
            let schedules = schedules.expect("only algorithms that have an answer are candidates");
            let simulation = Simulation::new(&schedules)
                .expect("the algorithms of the table are proved to complete");
            let busiest_kib = shape.busiest_links(&schedules, table.network);
            PricedWorld { busiest_kib, shape, simulation }
        });
        Self {
            question,
            table,
            longest: longest_chunk(question, algorithm),
            access: None,
            halvings,
            worlds: worlds.collect(),
        }
    }

    /// Prices rows that reach other ranks' buffers by `access`.
    pub(super) fn reaching(self, access: ReachedMemory) -> Self {
        Self { access: Some(access), ..self }
    }

    pub(super) fn candidate(&self, plan: Plan) -> Candidate {
        let (windows, Prices { row, alone }) = self.nanoseconds(plan.window);
        let verdict = CandidateVerdict::Slower;
        Candidate { plan, windows, predicted_ns: row, alone_ns: alone, verdict }
    }

    /// How many windows of at most `window` bytes there are, and the prices.
    fn nanoseconds(&self, window: usize) -> (usize, Prices) {
        let in_slots = self.question.boards.is_shared() && self.access.is_none();
        let limit = if in_slots { window.min(CHUNK) } else { window };
        let windows = self.longest.div_ceil(limit.max(1)).max(1);
        let bytes = self.longest.div_ceil(windows);
        let prices: Vec<Prices> =
            self.worlds.iter().map(|world| self.bounded(world, windows, bytes)).collect();
        let of = |price: fn(&Prices) -> u64| match &prices[..] {
            [small, middle, large] => {
                grown(price(small), price(middle), price(large), self.halvings)
            }
            _ => price(&prices[0]),
        };
        let picoseconds = Prices { row: of(|it| it.row), alone: of(|it| it.alone) };
        let start = self.question.gpus.map_or(0, |gpus| gpus.start_ns);
        (windows, picoseconds.map(|price| price.div_ceil(1000).saturating_add(start)))
    }

    /// Picoseconds of `windows` windows of `bytes` bytes a chunk, at least those of the busiest link.
    fn bounded(&self, world: &PricedWorld, windows: usize, bytes: usize) -> Prices {
        let bytes_of_chunk = windows as u128 * bytes as u128;
        let [link, machine] = world
            .busiest_kib
            .map(|kib| u64::try_from(bytes_of_chunk * u128::from(kib) / 1024).unwrap_or(u64::MAX));
        let price = |price: u64| price.max(link).saturating_add(machine);
        let Prices { row, alone } = self.long(world, windows, bytes).map(price);
        Prices { row, alone: if self.question.gpus.is_some() { row } else { alone } }
    }

    /// Picoseconds of `windows` windows of `bytes` bytes a chunk.
    fn long(&self, world: &PricedWorld, windows: usize, bytes: usize) -> Prices {
        let PricedWorld { shape, simulation, .. } = world;
        let crowding = shape.crowding;
        let (class, board) = match self.access {
            Some(ReachedMemory::Registered) => (SlotClass::Tiny, self.table.registered(crowding)),
            Some(ReachedMemory::Copied) => (SlotClass::Tiny, self.table.copied(crowding)),
            None => (
                SlotClass::holding(bytes).unwrap_or(SlotClass::Chunk),
                self.table.board(bytes, crowding),
            ),
        };
        let machine = MachineModel {
            boards: shape.boards.numbers(),
            board,
            stream: self.table.stream(crowding),
            crowding,
            switch: self.table.switch,
            slots: class.slots(shape.world()),
            ahead: (LONGEST_AHEAD - HEAD) as u64,
            reads_again: self.access == Some(ReachedMemory::Copied),
            // Such a copy takes as long as that of a slot's writer.
            memories: shape.memories.as_ref(),
        };
        let most = (EVENTS / simulation.events().max(1)).clamp(2, WINDOWS);
        let run = |windows| simulation.run(&machine, 1, windows, bytes);
        let prices = |windows, once: RunTime| {
            let row = match self.access {
                // No rank runs ahead while its private memory is copied.
                Some(ReachedMemory::Copied) => once.end,
                _ => one_more(simulation, &machine, windows, bytes, once),
            };
            Prices { row, alone: once.end }
        };
        if windows <= most {
            return prices(windows, run(windows));
        }
        let half = run(most / 2);
        let full = run(most);
        // While a pipeline fills, a window adds less time than its work takes.
        let work = full.busiest.saturating_sub(half.busiest);
        let each = work.max(full.end.saturating_sub(half.end)) / (most - most / 2) as u64;
        let more = each.saturating_mul((windows - most) as u64);
        prices(most, full).map(|price| price.saturating_add(more))
    }
}

/// The worlds that are simulated, and how often the world was halved to get the largest of them. An
/// algorithm with few steps a rank is simulated exactly; one in which every rank exchanges messages
/// about every other one is scaled down.
fn shapes(question: &Question<'_>, algorithm: Algorithm) -> (Vec<WorldShape>, usize) {
    let mut shape = WorldShape::new(question);
    let mut halvings = 0;
    let is_large = |shape: &WorldShape| {
        let collective = question.collective.with_root(shape.root);
        let each = || steps(collective, algorithm, &shape.boards);
        shape.world() > LARGEST || each().is_some_and(|steps| steps * shape.world() > STEPS)
    };
    while shape.world() > EXACT && is_large(&shape) {
        shape = shape.half();
        halvings += 1;
    }
    if halvings == 0 {
        return (vec![shape], 0);
    }
    let middle = shape.half();
    (vec![middle.half(), middle, shape], halvings)
}

/// The time that one more call adds to a row of calls; `alone` is that of one call alone.
fn one_more(
    simulation: &Simulation,
    machine: &MachineModel<'_>,
    windows: usize,
    bytes: usize,
    alone: RunTime,
) -> u64 {
    if machine.boards.len() > EXACT && simulation.events() * windows > EVENTS {
        return alone.end;
    }
    let row = simulation.run(machine, CALLS, windows, bytes);
    let work = row.busiest.saturating_sub(alone.busiest);
    work.max(row.end.saturating_sub(alone.end)) / (CALLS - 1) as u64
}

/// The price in a world that is `halvings` times twice as large as the largest one simulated. Each
/// doubling of the ranks adds more than the doubling before it, by the factor that the simulated
/// worlds show.
fn grown(small: u64, middle: u64, large: u64, halvings: usize) -> u64 {
    let before = u128::from(middle.saturating_sub(small)).max(1);
    let mut step = u128::from(large.saturating_sub(middle));
    let first = step;
    let mut price = u128::from(large);
    for _ in 0..halvings {
        step = (step * first / before).min(u128::from(u64::MAX));
        price += step;
    }
    price.try_into().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_grow_as_they_did() {
        assert_eq!(grown(10, 20, 30, 2), 50, "logarithmic stays logarithmic");
        assert_eq!(grown(16, 32, 64, 2), 256, "linear stays linear");
    }
}

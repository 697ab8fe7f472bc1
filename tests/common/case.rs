//! One collective call, drawn by lot: how it is made, and what every byte around it must be afterwards.

use super::common::Lot;
use super::number::Number;
use super::oracle::{Order, elements};
use maypole::algorithms::Algorithm;
use maypole::collective::{Collective, Held};
use maypole::element::{DataType, bf16, f16};
use maypole::{Communicator, ReduceOp};
use std::ops::Range;

const KINDS: [DataType; 12] = [
    DataType::F16,
    DataType::BF16,
    DataType::F32,
    DataType::F64,
    DataType::I8,
    DataType::I16,
    DataType::I32,
    DataType::I64,
    DataType::U8,
    DataType::U16,
    DataType::U32,
    DataType::U64,
];

/// One call, the same on all ranks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    /// What its numbers are drawn from.
    seed: u64,
    collective: Collective,
    kind: DataType,
    op: ReduceOp,
    count: usize,
    in_place: bool,
    algorithm: Option<Algorithm>,
    /// Arbitrary floats, so that the order of combination shows.
    any: bool,
    /// How often it is called before anything is looked at.
    repeats: usize,
}

impl Case {
    pub(crate) fn draw(lot: &mut Lot, world: usize) -> Self {
        let root = lot.below(world);
        let collective = Collective::all(root)[lot.below(11)];
        let kind = KINDS[lot.below(KINDS.len())];
        let able: Vec<_> = Algorithm::ALL.into_iter().filter(|it| it.supports(collective)).map(Some).collect();
        let algorithm = if lot.below(3) == 0 { None } else { able[lot.below(able.len())] };
        let blocks = if collective.is_blocked() { world } else { 1 };
        let count = match collective {
            Collective::Barrier => 0,
            _ => draw_count(lot, kind.size(), blocks),
        };
        Self {
            seed: lot.draw(),
            collective,
            kind,
            op: draw_op(lot, collective),
            count,
            in_place: lot.below(2) == 0,
            algorithm,
            any: lot.below(2) == 0,
            repeats: if count * kind.size() > 100_000 { 1 } else { 1 + lot.below(3) },
        }
    }

    /// Calls it on `comm` and looks at everything. Gives a number that must be equal on all ranks.
    pub(crate) fn run(&self, comm: &mut Communicator) -> u64 {
        match self.kind {
            DataType::F16 => self.run_as::<f16>(comm),
            DataType::BF16 => self.run_as::<bf16>(comm),
            DataType::F32 => self.run_as::<f32>(comm),
            DataType::F64 => self.run_as::<f64>(comm),
            DataType::I8 => self.run_as::<i8>(comm),
            DataType::I16 => self.run_as::<i16>(comm),
            DataType::I32 => self.run_as::<i32>(comm),
            DataType::I64 => self.run_as::<i64>(comm),
            DataType::U8 => self.run_as::<u8>(comm),
            DataType::U16 => self.run_as::<u16>(comm),
            DataType::U32 => self.run_as::<u32>(comm),
            DataType::U64 => self.run_as::<u64>(comm),
        }
    }

    fn run_as<T: Number>(&self, comm: &mut Communicator) -> u64 {
        comm.set_algorithm(self.algorithm);
        let algorithm = comm.algorithm(self.collective, self.count, self.kind).unwrap();
        let (world, rank) = (comm.world(), comm.rank());
        let place = Place { case: *self, world, rank };
        let order = match self.collective.reduces() {
            true if self.any => Order::of(algorithm, self.collective, world, rank),
            _ => Order::plain(match self.collective {
                Collective::Scan => rank + 1,
                Collective::ExclusiveScan => rank,
                _ => world,
            }),
        };
        let mut rounds: Vec<_> = (0..self.repeats).map(|nth| Round::<T>::new(place, nth)).collect();
        for round in &mut rounds {
            round.call(comm).unwrap_or_else(|error| panic!("{error}\nin {self:?} by {algorithm} at rank {rank}"));
        }
        rounds.iter().fold(0, |hash, round| hash.rotate_left(9) ^ round.check(&order, algorithm))
    }
}

/// Sum, product, minimum, maximum or, where it means something, average.
fn draw_op(lot: &mut Lot, collective: Collective) -> ReduceOp {
    let averages = !matches!(collective, Collective::Scan | Collective::ExclusiveScan);
    [ReduceOp::Sum, ReduceOp::Product, ReduceOp::Min, ReduceOp::Max, ReduceOp::Avg]
        [lot.below(4 + usize::from(averages))]
}

/// Nothing, little, a prime, around a window, or several windows.
fn draw_count(lot: &mut Lot, size: usize, blocks: usize) -> usize {
    const LITTLE: [usize; 10] = [0, 1, 2, 3, 5, 7, 8, 13, 31, 64];
    const PRIMES: [usize; 5] = [97, 251, 1009, 2053, 4099];
    match lot.below(40) {
        0..16 => LITTLE[lot.below(LITTLE.len())],
        16..28 => PRIMES[lot.below(PRIMES.len())],
        28..36 => lot.below(40_000) / size,
        36..39 => (65_537 + lot.below(250_000)) / size / blocks,
        _ => ((1 << 20) + lot.below(1 << 19)) / size / blocks,
    }
}

/// A case as one rank sees it.
#[derive(Clone, Copy)]
struct Place {
    case: Case,
    world: usize,
    rank: usize,
}

impl Place {
    fn elements(&self, held: Held) -> Range<usize> {
        elements(held, self.case.collective, self.case.count, self.world)
    }

    /// Element `index` of the whole, as `rank` contributes it to call number `nth`.
    fn contribution<T: Number>(&self, nth: usize, rank: usize, index: usize) -> T {
        let mut lot = Lot(self.case.seed ^ ((nth * 4096 + rank) as u64) << 40 ^ index as u64);
        let word = lot.draw();
        if self.case.any { T::any(word) } else { T::gentle(word, self.case.op) }
    }

    /// What `wanted` of the whole must become at this rank.
    fn result<T: Number>(&self, order: &Order, nth: usize, wanted: Range<usize>) -> Vec<T> {
        let Case { collective, count, op, .. } = self.case;
        let of = |rank, index| self.contribution::<T>(nth, rank, index);
        match collective {
            Collective::Broadcast { root } | Collective::Scatter { root } => wanted.map(|g| of(root, g)).collect(),
            Collective::Gather { .. } | Collective::AllGather => wanted.map(|g| of(g / count, g)).collect(),
            Collective::AllToAll => wanted.map(|g| of(g / count, self.rank * count + g % count)).collect(),
            Collective::Reduce { .. }
            | Collective::AllReduce
            | Collective::ReduceScatter
            | Collective::Scan
            | Collective::ExclusiveScan => {
                let whole = self.elements(Held::All).len();
                order.combine(whole, wanted, op, of, self.world)
            }
            Collective::Barrier => Vec::new(),
        }
    }
}

/// A buffer with others' memory on both sides.
struct Guarded<T> {
    cells: Vec<T>,
    inner: Range<usize>,
}

impl<T: Number> Guarded<T> {
    fn new(inner: impl Iterator<Item = T>, lot: &mut Lot) -> Self {
        let mut guard = || (0..lot.below(6)).map(|_| T::any(lot.draw())).collect::<Vec<_>>();
        let (mut cells, after) = (guard(), guard());
        let start = cells.len();
        cells.extend(inner);
        let inner = start..cells.len();
        cells.extend(after);
        Self { cells, inner }
    }

    fn slice(&mut self) -> &mut [T] {
        &mut self.cells[self.inner.clone()]
    }
}

/// One call of a case: its buffers, and how they were before.
struct Round<T> {
    place: Place,
    nth: usize,
    input: Guarded<T>,
    /// In place, the one buffer.
    output: Guarded<T>,
    before: (Vec<T>, Vec<T>),
}

impl<T: Number> Round<T> {
    fn new(place: Place, nth: usize) -> Self {
        let mut lot = Lot(place.case.seed ^ (place.rank * 64 + nth) as u64);
        let mine = |index| place.contribution::<T>(nth, place.rank, index);
        let (input, output) = Self::lent(place);
        let in_place = place.case.in_place();
        let input = Guarded::new(if in_place { 0..0 } else { input }.map(mine), &mut lot);
        // What nobody fills may have any length.
        let nobodys = place.case.collective.output(place.rank) == Held::Nothing && !in_place;
        let spare = if nobodys { lot.below(2) * 3 } else { 0 };
        let foreign = |index| if in_place { mine(index) } else { place.contribution::<T>(nth, 99, index) };
        let output = Guarded::new(output.chain(0..spare).map(foreign), &mut lot);
        let before = (input.cells.clone(), output.cells.clone());
        Self { place, nth, input, output, before }
    }

    /// Which elements of the whole lie in the two buffers.
    fn lent(place: Place) -> (Range<usize>, Range<usize>) {
        let collective = place.case.collective;
        let (input, output) = (collective.input(place.rank), collective.output(place.rank));
        let both = match (input, output) {
            (Held::All, _) | (_, Held::Nothing) => input,
            _ => output,
        };
        let output = if place.case.in_place() { both } else { output };
        (place.elements(input), place.elements(output))
    }

    fn call(&mut self, comm: &mut Communicator) -> maypole::Result<()> {
        let Case { collective, op, .. } = self.place.case;
        let (x, y, in_place) = (&*self.input.slice(), self.output.slice(), self.place.case.in_place());
        match (collective, in_place) {
            (Collective::Broadcast { root }, _) => comm.broadcast(y, root),
            (Collective::Reduce { root }, true) => comm.reduce(y, op, root),
            (Collective::Reduce { root }, false) => comm.reduce_into(x, y, op, root),
            (Collective::AllReduce, true) => comm.all_reduce(y, op),
            (Collective::AllReduce, false) => comm.all_reduce_into(x, y, op),
            (Collective::Gather { root }, true) => comm.gather_in_place(y, root),
            (Collective::Gather { root }, false) => comm.gather(x, y, root),
            (Collective::AllGather, true) => comm.all_gather_in_place(y),
            (Collective::AllGather, false) => comm.all_gather(x, y),
            (Collective::Scatter { root }, true) => comm.scatter_in_place(y, root),
            (Collective::Scatter { root }, false) => comm.scatter(x, y, root),
            (Collective::ReduceScatter, true) => comm.reduce_scatter_in_place(y, op),
            (Collective::ReduceScatter, false) => comm.reduce_scatter(x, y, op),
            (Collective::AllToAll, true) => comm.all_to_all_in_place(y),
            (Collective::AllToAll, false) => comm.all_to_all(x, y),
            (Collective::Scan, true) => comm.scan(y, op),
            (Collective::Scan, false) => comm.scan_into(x, y, op),
            (Collective::ExclusiveScan, true) => comm.exclusive_scan(y, op),
            (Collective::ExclusiveScan, false) => comm.exclusive_scan_into(x, y, op),
            (Collective::Barrier, _) => comm.barrier(),
        }
    }

    /// Compares every element, also those that nobody may touch.
    fn check(&self, order: &Order, algorithm: Algorithm) -> u64 {
        let place = self.place;
        let (_, lent) = Self::lent(place);
        let filled = place.elements(place.case.collective.output(place.rank));
        let result = place.result::<T>(order, self.nth, filled.clone());
        let mut expected = self.before.1.clone();
        if !filled.is_empty() {
            let at = self.output.inner.start + filled.start - lent.start;
            expected[at..at + filled.len()].copy_from_slice(&result);
        }
        self.compare("input", &self.input, &self.before.0, algorithm);
        self.compare("output", &self.output, &expected, algorithm);
        if place.case.collective != Collective::AllReduce {
            return 0;
        }
        self.output.cells[self.output.inner.clone()].iter().fold(1, |hash, it| Lot(hash ^ it.bits()).draw())
    }

    fn compare(&self, which: &str, found: &Guarded<T>, expected: &[T], algorithm: Algorithm) {
        let differs = |at: &usize| found.cells[*at].bits() != expected[*at].bits();
        let Some(at) = (0..expected.len()).find(differs) else { return };
        let (wrong, index) = ((0..expected.len()).filter(differs).count(), at as i64 - found.inner.start as i64);
        let Place { case, world, rank } = self.place;
        panic!(
            "rank {rank} of {world}, call {}: {which}[{index}] is {:?} and must be {:?}; {wrong} of {} are wrong\n\
             in {case:?} by {algorithm}",
            self.nth,
            found.cells[at],
            expected[at],
            found.inner.len()
        );
    }
}

impl Case {
    /// A broadcast has one buffer only.
    fn in_place(&self) -> bool {
        self.in_place || matches!(self.collective, Collective::Broadcast { .. })
    }
}

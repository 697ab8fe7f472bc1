//! One random collective call: its arguments, and the expected value of every byte of its buffers.
#![allow(dead_code, reason = "not every test uses all of it")]

mod forms;
mod lengths;
pub mod number;
mod oracle;

pub use forms::Form;
pub use lengths::Lengths;

use crate::common::SeededRng;
use forms::Call;
use lengths::{Side, elements, lengths};
use maypole::algorithms::Algorithm;
use maypole::schedule::collective::{Collective, HeldChunks};
use maypole::{Arena, Communicator, Factor, ReduceOp};
use maypole::{DataType, bf16, f16};
pub use number::Number;
use oracle::Order;
use proptest::prelude::*;
use proptest::sample::select;
use std::ops::{DerefMut, Range};

/// One call, the same on all ranks.
#[derive(Clone, Debug)]
pub struct Case {
    /// The seed of all numbers.
    seed: u64,
    pub collective: Collective,
    pub kind: DataType,
    pub op: ReduceOp,
    pub lengths: Lengths,
    pub in_place: bool,
    pub algorithm: Option<Algorithm>,
    pub deterministic: bool,
    /// Arbitrary floats, so that the order of combination shows.
    pub any: bool,
    pub form: Form,
    /// How often the call is made before the results are checked.
    repeats: usize,
    /// Registered memory for most of this rank's buffers. The others, or all without an arena, are
    /// vectors.
    pub arena: Option<Arena>,
}

/// Which algorithm a call uses.
#[derive(Clone, Copy, Debug)]
enum Selection {
    Deterministic,
    Automatic,
    Named(Algorithm),
}

/// All types of elements.
pub fn kinds() -> Vec<DataType> {
    DataType::NUMBERS.into_iter().chain([DataType::Bool]).collect()
}

/// Random calls among `world` ranks, in the typed form.
pub fn cases(world: usize) -> impl Strategy<Value = Case> {
    let call = (0..world, 0..11_usize, select(kinds()));
    let call = call.prop_flat_map(move |(root, nth, kind)| {
        let collective = Collective::all(root)[nth];
        let lengths = lengths(collective, kind.size(), world);
        (Just(collective), Just(kind), lengths, operations(collective, kind))
    });
    call.prop_flat_map(|(collective, kind, lengths, op)| {
        // Only calls of fewer bytes are repeated.
        let repeats = if lengths.total() * kind.size() > 20_000 { 1_usize } else { 3 };
        let selection = selections(collective, &lengths);
        let numbers = (any::<u64>(), any::<bool>());
        (Just((collective, kind, op, lengths)), any::<bool>(), selection, numbers, 1..=repeats)
    })
    .prop_map(
        |((collective, kind, op, lengths), in_place, selection, (seed, any), repeats)| Case {
            seed,
            collective,
            kind,
            op,
            in_place: in_place && !lengths.differ(),
            lengths,
            algorithm: match selection {
                Selection::Named(algorithm) => Some(algorithm),
                Selection::Deterministic | Selection::Automatic => None,
            },
            deterministic: matches!(selection, Selection::Deterministic),
            any,
            form: Form::Typed,
            repeats,
            arena: None,
        },
    )
}

impl Case {
    /// A call of `count` elements or blocks of them, on numbers of which every order of combination gives the same bits.
    pub fn gentle(
        (collective, kind, op): (Collective, DataType, ReduceOp),
        count: usize,
        in_place: bool,
        seed: u64,
    ) -> Self {
        let (algorithm, form, arena) = (None, Form::Typed, None);
        let lengths = Lengths::Even(count);
        let (deterministic, any, repeats) = (false, false, 1);
        Self {
            seed,
            collective,
            kind,
            op,
            lengths,
            in_place,
            algorithm,
            deterministic,
            any,
            form,
            repeats,
            arena,
        }
    }

    /// The call as `rank` of `world` ranks sees it.
    pub fn at(&self, rank: usize, world: usize) -> Place<'_> {
        Place { case: self, world, rank }
    }

    /// The same call in a form that `rng` draws.
    pub fn in_any_form(mut self, rng: &mut SeededRng) -> Self {
        self.form = Form::ALL[rng.below(Form::ALL.len())];
        self
    }

    /// Makes the calls on `comm` and compares all buffers with the expected ones. Returns a hash
    /// that must be equal on all ranks.
    pub fn run(&self, comm: &mut Communicator) -> u64 {
        let rank = comm.rank();
        self.try_run(comm).unwrap_or_else(|error| panic!("{error}\nin {self:?} at rank {rank}"))
    }

    /// Like [`run`](Self::run), but returns the error of a call. Then it has compared the results
    /// of the calls before, and the margins of all buffers.
    pub fn try_run(&self, comm: &mut Communicator) -> maypole::Result<u64> {
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
            DataType::Bool => self.run_as::<bool>(comm),
        }
    }

    fn run_as<T: Number>(&self, comm: &mut Communicator) -> maypole::Result<u64> {
        comm.set_algorithm(self.algorithm);
        comm.set_deterministic(self.deterministic);
        let world = comm.world();
        let rank = comm.rank();
        let algorithm = match (&self.lengths, self.algorithm) {
            (_, Some(named)) => named.to_string(),
            (Lengths::Even(count), None) => {
                comm.algorithm(self.collective, *count, self.kind)?.to_string()
            }
            (_, None) => "the tuner's choice".to_owned(),
        };
        let place = Place { case: self, world, rank };
        let order = self.order(algorithm.parse().ok(), comm.boards().numbers(), rank);
        let mut rounds: Vec<_> = (0..self.repeats).map(|nth| Round::<T>::new(place, nth)).collect();
        let mut failure = None;
        let mut done = 0;
        while done < rounds.len() && failure.is_none() {
            failure = rounds[done].call(comm).err();
            done += usize::from(failure.is_none());
        }
        rounds[done..].iter().for_each(Round::check_margins);
        let hashes = rounds[..done].iter().map(|round| round.check(&order, &algorithm));
        let all = hashes.fold(0, |all: u64, hash| all.rotate_left(9) ^ hash);
        failure.map_or(Ok(all), Err)
    }
}

/// The operations that `collective` can use on elements of `kind`.
fn operations(collective: Collective, kind: DataType) -> impl Strategy<Value = ReduceOp> {
    let is_scan = matches!(collective, Collective::Scan | Collective::ExclusiveScan);
    let able = ReduceOp::ALL.iter().copied().filter(move |op| op.supports(kind));
    let able: Vec<ReduceOp> = able.filter(|op| !(is_scan && *op == ReduceOp::Avg)).collect();
    let factors = [1.0, 2.0, 3.0].map(|factor| ReduceOp::PreMulSum(Factor::new(factor)));
    let weight = able.len() as u32;
    let scaled = u32::from(factors[0].supports(kind));
    prop_oneof![weight => select(able), scaled => select(factors.to_vec())]
}

/// The deterministic mode in one of eight cases. In the others, mostly a named algorithm.
fn selections(collective: Collective, lengths: &Lengths) -> BoxedStrategy<Selection> {
    // Bruck's algorithm stores blocks of other ranks in scratch, which must have equal lengths.
    let unequal_pairs = matches!(lengths, Lengths::Pairs(_));
    let able: Vec<Algorithm> = Algorithm::named()
        .filter(|it| it.supports(collective))
        .filter(|it| !(*it == Algorithm::Bruck && unequal_pairs))
        .collect();
    let named = select(able).prop_map(Selection::Named);
    // The order of a reduction with unequal counts follows only from the algorithm.
    if lengths.differ() && collective.reduces() {
        return prop_oneof![1 => Just(Selection::Deterministic), 7 => named].boxed();
    }
    prop_oneof![
        3 => Just(Selection::Deterministic),
        7 => Just(Selection::Automatic),
        14 => named,
    ]
    .boxed()
}

/// A case as one rank sees it.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    pub case: &'a Case,
    pub world: usize,
    pub rank: usize,
}

impl Place<'_> {
    fn starts(&self, rank: usize, side: Side) -> Vec<usize> {
        self.case.lengths.starts(self.case.collective, self.world, rank, side)
    }

    fn elements(&self, held: HeldChunks, side: Side) -> Range<usize> {
        elements(held, &self.starts(self.rank, side))
    }

    /// The elements of the whole that this rank contributes, and those that it gets.
    pub fn held(&self) -> (Range<usize>, Range<usize>) {
        let collective = self.case.collective;
        let input = self.elements(collective.input(self.rank), Side::Input);
        (input, self.elements(collective.output(self.rank), Side::Output))
    }

    /// The numbers that this rank of one host must have after call number `nth` of gentle numbers.
    pub fn expected<T: Number>(&self, nth: usize) -> Vec<T> {
        let order = self.case.order(None, &vec![0; self.world], self.rank);
        self.result(&order, nth, self.held().1)
    }

    /// Element `index` of the whole, as `rank` contributes it to call number `nth`.
    pub fn contribution<T: Number>(&self, nth: usize, rank: usize, index: usize) -> T {
        let seed = self.case.seed ^ ((nth * 4096 + rank) as u64) << 40 ^ index as u64;
        let word = SeededRng::new(seed).next_u64();
        if self.case.any { T::any(word) } else { T::gentle(word, self.case.op, self.world) }
    }

    /// The expected value of `wanted` of the whole at this rank.
    fn result<T: Number>(&self, order: &Order, nth: usize, wanted: Range<usize>) -> Vec<T> {
        let of = |rank, index| self.contribution::<T>(nth, rank, index);
        let starts = self.starts(self.rank, Side::Output);
        match self.case.collective {
            Collective::Broadcast { root } | Collective::Scatter { root } => {
                wanted.map(|g| of(root, g)).collect()
            }
            Collective::Gather { .. } | Collective::AllGather => {
                wanted.map(|g| of(block_of(&starts, g), g)).collect()
            }
            Collective::AllToAll => wanted
                .map(|g| {
                    let from = block_of(&starts, g);
                    of(from, self.starts(from, Side::Input)[self.rank] + g - starts[from])
                })
                .collect(),
            Collective::Reduce { .. }
            | Collective::AllReduce
            | Collective::ReduceScatter
            | Collective::Scan
            | Collective::ExclusiveScan => order.combine(
                &starts,
                wanted,
                self.case.op,
                |rank, index| of(rank, index).prepared(self.case.op_of(rank), self.world),
                self.world,
            ),
            Collective::Barrier => Vec::new(),
        }
    }
}

/// The block that holds element `at`.
fn block_of(starts: &[usize], at: usize) -> usize {
    starts.partition_point(|start| *start <= at) - 1
}

/// A buffer between two margins that the call must not touch.
struct Guarded<T> {
    cells: Box<dyn DerefMut<Target = [T]>>,
    inner: Range<usize>,
}

impl<T: Number> Guarded<T> {
    fn new(inner: impl Iterator<Item = T>, rng: &mut SeededRng, arena: Option<&Arena>) -> Self {
        let mut guard = || (0..rng.below(6)).map(|_| T::any(rng.next_u64())).collect::<Vec<_>>();
        let mut cells = guard();
        let after = guard();
        let start = cells.len();
        cells.extend(inner);
        let inner = start..cells.len();
        cells.extend(after);
        let arena = arena.filter(|_| rng.below(8) > 0);
        Self { cells: in_arena(arena, cells), inner }
    }

    fn slice(&mut self) -> &mut [T] {
        &mut self.cells[self.inner.clone()]
    }
}

/// The same elements in registered memory, if there is an arena.
fn in_arena<T: Number>(arena: Option<&Arena>, cells: Vec<T>) -> Box<dyn DerefMut<Target = [T]>> {
    let Some(arena) = arena else { return Box::new(cells) };
    let mut buffer = arena.alloc(cells.len());
    buffer.copy_from_slice(&cells);
    Box::new(buffer)
}

/// One call of a case: its buffers, and their contents before the call.
struct Round<'a, T> {
    place: Place<'a>,
    nth: usize,
    input: Guarded<T>,
    /// The output; in place, the only buffer.
    output: Guarded<T>,
    before: (Vec<T>, Vec<T>),
}

impl<'a, T: Number> Round<'a, T> {
    fn new(place: Place<'a>, nth: usize) -> Self {
        let mut rng = SeededRng::new(place.case.seed ^ (place.rank * 64 + nth) as u64);
        let mine = |index| place.contribution::<T>(nth, place.rank, index);
        let (input, output) = Self::buffer_ranges(place);
        let in_place = place.case.in_place();
        let arena = place.case.arena.as_ref();
        let input = Guarded::new(if in_place { 0..0 } else { input }.map(mine), &mut rng, arena);
        // An output that the call does not fill may have any length.
        let unfilled = place.case.collective.output(place.rank) == HeldChunks::Nothing && !in_place;
        let spare = if unfilled { rng.below(2) * 3 } else { 0 };
        let foreign =
            |index| if in_place { mine(index) } else { place.contribution::<T>(nth, 99, index) };
        let output = Guarded::new(output.chain(0..spare).map(foreign), &mut rng, arena);
        let before = (input.cells.to_vec(), output.cells.to_vec());
        Self { place, nth, input, output, before }
    }

    /// The elements of the whole that lie in the input buffer and in the output buffer.
    fn buffer_ranges(place: Place<'_>) -> (Range<usize>, Range<usize>) {
        let collective = place.case.collective;
        let input = collective.input(place.rank);
        let output = collective.output(place.rank);
        let both = match (input, output) {
            (HeldChunks::All, _) | (_, HeldChunks::Nothing) => input,
            _ => output,
        };
        let output = if place.case.in_place() { both } else { output };
        (place.elements(input, Side::Input), place.elements(output, Side::Output))
    }

    fn call(&mut self, comm: &mut Communicator) -> maypole::Result<()> {
        let case = self.place.case;
        let call = Call {
            collective: case.collective,
            op: case.op_of(self.place.rank),
            lengths: case.lengths.clone(),
            in_place: case.in_place,
            rank: self.place.rank,
        };
        call.make(case.form, comm, &*self.input.slice(), self.output.slice())
    }

    /// Compares every element, also those of the margins.
    fn check(&self, order: &Order, algorithm: &str) -> u64 {
        let place = self.place;
        let (_, output) = Self::buffer_ranges(place);
        let filled = place.elements(place.case.collective.output(place.rank), Side::Output);
        let result = place.result::<T>(order, self.nth, filled.clone());
        let mut expected = self.before.1.clone();
        if !filled.is_empty() {
            let at = self.output.inner.start + filled.start - output.start;
            expected[at..at + filled.len()].copy_from_slice(&result);
        }
        self.compare("input", &self.input, &self.before.0, algorithm);
        self.compare("output", &self.output, &expected, algorithm);
        if place.case.collective != Collective::AllReduce {
            return 0;
        }
        self.output.cells[self.output.inner.clone()]
            .iter()
            .fold(1, |hash, it| SeededRng::new(hash ^ it.bits()).next_u64())
    }

    /// Compares the margins, which no call may touch, whether or not it fails.
    fn check_margins(&self) {
        for (buffer, before) in [(&self.input, &self.before.0), (&self.output, &self.before.1)] {
            let outside = (0..before.len()).filter(|at| !buffer.inner.contains(at));
            for at in outside {
                let found = buffer.cells[at].bits();
                assert_eq!(
                    found,
                    before[at].bits(),
                    "cell {at} of a margin, {:?}",
                    self.place.case
                );
            }
        }
    }

    fn compare(&self, which: &str, found: &Guarded<T>, expected: &[T], algorithm: &str) {
        let differs = |at: &usize| found.cells[*at].bits() != expected[*at].bits();
        let Some(at) = (0..expected.len()).find(differs) else { return };
        let wrong = (0..expected.len()).filter(differs).count();
        let index = at as i64 - found.inner.start as i64;
        let Place { case, world, rank } = self.place;
        panic!(
            "rank {rank} of {world}, call {}: {which}[{index}] is {:?} and must be {:?}; {wrong} \
             of {} are wrong\nin {case:?} by {algorithm}",
            self.nth,
            found.cells[at],
            expected[at],
            found.inner.len()
        );
    }
}

impl Case {
    /// Every rank has a factor of its own.
    pub fn op_of(&self, rank: usize) -> ReduceOp {
        match self.op {
            ReduceOp::PreMulSum(factor) => {
                ReduceOp::PreMulSum(Factor::new(factor.value() + (rank % 2) as f64))
            }
            op => op,
        }
    }

    /// The order in which the result of `rank` is combined.
    fn order(&self, algorithm: Option<Algorithm>, hosts: &[usize], rank: usize) -> Order {
        let world = hosts.len();
        match (self.collective, algorithm) {
            (collective, Some(algorithm))
                if collective.reduces() && self.any && !self.deterministic =>
            {
                Order::of(algorithm, collective, hosts, rank)
            }
            (Collective::Scan, _) => Order::plain(rank + 1),
            (Collective::ExclusiveScan, _) => Order::plain(rank),
            _ => Order::plain(world),
        }
    }

    /// A broadcast has one buffer only.
    fn in_place(&self) -> bool {
        self.in_place || matches!(self.collective, Collective::Broadcast { .. })
    }
}

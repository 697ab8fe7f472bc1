//! A call of all ranks, as the executor and the emulator run it.

use crate::common::SeededRng;
use crate::common::world::{Operation, World, every_algorithm};
use maypole::execute::{Buffers, Executor};
use maypole::lower::{BufferPlaces, DeviceSlots, LoweringInput, Program, lower, lower_for_device};
use maypole::schedule::collective::Collective;
use maypole::schedule::hosts::Boards;
use maypole::schedule::{Placement, Schedule};
use maypole_kernels::{BinaryOp, BuiltInReducer, DataType, Region, Scalar};
use std::ops::Range;
use std::sync::Mutex;

/// A call of all ranks: its schedules, its type and operation, and where its buffers lie.
#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) operation: Operation,
    pub(crate) placement: Placement,
    pub(crate) kind: DataType,
    pub(crate) op: BinaryOp,
    /// The slots of the emulator. Cases that are called one after another share them.
    pub(crate) slots: DeviceSlots,
    /// On the emulator, this rank announces another call.
    pub(crate) other_rank: Option<usize>,
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:?} {:?} {:?} {:?}, {} ranks, {} elements, windows of {}",
            self.operation.collective,
            self.kind,
            self.op,
            self.placement,
            self.world(),
            self.operation.layout.count(),
            self.operation.window
        )
    }
}

/// One rank's buffers of a call, in one piece of memory.
pub(crate) struct Memory {
    pub(crate) bytes: Vec<u8>,
    pub(crate) places: BufferPlaces,
    pub(crate) input: Range<usize>,
    pub(crate) output: Range<usize>,
}

/// The slots in which publications of at most `bytes` bytes lie: many short ones, or a few, so that
/// ranks also wait for them.
fn slots_for(bytes: usize) -> DeviceSlots {
    match bytes {
        0..=48 => DeviceSlots { bytes: 48, count: 64 },
        49..=1024 => DeviceSlots { bytes: 1024, count: 8 },
        _ => DeviceSlots { bytes: 32 << 10, count: 8 },
    }
}

/// The contents of outputs before the call.
const POISON: u8 = 0xa5;

impl Case {
    pub(crate) fn new(
        collective: Collective,
        schedules: Vec<Schedule>,
        count: usize,
        window: usize,
        fingerprint: u64,
    ) -> Self {
        Self::of(Operation::new(collective, schedules, count, window, fingerprint))
    }

    /// With numbers of 64 bits.
    fn of(operation: Operation) -> Self {
        let kind = DataType::U64;
        let slots = slots_for(operation.window.min(operation.layout.longest() * kind.size()));
        Self {
            operation,
            placement: Placement::Apart,
            kind,
            op: BinaryOp::Sum,
            slots,
            other_rank: None,
        }
    }

    pub(crate) fn with_type(self, kind: DataType, op: BinaryOp) -> Self {
        Self { kind, op, ..self }
    }

    pub(crate) fn world(&self) -> usize {
        self.operation.schedules.len()
    }

    fn lowered(
        &self,
        lower: impl FnOnce(&LoweringInput<'_>) -> Option<Program>,
    ) -> Option<Program> {
        let boards = Boards::new(&vec![0; self.world()]);
        lower(&self.operation.request(&boards, self.kind.size()))
    }

    /// The program that rank `me` of the emulator walks.
    pub(crate) fn lower_for_device(&self, me: usize) -> Program {
        let program =
            self.lowered(|request| lower_for_device(request, self.slots, me, self.placement).ok());
        program.expect("it completes")
    }

    /// The call that rank `rank` announces.
    pub(crate) fn fingerprint_of(&self, rank: usize) -> u32 {
        self.operation.fingerprint as u32 + u32::from(self.other_rank == Some(rank))
    }

    /// The input of rank `me`: numbers of very different sizes, so that sums depend on the order of
    /// the terms. None is a NaN.
    fn contribution(&self, me: usize, len: usize) -> Vec<u8> {
        let mut rng = SeededRng::new((me as u64) << 32 ^ self.operation.fingerprint);
        let value = |_| {
            let number =
                (rng.below(20_001) as f64 - 10_000.0) / 64.0 / f64::from(1 << rng.below(16));
            match Scalar::from_f64(self.kind, number) {
                Some(value) => value.bytes().to_vec(),
                None => rng.next_u64().to_le_bytes()[..self.kind.size()].to_vec(),
            }
        };
        (0..len / self.kind.size()).flat_map(value).collect()
    }

    /// The buffers of rank `me` before the call, for its program.
    pub(crate) fn memory(&self, me: usize, program: &Program) -> Memory {
        let bytes = |it: Range<usize>| it.start * self.kind.size()..it.end * self.kind.size();
        let brought = bytes(self.operation.brings(me));
        let held = bytes(self.operation.holds(me));
        let numbers = self.contribution(me, brought.len());
        let mut bytes = match self.placement {
            Placement::Apart => numbers.clone(),
            Placement::InPlace => vec![POISON; self.operation.layout.count() * self.kind.size()],
        };
        let apart_from = bytes.len().next_multiple_of(16);
        let (input, output) = match self.placement {
            Placement::Apart => {
                bytes.resize(apart_from + held.len(), POISON);
                (0..numbers.len(), apart_from..apart_from + held.len())
            }
            Placement::InPlace => {
                bytes[brought.clone()].copy_from_slice(&numbers);
                (brought, held)
            }
        };
        let input = match self.placement == Placement::InPlace && program.stages_input {
            true => {
                bytes.resize(apart_from, POISON);
                bytes.extend_from_slice(&numbers);
                apart_from..apart_from + numbers.len()
            }
            false => input,
        };
        let places = BufferPlaces { input: input.start, output: output.start };
        Memory { bytes, places, input, output }
    }

    /// Runs the call on the executor of rank `me` and returns its output.
    fn run(&self, me: usize, executor: &mut Executor) -> Result<Vec<u8>, String> {
        let program = self.lowered(|request| lower(request, me, self.placement).ok());
        let program = program.expect("it completes in proof order");
        let memory = self.memory(me, &program);
        let region = Region::new(memory.bytes.len());
        let scratch = Region::new(program.scratch);
        let view = region.view();
        view.fill_from(&memory.bytes);
        let slice = |range: &Range<usize>| view.slice(range.start, range.len());
        let buffers = Buffers {
            input: slice(&memory.input).as_view(),
            output: slice(&memory.output),
            scratch: scratch.view(),
        };
        let reducer = BuiltInReducer::new(self.kind, self.op).into();
        let end = executor.run(&program, &reducer, &buffers);
        end.map_err(|error| format!("rank {me}, {self:?}: {error:?}"))?;
        Ok(slice(&memory.output).as_view().to_vec())
    }
}

/// Each rank's output of each case by the executor.
pub(crate) fn cpu(cases: &[Case]) -> Vec<Vec<Vec<u8>>> {
    let world = cases[0].world();
    let outputs = Mutex::new(vec![vec![Vec::new(); world]; cases.len()]);
    let rank = |me: usize, executor: &mut Executor| {
        cases.iter().enumerate().try_for_each(|(at, case)| {
            let output = case.run(me, executor)?;
            outputs.lock().unwrap()[at][me] = output;
            Ok(())
        })
    };
    World { hosts: vec![0; world], capacity: 1 }.run(rank).unwrap();
    outputs.into_inner().unwrap()
}

/// Every algorithm of the table with every root, cases that share slots in a row.
pub(crate) fn table(world: usize, counts: &[usize], placement: Placement) -> Vec<Case> {
    let operations = every_algorithm(world, counts).into_iter();
    let mut cases: Vec<Case> =
        operations.map(|operation| Case { placement, ..Case::of(operation) }).collect();
    cases.sort_by_key(|case| case.slots.bytes);
    cases
}

//! The buffers of one call on one rank, in the memory of its GPU, and the call itself.

use crate::common::SeededRng;
use crate::gpu_calls::issue;
use crate::plan::{Call, What};
use cudarc::driver::{CudaSlice, CudaStream, CudaView, CudaViewMut, DeviceRepr, DriverError};
use maypole::cuda::{Comm, Group};
use maypole::schedule::collective::Collective;
use maypole::{DataType, ReduceOp, Result, bf16, f16};
use maypole_tests::case::{Case, Number};
use std::ops::Range;
use std::sync::Arc;

/// The buffers of a call whose numbers have some type.
pub(crate) trait Buffers {
    /// Starts the call.
    fn issue(&mut self, comm: &Comm) -> Result<()>;
    /// Adds the call to a group.
    fn add<'g>(&'g mut self, group: &mut Group<'g>) -> Result<()>;
    /// Puts the numbers of replay `nth` into the buffers, by the stream.
    fn load(&mut self, nth: usize, stream: &Arc<CudaStream>) -> Driven;
    /// Keeps the result of replay `nth`, by the stream.
    fn save(&mut self, nth: usize, stream: &Arc<CudaStream>) -> Driven;
    /// Compares the result of replay `nth`, or of the only call, with the oracle.
    fn check(&self, nth: usize, stream: &Arc<CudaStream>) -> Checked;
    /// Compares the margins of the buffers, which no call may touch, whether or not it fails.
    fn check_margins(&self, stream: &Arc<CudaStream>) -> Checked;
}

type Driven = std::result::Result<(), DriverError>;
/// `Ok(Some)` describes a difference.
pub(crate) type Checked = std::result::Result<Option<String>, DriverError>;

/// The buffers of `call` for `rank` of its group of `world` ranks, filled by `stream`.
pub(crate) fn buffers(
    call: &Call,
    rank: usize,
    world: usize,
    stream: &Arc<CudaStream>,
) -> std::result::Result<Box<dyn Buffers>, DriverError> {
    macro_rules! of {
        ($($kind:ident: $number:ty),*) => {
            match call.kind {
                $(DataType::$kind => Box::new(Typed::<$number>::new(call, rank, world, stream)?),)*
                DataType::Bool => unreachable!("calls are drawn from the number types"),
            }
        };
    }
    Ok(of! {
        I8: i8, I16: i16, I32: i32, I64: i64, U8: u8, U16: u16, U32: u32, U64: u64,
        F16: f16, BF16: bf16, F32: f32, F64: f64
    })
}

/// Elements in memory of a GPU between two margins.
struct Guarded<T> {
    cells: CudaSlice<T>,
    inner: Range<usize>,
    /// The contents of the cells before the call.
    before: Vec<T>,
}

impl<T: Number + DeviceRepr> Guarded<T> {
    fn new(
        inner: Vec<T>,
        rng: &mut SeededRng,
        stream: &Arc<CudaStream>,
    ) -> std::result::Result<Self, DriverError> {
        let mut margin = |least| {
            let count = least + rng.below(6);
            (0..count).map(|_| T::any(rng.next_u64())).collect::<Vec<_>>()
        };
        let mut before = margin(0);
        let start = before.len();
        before.extend(inner);
        let inner = start..before.len();
        // An allocation of no bytes is an error of the driver.
        before.extend(margin(1));
        Ok(Self { cells: stream.clone_htod(&before)?, inner, before })
    }

    fn view(&self) -> CudaView<'_, T> {
        self.cells.slice(self.inner.clone())
    }

    fn view_mut(&mut self) -> CudaViewMut<'_, T> {
        self.cells.slice_mut(self.inner.clone())
    }

    /// Compares the contents of the cells with `expected`, outside of `except`.
    fn compare(
        &self,
        which: &str,
        found: &[T],
        expected: &[T],
        except: impl Fn(usize) -> bool,
    ) -> Option<String> {
        let differs = |at: &usize| !except(*at) && found[*at].bits() != expected[*at].bits();
        let first = (0..found.len()).find(differs)?;
        let wrong = (0..found.len()).filter(differs).count();
        let (index, len) = (first as i64 - self.inner.start as i64, self.inner.len());
        let (found, expected) = (found[first], expected[first]);
        Some(format!(
            "{which}[{index}] of {len} is {found:?} and must be {expected:?}; {wrong} are wrong"
        ))
    }
}

struct Typed<T> {
    what: What,
    case: Case,
    rank: usize,
    world: usize,
    input: Guarded<T>,
    /// In place, the only buffer.
    output: Guarded<T>,
    /// The elements of the output that the call fills.
    result: Range<usize>,
    /// By replay: the buffers before it, and the output after it.
    replays: Vec<[CudaSlice<T>; 3]>,
}

impl<T: Number + DeviceRepr> Typed<T> {
    fn new(
        call: &Call,
        rank: usize,
        world: usize,
        stream: &Arc<CudaStream>,
    ) -> std::result::Result<Self, DriverError> {
        let (case, in_place) = match call.what {
            What::Collective { collective, op, in_place } => {
                let what = (collective, call.kind, op);
                (Case::gentle(what, call.count, in_place, call.seed), in_place)
            }
            _ => {
                let what = (Collective::AllReduce, call.kind, ReduceOp::Max);
                (Case::gentle(what, call.count, false, call.seed), false)
            }
        };
        let place = case.at(rank, world);
        let mut rng = SeededRng::new(call.seed ^ (rank as u64) << 32);
        let (input, result) = match call.what.peers(rank, world) {
            _ if matches!(call.what, What::Collective { .. }) => place.held(),
            (from, to) => (0..to.map_or(0, |_| call.count), 0..from.map_or(0, |_| call.count)),
        };
        // In place, the one buffer is for both.
        let is_input_longer = in_place && input.len() > result.len();
        let covered = if is_input_longer { input.clone() } else { result.clone() };
        let input = if in_place { 0..0 } else { input };
        let numbers = |nth, rank, range: Range<usize>| -> Vec<T> {
            range.map(|at| place.contribution::<T>(nth, rank, at)).collect()
        };
        // Apart, the output has numbers of another rank.
        let filled = |nth| numbers(nth, if in_place { rank } else { 63 }, covered.clone());
        let input_of = |nth| numbers(nth, rank, input.clone());
        let input = Guarded::new(input_of(0), &mut rng, stream)?;
        let output = Guarded::new(filled(0), &mut rng, stream)?;
        let with = |buffer: &Guarded<T>, inner: Vec<T>| {
            let mut cells = buffer.before.clone();
            cells[buffer.inner.clone()].copy_from_slice(&inner);
            stream.clone_htod(&cells)
        };
        let replay = |nth| {
            let before = with(&output, filled(nth))?;
            Ok([with(&input, input_of(nth))?, before.clone(), before])
        };
        let replays = (0..call.replays).map(replay).collect::<std::result::Result<_, _>>()?;
        let start = result.start - covered.start.min(result.start);
        let result = start..start + result.len();
        Ok(Self { what: call.what, case, rank, world, input, output, result, replays })
    }

    /// The numbers that this rank must have after replay `nth`.
    fn expected(&self, nth: usize) -> Vec<T> {
        let place = self.case.at(self.rank, self.world);
        match self.what.peers(self.rank, self.world).0 {
            Some(from) => self.result.clone().map(|at| place.contribution(nth, from, at)).collect(),
            None if self.result.is_empty() => Vec::new(),
            None => place.expected(nth),
        }
    }
}

impl<T: Number + DeviceRepr> Buffers for Typed<T> {
    fn issue(&mut self, comm: &Comm) -> Result<()> {
        let (from, to) = self.what.peers(self.rank, self.world);
        let What::Collective { collective, in_place, .. } = self.what else {
            if from.is_some() && to.is_some() {
                let mut group = comm.group();
                self.add(&mut group)?;
                return group.end();
            }
            let sent = to.map(|to| comm.send(&self.input.view(), to as i32));
            let received = from.map(|from| comm.recv(&mut self.output.view_mut(), from as i32));
            return sent.or(received).unwrap_or(Ok(()));
        };
        let op = self.case.op_of(self.rank);
        let (x, mut y) = (self.input.view(), self.output.view_mut());
        issue(comm, (collective, op), in_place, (&x, &mut y))
    }

    fn add<'g>(&'g mut self, group: &mut Group<'g>) -> Result<()> {
        let (from, to) = self.what.peers(self.rank, self.world);
        let What::Collective { collective, in_place, .. } = self.what else {
            if let Some(to) = to {
                group.send(self.input.view(), to as i32)?;
            }
            let Some(from) = from else { return Ok(()) };
            return group.recv(self.output.view_mut(), from as i32);
        };
        let root = collective.root().unwrap_or(0) as i32;
        let op = self.case.op_of(self.rank);
        let x = self.input.view();
        let y = self.output.view_mut();
        match (collective, in_place) {
            (Collective::Broadcast { .. }, true) => group.broadcast_in_place(y, root),
            (Collective::Broadcast { .. }, false) => group.broadcast(Some(x), y, root),
            (Collective::Reduce { .. }, true) => group.reduce_in_place(y, &op, root),
            (Collective::Reduce { .. }, false) => group.reduce(x, Some(y), &op, root),
            (Collective::AllReduce, true) => group.all_reduce_in_place(y, &op),
            (Collective::AllReduce, false) => group.all_reduce(x, y, &op),
            (Collective::AllGather, _) => group.all_gather(x, y),
            (Collective::ReduceScatter, _) => group.reduce_scatter(x, y, &op),
            _ => unreachable!("a group has no {}", collective.name()),
        }
    }

    fn load(&mut self, nth: usize, stream: &Arc<CudaStream>) -> Driven {
        stream.memcpy_dtod(&self.replays[nth][0], &mut self.input.cells)?;
        stream.memcpy_dtod(&self.replays[nth][1], &mut self.output.cells)
    }

    fn save(&mut self, nth: usize, stream: &Arc<CudaStream>) -> Driven {
        stream.memcpy_dtod(&self.output.cells, &mut self.replays[nth][2])
    }

    fn check(&self, nth: usize, stream: &Arc<CudaStream>) -> Checked {
        let found = match self.replays.get(nth) {
            Some([_, _, after]) => stream.clone_dtoh(after)?,
            None => stream.clone_dtoh(&self.output.cells)?,
        };
        let result = self.output.inner.start + self.result.start;
        let result = result..result + self.result.len();
        let mut expected = self.output.before.clone();
        expected[result.clone()].copy_from_slice(&self.expected(nth));
        let inner = self.output.inner.clone();
        // In place, a call may use the bytes outside its result.
        let except = |at| inner.contains(&at) && !result.contains(&at);
        let wrong = self.output.compare("output", &found, &expected, except);
        if wrong.is_some() || !self.replays.is_empty() {
            return Ok(wrong);
        }
        let found = stream.clone_dtoh(&self.input.cells)?;
        Ok(self.input.compare("input", &found, &self.input.before, |_| false))
    }

    fn check_margins(&self, stream: &Arc<CudaStream>) -> Checked {
        for (which, buffer) in [("input", &self.input), ("output", &self.output)] {
            let found = stream.clone_dtoh(&buffer.cells)?;
            let within = |at| buffer.inner.contains(&at);
            let wrong = buffer.compare(which, &found, &buffer.before, within);
            if wrong.is_some() {
                return Ok(wrong.map(|it| format!("a margin was written: {it}")));
            }
        }
        Ok(None)
    }
}

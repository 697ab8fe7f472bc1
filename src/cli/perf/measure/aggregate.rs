//! Many small buffers: each reduced by a call of its own, or all by one call.

use crate::perf::benchmark::{BenchmarkPoint, CallParameters};
use crate::perf::buffer::AlignedBuffer;
use crate::perf::check::oracle::Oracle;
use crate::perf::measure::batch::{CallBatch, SampledWork, Times};
use bytemuck::Pod;
use maypole::algorithms::Algorithm;
use maypole::{Communicator, Element, ReduceOp, Result};
use maypole_transports::clock::monotonic_ns;

/// How many buffers are reduced in a round, and how.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Aggregate {
    pub(crate) buffers: usize,
    /// By one call for all of them, instead of one for each.
    pub(crate) is_fused: bool,
    /// How many times as fast as one call for each.
    pub(crate) speedup: Option<f64>,
}

type RoundFunction = fn(&mut Communicator, ReduceOp, &mut [AlignedBuffer], bool) -> Result<()>;

/// All-reduces in place of several buffers. A call of a batch is a round.
pub(crate) struct AggregateWork<'a> {
    point: BenchmarkPoint,
    op: ReduceOp,
    rank: usize,
    oracle: &'a Oracle,
    is_fused: bool,
    round: RoundFunction,
    /// Those of the checked round, and of all others.
    once: Vec<AlignedBuffer>,
    often: Vec<AlignedBuffer>,
}

impl<'a> AggregateWork<'a> {
    /// Makes the buffers.
    ///
    /// # Errors
    ///
    /// If there is no memory for them.
    pub(crate) fn new(
        parameters: CallParameters,
        point: BenchmarkPoint,
        aggregate: Aggregate,
        rank: usize,
        oracle: &'a Oracle,
    ) -> anyhow::Result<Self> {
        let bytes = point.count * parameters.kind.size();
        let buffers = || {
            let offset = |nth| parameters.offset.of(rank, nth, parameters.kind.size());
            let buffer = |nth| AlignedBuffer::try_new(None, bytes, offset(nth));
            (0..aggregate.buffers).map(buffer).collect::<anyhow::Result<Vec<_>>>()
        };
        let (once, often) = (buffers()?, buffers()?);
        let round = maypole::with_type!(parameters.kind, T => pointer::<T>());
        let (op, is_fused) = (parameters.op, aggregate.is_fused);
        Ok(Self { point, op, rank, oracle, is_fused, round, once, often })
    }
}

const fn pointer<T: Element + Pod>() -> RoundFunction {
    round::<T>
}

/// Reduces all buffers, by one call or by one each.
fn round<T: Element + Pod>(
    comm: &mut Communicator,
    op: ReduceOp,
    buffers: &mut [AlignedBuffer],
    is_fused: bool,
) -> Result<()> {
    if is_fused {
        return comm.all_reduce_many::<T, _>(buffers, op);
    }
    buffers.iter_mut().try_for_each(|buffer| comm.all_reduce(buffer.as_mut_slice::<T>(), op))
}

impl SampledWork for AggregateWork<'_> {
    fn fill(&mut self, batch: &CallBatch) {
        let others = self.often.iter_mut().enumerate().filter(|_| batch.calls > 1);
        for (nth, buffer) in self.once.iter_mut().enumerate().chain(others) {
            let number = batch.beside(nth).number;
            self.oracle.write(buffer.bytes_mut(), self.rank, number, 0..self.point.count);
        }
    }

    fn run(&mut self, comm: &mut Communicator, batch: &CallBatch) -> Result<Times> {
        let start = monotonic_ns();
        for index in 0..batch.calls {
            if batch.begins(index) {
                let is_checked = index == batch.checked;
                let buffers = if is_checked { &mut self.once } else { &mut self.often };
                (self.round)(comm, self.op, buffers, self.is_fused)?;
            }
        }
        Ok((start, monotonic_ns()))
    }

    fn wrong(&self, batch: &CallBatch) -> u64 {
        let wrong = |(nth, buffer): (usize, &AlignedBuffer)| {
            let number = batch.beside(nth).number;
            self.oracle.wrong(&self.point, self.rank, number, buffer.bytes())
        };
        self.once.iter().enumerate().map(wrong).sum()
    }

    fn algorithm(&self) -> Option<Algorithm> {
        self.point.algorithm
    }
}

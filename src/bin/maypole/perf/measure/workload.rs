//! One collective at one size in one place: its buffers, and a batch of calls.

use crate::perf::benchmark::{BenchmarkPoint, BufferPlacement, CallParameters};
use crate::perf::buffer::AlignedBuffer;
use crate::perf::check::oracle::{Oracle, POISON};
use bytemuck::Pod;
use maypole::schedule::collective::Collective;
use maypole::{Communicator, Element, ReduceOp, Result};
use maypole_transports::clock::monotonic_ns;
use std::ops::Range;

/// What is called, where, and with what.
pub(crate) struct Workload<'a> {
    pub(crate) point: BenchmarkPoint,
    oracle: &'a Oracle,
    place: BufferPlacement,
    rank: usize,
    size: usize,
    op: ReduceOp,
    run: BatchFunction,
    /// Elements of the whole that this rank brings, gets, and that a buffer holds.
    brings: Range<usize>,
    gets: Range<usize>,
    holds: Range<usize>,
    buffers: WorkloadBuffers,
}

/// All calls of a batch but one share a buffer, as the peers' do. The one that is checked has its
/// own: in place the others go on with what they computed before, and out of place their results
/// would hide that it did nothing.
struct WorkloadBuffers {
    input: AlignedBuffer,
    often: AlignedBuffer,
    once: AlignedBuffer,
}

/// A batch of back-to-back calls.
#[derive(Clone, Copy)]
pub(crate) struct CallBatch {
    /// Inputs follow from this.
    pub(crate) number: u64,
    pub(crate) calls: u64,
    /// The one whose result is checked.
    pub(crate) checked: u64,
    /// Calls of the run before this batch.
    pub(crate) before: u64,
    /// Every so-many-th call is left out.
    pub(crate) leave_out: Option<u64>,
}

/// Start and end by the host's clock.
type Times = (u64, u64);
type BatchFunction =
    fn(&mut Communicator, &CallKind, &mut WorkloadBuffers, &CallBatch) -> Result<Times>;

/// Which function of the communicator.
#[derive(Clone, Copy)]
struct CallKind {
    collective: Collective,
    place: BufferPlacement,
    op: ReduceOp,
}

impl<'a> Workload<'a> {
    pub(crate) fn new(
        parameters: CallParameters,
        point: BenchmarkPoint,
        place: BufferPlacement,
        rank: usize,
        oracle: &'a Oracle,
    ) -> Self {
        let brings = point.part(point.collective.input(rank), parameters.world);
        let gets = point.part(point.collective.output(rank), parameters.world);
        let holds = match place {
            BufferPlacement::OutOfPlace => gets.clone(),
            BufferPlacement::InPlace => around(&brings, &gets),
        };
        let size = parameters.kind.size();
        let input = if place == BufferPlacement::OutOfPlace { brings.len() } else { 0 };
        let buffers = WorkloadBuffers {
            input: AlignedBuffer::new(input * size),
            often: AlignedBuffer::new(holds.len() * size),
            once: AlignedBuffer::new(holds.len() * size),
        };
        let run = crate::perf::for_each_type!(parameters.kind, pointer);
        Self {
            point,
            oracle,
            place,
            rank,
            size,
            op: parameters.op,
            run,
            brings,
            gets,
            holds,
            buffers,
        }
    }

    /// New inputs for the batch, and outputs that no call has written.
    pub(crate) fn fill(&mut self, batch: &CallBatch) {
        let Self { oracle, rank, brings, .. } = self;
        match self.place {
            BufferPlacement::OutOfPlace => {
                oracle.write(self.buffers.input.bytes_mut(), *rank, batch.number, brings.clone());
                self.buffers.once.bytes_mut().fill(POISON);
                if batch.calls > 1 {
                    self.buffers.often.bytes_mut().fill(POISON);
                }
            }
            BufferPlacement::InPlace => {
                let within = within(&self.holds, brings, self.size);
                let buffers = [
                    Some(&mut self.buffers.once),
                    (batch.calls > 1).then_some(&mut self.buffers.often),
                ];
                for buffer in buffers.into_iter().flatten() {
                    buffer.bytes_mut().fill(POISON);
                    oracle.write(
                        &mut buffer.bytes_mut()[within.clone()],
                        *rank,
                        batch.number,
                        brings.clone(),
                    );
                }
            }
        }
    }

    /// The calls themselves, on the clock. The communicator must have been told the algorithm.
    pub(crate) fn run(&mut self, comm: &mut Communicator, batch: &CallBatch) -> Result<Times> {
        let what = CallKind { collective: self.point.collective, place: self.place, op: self.op };
        (self.run)(comm, &what, &mut self.buffers, batch)
    }

    /// Wrong elements of the batch's checked call; out of place also of the last of the others,
    /// which had the same input.
    pub(crate) fn wrong(&self, batch: &CallBatch) -> u64 {
        let within = within(&self.holds, &self.gets, self.size);
        let wrong = |buffer: &AlignedBuffer| {
            self.oracle.wrong(&self.point, self.rank, batch.number, &buffer.bytes()[within.clone()])
        };
        let others = self.place == BufferPlacement::OutOfPlace && batch.calls > 1;
        wrong(&self.buffers.once) + if others { wrong(&self.buffers.often) } else { 0 }
    }
}

/// The smallest range with both in it; empty ones have no place.
fn around(a: &Range<usize>, b: &Range<usize>) -> Range<usize> {
    match (a.is_empty(), b.is_empty()) {
        (true, _) => b.clone(),
        (_, true) => a.clone(),
        _ => a.start.min(b.start)..a.end.max(b.end),
    }
}

/// The bytes of elements `part` in a buffer of elements `whole`.
fn within(whole: &Range<usize>, part: &Range<usize>, size: usize) -> Range<usize> {
    if part.is_empty() {
        return 0..0;
    }
    (part.start - whole.start) * size..(part.end - whole.start) * size
}

const fn pointer<T: Element + Pod>() -> BatchFunction {
    run::<T>
}

/// Nothing but calls between the two looks at the clock.
fn run<T: Element + Pod>(
    comm: &mut Communicator,
    what: &CallKind,
    buffers: &mut WorkloadBuffers,
    batch: &CallBatch,
) -> Result<Times> {
    let input: &[T] = buffers.input.as_slice();
    let often: &mut [T] = buffers.often.as_mut_slice();
    let once: &mut [T] = buffers.once.as_mut_slice();
    let start = monotonic_ns();
    for index in 0..batch.calls {
        if batch.leave_out.is_some_and(|every| (batch.before + index + 1).is_multiple_of(every)) {
            continue;
        }
        let output = if index == batch.checked { &mut *once } else { &mut *often };
        call(comm, what, input, output)?;
    }
    Ok((start, monotonic_ns()))
}

#[inline]
fn call<T: Element>(
    comm: &mut Communicator,
    what: &CallKind,
    input: &[T],
    output: &mut [T],
) -> Result<()> {
    let op = what.op;
    match (what.collective, what.place) {
        (Collective::Broadcast { root }, _) => comm.broadcast(output, root),
        (Collective::Reduce { root }, BufferPlacement::OutOfPlace) => {
            comm.reduce_into(input, output, op, root)
        }
        (Collective::Reduce { root }, BufferPlacement::InPlace) => comm.reduce(output, op, root),
        (Collective::AllReduce, BufferPlacement::OutOfPlace) => {
            comm.all_reduce_into(input, output, op)
        }
        (Collective::AllReduce, BufferPlacement::InPlace) => comm.all_reduce(output, op),
        (Collective::Gather { root }, BufferPlacement::OutOfPlace) => {
            comm.gather(input, output, root)
        }
        (Collective::Gather { root }, BufferPlacement::InPlace) => {
            comm.gather_in_place(output, root)
        }
        (Collective::AllGather, BufferPlacement::OutOfPlace) => comm.all_gather(input, output),
        (Collective::AllGather, BufferPlacement::InPlace) => comm.all_gather_in_place(output),
        (Collective::Scatter { root }, BufferPlacement::OutOfPlace) => {
            comm.scatter(input, output, root)
        }
        (Collective::Scatter { root }, BufferPlacement::InPlace) => {
            comm.scatter_in_place(output, root)
        }
        (Collective::ReduceScatter, BufferPlacement::OutOfPlace) => {
            comm.reduce_scatter(input, output, op)
        }
        (Collective::ReduceScatter, BufferPlacement::InPlace) => {
            comm.reduce_scatter_in_place(output, op)
        }
        (Collective::AllToAll, BufferPlacement::OutOfPlace) => comm.all_to_all(input, output),
        (Collective::AllToAll, BufferPlacement::InPlace) => comm.all_to_all_in_place(output),
        (Collective::Scan, BufferPlacement::OutOfPlace) => comm.scan_into(input, output, op),
        (Collective::Scan, BufferPlacement::InPlace) => comm.scan(output, op),
        (Collective::ExclusiveScan, BufferPlacement::OutOfPlace) => {
            comm.exclusive_scan_into(input, output, op)
        }
        (Collective::ExclusiveScan, BufferPlacement::InPlace) => comm.exclusive_scan(output, op),
        (Collective::Barrier, _) => comm.barrier(),
    }
}

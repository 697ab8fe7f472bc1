//! The buffers and the calls of one point in one placement.

use crate::perf::benchmark::{BenchmarkPoint, BufferPlacement, CallParameters};
use crate::perf::buffer::AlignedBuffer;
use crate::perf::check::oracle::{Oracle, POISON};
#[cfg(feature = "cuda")]
use crate::perf::measure::device::{self, DeviceWork};
use bytemuck::Pod;
use maypole::schedule::Schedule;
use maypole::schedule::collective::Collective;
use maypole::{Arena, Communicator, Element, ReduceOp, Result};
use maypole_transports::clock::monotonic_ns;
use std::ops::Range;
#[cfg(feature = "cuda")]
use std::sync::Arc;

/// A collective with its buffers.
pub(crate) struct Workload<'a> {
    pub(crate) point: BenchmarkPoint,
    oracle: &'a Oracle,
    place: BufferPlacement,
    rank: usize,
    size: usize,
    op: ReduceOp,
    /// The schedules of all ranks that are run instead of the library's.
    own: Option<&'a [Schedule]>,
    run: BatchFunction,
    /// The elements of the whole that this rank's input holds, that its output holds, and that a
    /// buffer holds.
    input_range: Range<usize>,
    output_range: Range<usize>,
    buffer_range: Range<usize>,
    buffers: WorkloadBuffers,
    /// The same buffers on a GPU, if the calls are made there.
    #[cfg(feature = "cuda")]
    device: Option<Box<dyn DeviceWork>>,
}

/// The buffers of a batch. All calls but the checked one share `often`, as in other benchmarks.
/// The checked call has the buffer `once`: in place, the other calls compute on earlier results;
/// out of place, their results would hide a checked call that did nothing.
pub(crate) struct WorkloadBuffers {
    pub(crate) input: AlignedBuffer,
    pub(crate) often: AlignedBuffer,
    pub(crate) once: AlignedBuffer,
}

/// The elements of the whole that the buffers of one rank hold.
pub(crate) struct BufferRanges {
    /// Those that are input, and those that become output.
    input: Range<usize>,
    output: Range<usize>,
    /// Those in the buffer of an input alone, and in each buffer of an output.
    pub(crate) input_buffer: Range<usize>,
    pub(crate) buffer: Range<usize>,
}

/// What the buffers of `rank` hold at `point`.
pub(crate) fn buffer_ranges(
    point: &BenchmarkPoint,
    place: BufferPlacement,
    rank: usize,
    world: usize,
) -> BufferRanges {
    let input = point.part(point.collective.input(rank), world);
    let output = point.part(point.collective.output(rank), world);
    let (input_buffer, buffer) = match place {
        BufferPlacement::OutOfPlace => (input.clone(), output.clone()),
        BufferPlacement::InPlace => (0..0, around(&input, &output)),
    };
    BufferRanges { input, output, input_buffer, buffer }
}

/// The bytes of an arena that has room for the buffers of `rank` at each of `points`, one point
/// after the other.
pub(crate) fn arena_bytes(
    parameters: CallParameters,
    points: &[BenchmarkPoint],
    rank: usize,
) -> usize {
    let CallParameters { kind, world, offset, .. } = parameters;
    let of_place = |point: &BenchmarkPoint, place: BufferPlacement| {
        let ranges = buffer_ranges(point, place, rank, world);
        let bytes =
            |range: &Range<usize>| AlignedBuffer::arena_bytes(range.len() * kind.size(), offset);
        bytes(&ranges.input_buffer) + 2 * bytes(&ranges.buffer)
    };
    let places = points
        .iter()
        .flat_map(|point| point.placements().iter().map(move |place| of_place(point, *place)));
    places.max().unwrap_or(0)
}

/// A batch of back-to-back calls.
#[derive(Clone, Copy)]
pub(crate) struct CallBatch {
    /// The seed of the inputs.
    pub(crate) number: u64,
    pub(crate) calls: u64,
    /// The index of the call whose result is checked.
    pub(crate) checked: u64,
    /// The number of calls before this batch.
    pub(crate) before: u64,
    /// Leave out every call with a number divisible by this.
    pub(crate) leave_out: Option<u64>,
}

/// Nanoseconds of the machine's clock at the start and at the end.
pub(crate) type Times = (u64, u64);
type BatchFunction =
    fn(&mut Communicator, &CallKind<'_>, &mut WorkloadBuffers, &CallBatch) -> Result<Times>;

/// The function of the communicator to call.
#[derive(Clone, Copy)]
pub(crate) struct CallKind<'a> {
    pub(crate) collective: Collective,
    pub(crate) place: BufferPlacement,
    pub(crate) op: ReduceOp,
    /// The schedules of all ranks, if the call is to run them.
    pub(crate) own: Option<&'a [Schedule]>,
}

impl<'a> Workload<'a> {
    /// Makes the buffers, in `arena` if there is one.
    ///
    /// # Errors
    ///
    /// If there is no memory for them.
    pub(crate) fn new(
        parameters: CallParameters,
        point: BenchmarkPoint,
        place: BufferPlacement,
        rank: usize,
        oracle: &'a Oracle,
        arena: Option<&Arena>,
    ) -> anyhow::Result<Self> {
        let ranges = buffer_ranges(&point, place, rank, parameters.world);
        let CallParameters { kind, offset, .. } = parameters;
        let size = kind.size();
        let buffer =
            |range: &Range<usize>| AlignedBuffer::try_new(arena, range.len() * size, offset);
        let buffers = WorkloadBuffers {
            input: buffer(&ranges.input_buffer)?,
            often: buffer(&ranges.buffer)?,
            once: buffer(&ranges.buffer)?,
        };
        let run = maypole::with_type!(parameters.kind, T => pointer::<T>());
        Ok(Self {
            point,
            oracle,
            place,
            rank,
            size,
            op: parameters.op,
            own: None,
            run,
            input_range: ranges.input,
            output_range: ranges.output,
            buffer_range: ranges.buffer,
            buffers,
            #[cfg(feature = "cuda")]
            device: None,
        })
    }

    /// The same workload by the schedules of all ranks, if there are any.
    pub(crate) fn by(self, own: Option<&'a [Schedule]>) -> Self {
        Self { own, ..self }
    }

    /// True if the schedules of a user are run.
    pub(crate) fn is_own(&self) -> bool {
        self.own.is_some()
    }

    /// The same workload on the GPU of `comm`.
    ///
    /// # Errors
    ///
    /// If there is no memory for the buffers.
    #[cfg(feature = "cuda")]
    pub(crate) fn on_device(
        mut self,
        comm: &Arc<maypole::cuda::Comm>,
        kind: maypole::DataType,
    ) -> anyhow::Result<Self> {
        let make = maypole::with_type!(kind, T => device_work::<T>());
        self.device = Some(make(comm, &self.buffers)?);
        Ok(self)
    }

    /// Copies the inputs of a batch to where the calls are made.
    pub(crate) fn upload(&mut self) -> Result<()> {
        #[cfg(feature = "cuda")]
        if let Some(device) = &mut self.device {
            device.upload(&self.buffers)?;
        }
        Ok(())
    }

    /// Copies the results of a batch back.
    pub(crate) fn download(&mut self) -> Result<()> {
        #[cfg(feature = "cuda")]
        if let Some(device) = &mut self.device {
            device.download(&mut self.buffers)?;
        }
        Ok(())
    }

    /// Fills the inputs of a batch and poisons the outputs.
    pub(crate) fn fill(&mut self, batch: &CallBatch) {
        let Self { oracle, rank, input_range, .. } = self;
        match self.place {
            BufferPlacement::OutOfPlace => {
                oracle.write(
                    self.buffers.input.bytes_mut(),
                    *rank,
                    batch.number,
                    input_range.clone(),
                );
                self.buffers.once.bytes_mut().fill(POISON);
                if batch.calls > 1 {
                    self.buffers.often.bytes_mut().fill(POISON);
                }
            }
            BufferPlacement::InPlace => {
                let within = within(&self.buffer_range, input_range, self.size);
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
                        input_range.clone(),
                    );
                }
            }
        }
    }

    /// Makes the calls and times them. The algorithm must be set on the communicator.
    pub(crate) fn run(&mut self, comm: &mut Communicator, batch: &CallBatch) -> Result<Times> {
        let collective = self.point.collective;
        let what = CallKind { collective, place: self.place, op: self.op, own: self.own };
        #[cfg(feature = "cuda")]
        if let Some(device) = &mut self.device {
            return device.run(&what, batch);
        }
        (self.run)(comm, &what, &mut self.buffers, batch)
    }

    /// Wrong elements of the checked call. Out of place also those of the last other call, which
    /// had the same input.
    pub(crate) fn wrong(&self, batch: &CallBatch) -> u64 {
        let within = within(&self.buffer_range, &self.output_range, self.size);
        let wrong = |buffer: &AlignedBuffer| {
            self.oracle.wrong(&self.point, self.rank, batch.number, &buffer.bytes()[within.clone()])
        };
        let others = self.place == BufferPlacement::OutOfPlace && batch.calls > 1;
        wrong(&self.buffers.once) + if others { wrong(&self.buffers.often) } else { 0 }
    }
}

/// The smallest range that contains both; an empty range adds nothing.
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

#[cfg(feature = "cuda")]
type MakeDeviceWork = fn(&Arc<maypole::cuda::Comm>, &WorkloadBuffers) -> MadeDeviceWork;
#[cfg(feature = "cuda")]
type MadeDeviceWork = anyhow::Result<Box<dyn DeviceWork>>;

#[cfg(feature = "cuda")]
const fn device_work<T>() -> MakeDeviceWork
where
    T: Element + Pod + cudarc::driver::DeviceRepr + cudarc::driver::ValidAsZeroBits,
{
    device::work::<T>
}

/// Makes the calls. Between the two readings of the clock there are only calls.
fn run<T: Element + Pod>(
    comm: &mut Communicator,
    what: &CallKind<'_>,
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
    what: &CallKind<'_>,
    input: &[T],
    output: &mut [T],
) -> Result<()> {
    let op = what.op;
    if let Some(schedules) = what.own {
        let schedule = |rank: usize| schedules[rank].clone();
        return match what.place {
            BufferPlacement::OutOfPlace => comm.run(schedule, what.collective, (input, output), op),
            BufferPlacement::InPlace => comm.run(schedule, what.collective, output, op),
        };
    }
    match (what.collective, what.place) {
        (Collective::Broadcast { root }, _) => comm.broadcast(output, root),
        (Collective::Reduce { root }, BufferPlacement::OutOfPlace) => {
            comm.reduce((input, output), op, root)
        }
        (Collective::Reduce { root }, BufferPlacement::InPlace) => comm.reduce(output, op, root),
        (Collective::AllReduce, BufferPlacement::OutOfPlace) => {
            comm.all_reduce((input, output), op)
        }
        (Collective::AllReduce, BufferPlacement::InPlace) => comm.all_reduce(output, op),
        (Collective::Gather { root }, BufferPlacement::OutOfPlace) => {
            comm.gather((input, output), root)
        }
        (Collective::Gather { root }, BufferPlacement::InPlace) => comm.gather(output, root),
        (Collective::AllGather, BufferPlacement::OutOfPlace) => comm.all_gather((input, output)),
        (Collective::AllGather, BufferPlacement::InPlace) => comm.all_gather(output),
        (Collective::Scatter { root }, BufferPlacement::OutOfPlace) => {
            comm.scatter((input, output), root)
        }
        (Collective::Scatter { root }, BufferPlacement::InPlace) => comm.scatter(output, root),
        (Collective::ReduceScatter, BufferPlacement::OutOfPlace) => {
            comm.reduce_scatter((input, output), op)
        }
        (Collective::ReduceScatter, BufferPlacement::InPlace) => comm.reduce_scatter(output, op),
        (Collective::AllToAll, BufferPlacement::OutOfPlace) => comm.all_to_all((input, output)),
        (Collective::AllToAll, BufferPlacement::InPlace) => comm.all_to_all(output),
        (Collective::Scan, BufferPlacement::OutOfPlace) => comm.scan((input, output), op),
        (Collective::Scan, BufferPlacement::InPlace) => comm.scan(output, op),
        (Collective::ExclusiveScan, BufferPlacement::OutOfPlace) => {
            comm.exclusive_scan((input, output), op)
        }
        (Collective::ExclusiveScan, BufferPlacement::InPlace) => comm.exclusive_scan(output, op),
        (Collective::Barrier, _) => comm.barrier(),
    }
}

//! The buffers and the calls of one point in one placement.

use crate::perf::benchmark::{BenchmarkPoint, BufferPlacement, CallParameters};
use crate::perf::buffer::AlignedBuffer;
use crate::perf::check::oracle::{Oracle, POISON};
use crate::perf::measure::batch::{CallBatch, SampledWork, Times};
use crate::perf::measure::calls::{BatchFunction, CallKind, pointer};
#[cfg(feature = "cuda")]
use crate::perf::measure::device::{DeviceBuffer, DeviceBuffers};
use crate::perf::measure::overlap::Beside;
use maypole::algorithms::Algorithm;
use maypole::schedule::Schedule;
use maypole::{Arena, CallPath, Communicator, DataType, ReduceOp, Result};
use std::ops::Range;
#[cfg(feature = "cuda")]
use std::sync::Arc;

/// A collective with its buffers.
pub(crate) struct Workload<'a> {
    pub(crate) point: BenchmarkPoint,
    oracle: &'a Oracle,
    place: BufferPlacement,
    rank: usize,
    kind: DataType,
    op: ReduceOp,
    /// The schedules of all ranks that are run instead of the library's.
    own: Option<&'a [Schedule]>,
    /// The elements that this rank sends to each rank, and receives from each, if blocks have unequal
    /// lengths.
    counts: Option<[Vec<usize>; 2]>,
    run: BatchFunction,
    /// The elements of the whole that this rank's input holds, that its output holds, and that a
    /// buffer holds.
    input_range: Range<usize>,
    output_range: Range<usize>,
    buffer_range: Range<usize>,
    buffers: WorkloadBuffers,
    /// The timed part of a request with concurrent computing, instead of a call that blocks.
    beside: Option<Beside>,
    /// The same buffers on a GPU, if the calls are made there.
    #[cfg(feature = "cuda")]
    device: Option<DeviceBuffers<DeviceBuffer>>,
}

/// The buffers of a batch. All calls but the checked one share `often`, as in other benchmarks.
/// The checked call has the buffer `once`: in place, the other calls compute on earlier results;
/// out of place, their results would hide a checked call that did nothing.
pub(crate) struct WorkloadBuffers {
    pub(crate) input: AlignedBuffer,
    pub(crate) often: AlignedBuffer,
    pub(crate) once: AlignedBuffer,
}

impl WorkloadBuffers {
    /// Prepares each output that the calls of a batch take.
    pub(crate) fn each_output(&mut self, batch: &CallBatch, mut prepare: impl FnMut(&mut [u8])) {
        prepare(self.once.bytes_mut());
        if batch.calls > 1 {
            prepare(self.often.bytes_mut());
        }
    }

    /// What `wrong` finds in the output of the checked call and, with `all`, in those of the others.
    pub(crate) fn wrong(&self, batch: &CallBatch, all: bool, wrong: impl Fn(&[u8]) -> u64) -> u64 {
        let others = if all && batch.calls > 1 { wrong(self.often.bytes()) } else { 0 };
        wrong(self.once.bytes()) + others
    }
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
    let input = point.input(rank, world);
    let output = point.output(rank, world);
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
        let input = buffer(&ranges.input_buffer)?;
        let (often, once) = (buffer(&ranges.buffer)?, buffer(&ranges.buffer)?);
        let buffers = WorkloadBuffers { input, often, once };
        let counts = point.counts(rank);
        let run = maypole::with_type!(parameters.kind, T => pointer::<T>());
        Ok(Self {
            point,
            oracle,
            place,
            rank,
            kind,
            op: parameters.op,
            own: None,
            counts,
            run,
            input_range: ranges.input,
            output_range: ranges.output,
            buffer_range: ranges.buffer,
            buffers,
            beside: None,
            #[cfg(feature = "cuda")]
            device: None,
        })
    }

    /// The same workload by the schedules of all ranks, if there are any.
    pub(crate) fn by(self, own: Option<&'a [Schedule]>) -> Self {
        Self { own, ..self }
    }

    /// Times requests, or computing, from now on.
    pub(crate) fn set_beside(&mut self, beside: Beside) {
        self.beside = Some(beside);
    }

    /// The same workload on the GPU of `comm`.
    ///
    /// # Errors
    ///
    /// If there is no memory for the buffers.
    #[cfg(feature = "cuda")]
    pub(crate) fn on_device(mut self, comm: &Arc<maypole::cuda::Comm>) -> anyhow::Result<Self> {
        self.device = Some(DeviceBuffers::of_calls(comm, &self.buffers)?);
        Ok(self)
    }
}

impl SampledWork for Workload<'_> {
    fn algorithm(&self) -> Option<Algorithm> {
        self.point.algorithm
    }

    /// The library keeps no note of a call by a user's schedules, and runs it through slots and
    /// streams.
    fn kind(&self) -> Option<(&'static str, CallPath)> {
        self.own.map(|_| ("own", CallPath::Staged))
    }

    fn upload(&mut self) -> Result<()> {
        #[cfg(feature = "cuda")]
        if let Some(device) = &mut self.device {
            device.upload(&self.buffers)?;
        }
        Ok(())
    }

    fn download(&mut self) -> Result<()> {
        #[cfg(feature = "cuda")]
        if let Some(device) = &mut self.device {
            device.download(&mut self.buffers)?;
        }
        Ok(())
    }

    fn fill(&mut self, batch: &CallBatch) {
        let Self { oracle, rank, input_range, place, .. } = self;
        let write =
            |bytes: &mut [u8]| oracle.write(bytes, *rank, batch.number, input_range.clone());
        let within = match place {
            BufferPlacement::InPlace => within(&self.buffer_range, input_range, self.kind.size()),
            BufferPlacement::OutOfPlace => 0..0,
        };
        if *place == BufferPlacement::OutOfPlace {
            write(self.buffers.input.bytes_mut());
        }
        self.buffers.each_output(batch, |bytes| {
            bytes.fill(POISON);
            write(&mut bytes[within.clone()]);
        });
    }

    fn run(&mut self, comm: &mut Communicator, batch: &CallBatch) -> Result<Times> {
        let collective = self.point.collective;
        let counts = self.counts.as_ref().map(|counts| counts.each_ref().map(Vec::as_slice));
        let (place, op) = (self.place, self.op);
        let what = CallKind { collective, place, op, own: self.own, counts };
        #[cfg(feature = "cuda")]
        if let Some(device) = &mut self.device {
            return device.call(&what, self.kind, batch);
        }
        (self.run)(comm, &what, &mut self.buffers, batch, self.beside)
    }

    fn wrong(&self, batch: &CallBatch) -> u64 {
        if self.beside.is_some_and(|beside| !beside.calls) {
            return 0;
        }
        let within = within(&self.buffer_range, &self.output_range, self.kind.size());
        let wrong = |bytes: &[u8]| {
            self.oracle.wrong(&self.point, self.rank, batch.number, &bytes[within.clone()])
        };
        // In place, the other calls computed on the results of earlier ones.
        self.buffers.wrong(batch, self.place == BufferPlacement::OutOfPlace, wrong)
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

//! The buffers and the calls of one point in one placement.

use crate::perf::benchmark::{BenchmarkPoint, BufferPlacement, CallParameters};
use crate::perf::buffer::AlignedBuffer;
use crate::perf::check::oracle::{Oracle, POISON};
use crate::perf::measure::batch::{CallBatch, SampledWork, Times};
use crate::perf::measure::calls::{BatchFunction, CallKind, run};
#[cfg(feature = "cuda")]
use crate::perf::measure::device::DeviceBuffers;
use crate::perf::measure::overlap::Beside;
use maypole::algorithms::Algorithm;
use maypole::schedule::Schedule;
use maypole::{Arena, CallPath, Communicator, DataType, Result};
use std::ops::Range;
#[cfg(feature = "cuda")]
use std::sync::Arc;

/// A collective with its buffers.
pub(crate) struct Workload<'a> {
    pub(crate) point: BenchmarkPoint,
    oracle: &'a Oracle,
    place: BufferPlacement,
    rank: usize,
    parameters: CallParameters,
    /// The schedules of all ranks that are run instead of the library's.
    own: Option<&'a [Schedule]>,
    /// The elements that this rank sends to each rank, and receives from each, if blocks have unequal
    /// lengths.
    counts: Option<[Vec<usize>; 2]>,
    run: BatchFunction,
    ranges: BufferRanges,
    pub(crate) buffers: WorkloadBuffers,
    /// The timed part of a request with concurrent computing, instead of a call that blocks.
    beside: Option<Beside>,
}

/// The buffers of a batch. All calls but the checked one share `often`, as in other benchmarks.
/// The checked call has the buffer `once`: in place, the other calls compute on earlier results;
/// out of place, their results would hide a checked call that did nothing.
pub(crate) struct WorkloadBuffers {
    pub(crate) input: AlignedBuffer,
    pub(crate) often: AlignedBuffer,
    pub(crate) once: AlignedBuffer,
    /// The same buffers on a GPU, if the calls are made there.
    #[cfg(feature = "cuda")]
    pub(crate) device: Option<DeviceBuffers>,
}

impl WorkloadBuffers {
    /// An input of `input` bytes and two outputs of `output` bytes, each `offset` bytes past a page
    /// boundary: of `arena`, if there is one.
    ///
    /// # Errors
    ///
    /// If there is no memory for them.
    pub(crate) fn new(
        arena: Option<&Arena>,
        (input, output): (usize, usize),
        offset: usize,
    ) -> anyhow::Result<Self> {
        let buffer = |bytes| AlignedBuffer::try_new(arena, bytes, offset);
        Ok(Self {
            input: buffer(input)?,
            often: buffer(output)?,
            once: buffer(output)?,
            #[cfg(feature = "cuda")]
            device: None,
        })
    }

    /// Makes the same buffers on the GPU of `comm`: each for messages of `message` bytes, or for a
    /// collective.
    ///
    /// # Errors
    ///
    /// If there is no memory for them.
    #[cfg(feature = "cuda")]
    pub(crate) fn on_device(
        &mut self,
        comm: &Arc<maypole::cuda::Comm>,
        message: Option<usize>,
    ) -> anyhow::Result<()> {
        self.device = Some(DeviceBuffers::new(comm, self, message)?);
        Ok(())
    }

    /// Copies all buffers to the GPU, if there is one.
    pub(crate) fn upload(&mut self) -> Result<()> {
        #[cfg(feature = "cuda")]
        if let Some(device) = &mut self.device {
            device.upload([&self.input, &self.often, &self.once])?;
        }
        Ok(())
    }

    /// Copies the results back.
    pub(crate) fn download(&mut self) -> Result<()> {
        #[cfg(feature = "cuda")]
        if let Some(device) = &self.device {
            device.download([&mut self.often, &mut self.once])?;
        }
        Ok(())
    }

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

impl BufferRanges {
    /// The bytes of the elements `part` in the buffer of an output.
    fn within(&self, part: &Range<usize>, kind: DataType) -> Range<usize> {
        if part.is_empty() {
            return 0..0;
        }
        let byte = |element: usize| (element - self.buffer.start) * kind.size();
        byte(part.start)..byte(part.end)
    }
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
        let bytes = |range: &Range<usize>| range.len() * kind.size();
        let lengths = (bytes(&ranges.input_buffer), bytes(&ranges.buffer));
        Ok(Self {
            counts: point.counts(rank),
            point,
            oracle,
            place,
            rank,
            parameters,
            own: None,
            run: maypole::with_type!(kind, T => run::<T>),
            ranges,
            buffers: WorkloadBuffers::new(arena, lengths, offset)?,
            beside: None,
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

    fn fill(&mut self, batch: &CallBatch) -> Result<()> {
        let Self { oracle, rank, ranges, place, .. } = self;
        let write =
            |bytes: &mut [u8]| oracle.write(bytes, *rank, batch.number, ranges.input.clone());
        let within = match place {
            BufferPlacement::InPlace => ranges.within(&ranges.input, self.parameters.kind),
            BufferPlacement::OutOfPlace => 0..0,
        };
        if *place == BufferPlacement::OutOfPlace {
            write(self.buffers.input.bytes_mut());
        }
        self.buffers.each_output(batch, |bytes| {
            bytes.fill(POISON);
            write(&mut bytes[within.clone()]);
        });
        self.buffers.upload()
    }

    fn run(&mut self, comm: &mut Communicator, batch: &CallBatch) -> Result<Times> {
        let collective = self.point.collective;
        let counts = self.counts.as_ref().map(|counts| counts.each_ref().map(Vec::as_slice));
        let (place, op) = (self.place, self.parameters.op);
        let what = CallKind { collective, place, op, own: self.own, counts };
        #[cfg(feature = "cuda")]
        if let Some(device) = &mut self.buffers.device {
            return device.run(batch, |call| call.collective(&what, self.parameters.kind));
        }
        (self.run)(comm, &what, &mut self.buffers, batch, self.beside)
    }

    fn wrong(&mut self, batch: &CallBatch) -> Result<u64> {
        if self.beside.is_some_and(|beside| !beside.calls) {
            return Ok(0);
        }
        self.buffers.download()?;
        let within = self.ranges.within(&self.ranges.output, self.parameters.kind);
        let wrong = |bytes: &[u8]| {
            self.oracle.wrong(&self.point, self.rank, batch.number, &bytes[within.clone()])
        };
        // In place, the other calls computed on the results of earlier ones.
        Ok(self.buffers.wrong(batch, self.place == BufferPlacement::OutOfPlace, wrong))
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

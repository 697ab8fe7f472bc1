//! The buffers of a workload in the memory of a GPU, and the calls on them.

use crate::perf::benchmark::BufferPlacement;
use crate::perf::buffer::AlignedBuffer;
use crate::perf::measure::batch::{CallBatch, Times};
use crate::perf::measure::calls::CallKind;
use crate::perf::measure::workload::WorkloadBuffers;
use anyhow::Context;
use cudarc::driver::{CudaSlice, CudaStream};
use maypole::cuda::{Comm, Lent, RawCall, RawOp, driver};
use maypole::{Communicator, DataType, Result};
use maypole_transports::clock::monotonic_ns;
use std::sync::Arc;

/// Makes the group of the ranks of `comm` on GPUs: the ranks of a host take its GPUs in turn.
/// Collective.
///
/// # Errors
/// If this process sees no GPU.
pub(crate) fn join(comm: &mut Communicator) -> anyhow::Result<Comm> {
    let place = comm.hosts().index(comm.rank());
    let stream = driver()
        .and_then(|driver| driver.context(place % driver.devices().max(1)))
        .context("CUDA unavailable")?
        // Each rank is a thread, and this is its own stream. cudarc keeps no events for it, which
        // would cost as much as a small call.
        .per_thread_stream();
    Ok(Comm::new(comm, stream)?)
}

/// A buffer on a GPU: a part for each message, or one for a collective.
pub(crate) struct DeviceBuffer {
    pub(crate) parts: Vec<CudaSlice<u8>>,
    /// Bytes of a part.
    part: usize,
}

impl DeviceBuffer {
    fn new(
        stream: &Arc<CudaStream>,
        like: &AlignedBuffer,
        message: Option<usize>,
    ) -> anyhow::Result<Self> {
        let len = like.bytes().len();
        let part = message.unwrap_or(len);
        // The driver has no buffer without bytes.
        let new = |_| stream.alloc_zeros(part.max(1)).context("no memory on the GPU for a buffer");
        let parts =
            (0..len.checked_div(part).unwrap_or(1)).map(new).collect::<anyhow::Result<_>>()?;
        Ok(Self { parts, part })
    }

    fn write(&mut self, stream: &Arc<CudaStream>, from: &AlignedBuffer) -> Moved {
        let from = from.bytes().chunks_exact(self.part.max(1));
        self.parts.iter_mut().zip(from).try_for_each(|(part, from)| stream.memcpy_htod(from, part))
    }

    fn read(&self, stream: &Arc<CudaStream>, into: &mut AlignedBuffer) -> Moved {
        let into = into.bytes_mut().chunks_exact_mut(self.part.max(1));
        self.parts.iter().zip(into).try_for_each(|(part, into)| stream.memcpy_dtoh(part, into))
    }
}

type Moved = std::result::Result<(), cudarc::driver::DriverError>;

/// The buffers of a workload or of messages on a GPU.
pub(crate) struct DeviceBuffers {
    comm: Arc<Comm>,
    stream: Arc<CudaStream>,
    input: DeviceBuffer,
    often: DeviceBuffer,
    once: DeviceBuffer,
    /// The message that confirms a window of messages.
    confirmation: CudaSlice<u8>,
}

/// One call on these buffers.
pub(crate) struct DeviceCall<'a> {
    pub(crate) comm: &'a Comm,
    stream: &'a Arc<CudaStream>,
    pub(crate) input: &'a DeviceBuffer,
    pub(crate) output: &'a mut DeviceBuffer,
    pub(crate) confirmation: &'a mut CudaSlice<u8>,
}

impl DeviceBuffers {
    /// Makes the buffers on the GPU of `comm`, for messages of `message` bytes or for a collective.
    ///
    /// # Errors
    /// If there is no memory for them.
    pub(crate) fn new(
        comm: &Arc<Comm>,
        buffers: &WorkloadBuffers,
        message: Option<usize>,
    ) -> anyhow::Result<Self> {
        let stream = comm.stream();
        let new = |like| DeviceBuffer::new(&stream, like, message);
        Ok(Self {
            comm: Arc::clone(comm),
            input: new(&buffers.input)?,
            often: new(&buffers.often)?,
            once: new(&buffers.once)?,
            confirmation: stream.alloc_zeros(1).context("no memory on the GPU")?,
            stream,
        })
    }

    /// Copies the input and the outputs to the GPU.
    pub(crate) fn upload(&mut self, from: [&AlignedBuffer; 3]) -> Result<()> {
        let into = [&mut self.input, &mut self.often, &mut self.once];
        let copied =
            into.into_iter().zip(from).try_for_each(|(into, from)| into.write(&self.stream, from));
        self.finish(copied)
    }

    /// Copies the outputs back.
    pub(crate) fn download(&self, into: [&mut AlignedBuffer; 2]) -> Result<()> {
        let mut from = [&self.often, &self.once].into_iter().zip(into);
        self.finish(from.try_for_each(|(from, into)| from.read(&self.stream, into)))
    }

    /// Waits until the copies are done.
    fn finish(&self, copied: Moved) -> Result<()> {
        let copied = copied.and_then(|()| self.stream.synchronize());
        copied.map_err(|error| failure(&self.comm, format!("the driver reports {error:?}")))
    }

    /// Makes the calls of a batch. Between the two readings of the clock there are only calls, and the wait
    /// until they are done.
    pub(crate) fn run(
        &mut self,
        batch: &CallBatch,
        mut call: impl FnMut(DeviceCall<'_>) -> Result<()>,
    ) -> Result<Times> {
        let Self { comm, stream, input, often, once, confirmation } = self;
        let start = monotonic_ns();
        for index in 0..batch.calls {
            if batch.begins(index) {
                let output = if index == batch.checked { &mut *once } else { &mut *often };
                call(DeviceCall { comm, stream, input, output, confirmation })?;
            }
        }
        comm.synchronize()?;
        Ok((start, monotonic_ns()))
    }
}

impl DeviceCall<'_> {
    /// Makes one call on elements of type `kind`.
    pub(crate) fn collective(self, what: &CallKind<'_>, kind: DataType) -> Result<()> {
        let Self { comm, stream, input, output, .. } = self;
        let failed = |why: String| failure(comm, why);
        let from = Lent::of_view(input.parts[0].slice(..input.part), stream).map_err(failed)?;
        let into = output.parts[0].slice_mut(..output.part);
        let into = Lent::of_view_mut(into, stream).map_err(failed)?;
        let is_apart = what.place == BufferPlacement::OutOfPlace;
        let (input, output) = (is_apart.then_some(from.0), into.0);
        let (collective, op) = (what.collective, RawOp::BuiltIn(what.op));
        comm.call_on(stream, &RawCall { collective, kind, op, input, output })
    }
}

/// The failure of the driver to serve the benchmark on this rank.
fn failure(comm: &Comm, why: String) -> maypole::Error {
    let operation = "using a buffer of the benchmark".to_owned();
    maypole::Error::Device { rank: comm.rank(), operation, why }
}

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
use maypole_transports::cuda::ForeignBuffer;
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

/// Memory of a GPU for a buffer.
pub(crate) trait DeviceCopies {
    /// Copies the bytes of `from` to the GPU.
    fn write(&mut self, stream: &Arc<CudaStream>, from: &AlignedBuffer) -> Moved;

    /// Copies the bytes back.
    fn read(&self, stream: &Arc<CudaStream>, into: &mut AlignedBuffer) -> Moved;
}

/// The buffers of a workload or of messages on a GPU.
pub(crate) struct DeviceBuffers<B> {
    comm: Arc<Comm>,
    stream: Arc<CudaStream>,
    input: B,
    often: B,
    once: B,
}

impl<B: DeviceCopies> DeviceBuffers<B> {
    /// Makes each buffer on the GPU of `comm` by `make`.
    ///
    /// # Errors
    /// Those of `make`.
    pub(crate) fn new(
        comm: &Arc<Comm>,
        buffers: &WorkloadBuffers,
        make: impl Fn(&Arc<CudaStream>, &AlignedBuffer) -> anyhow::Result<B>,
    ) -> anyhow::Result<Self> {
        let stream = comm.stream();
        let WorkloadBuffers { input, often, once } = buffers;
        let (input, often, once) =
            (make(&stream, input)?, make(&stream, often)?, make(&stream, once)?);
        Ok(Self { comm: Arc::clone(comm), stream, input, often, once })
    }

    /// Copies the buffers to the GPU.
    pub(crate) fn upload(&mut self, buffers: &WorkloadBuffers) -> Result<()> {
        let copied = self.input.write(&self.stream, &buffers.input);
        let copied = copied.and_then(|()| self.often.write(&self.stream, &buffers.often));
        let copied = copied.and_then(|()| self.once.write(&self.stream, &buffers.once));
        self.finish(copied)
    }

    /// Copies the buffers of the results back.
    pub(crate) fn download(&self, buffers: &mut WorkloadBuffers) -> Result<()> {
        let copied = self.often.read(&self.stream, &mut buffers.often);
        let copied = copied.and_then(|()| self.once.read(&self.stream, &mut buffers.once));
        self.finish(copied)
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
        mut call: impl FnMut(&Comm, &B, &mut B) -> Result<()>,
    ) -> Result<Times> {
        let start = monotonic_ns();
        for index in 0..batch.calls {
            if batch.begins(index) {
                let is_checked = index == batch.checked;
                let output = if is_checked { &mut self.once } else { &mut self.often };
                call(&self.comm, &self.input, output)?;
            }
        }
        self.comm.synchronize()?;
        Ok((start, monotonic_ns()))
    }
}

/// A buffer of a GPU.
pub(crate) struct DeviceBuffer {
    slice: CudaSlice<u8>,
    len: usize,
}

impl DeviceBuffer {
    fn new(stream: &Arc<CudaStream>, like: &AlignedBuffer) -> anyhow::Result<Self> {
        let len = like.bytes().len();
        // The driver has no buffer without bytes.
        let slice = stream.alloc_zeros(len.max(1)).context("no memory on the GPU for a buffer")?;
        Ok(Self { slice, len })
    }
}

impl DeviceCopies for DeviceBuffer {
    fn write(&mut self, stream: &Arc<CudaStream>, from: &AlignedBuffer) -> Moved {
        if self.len == 0 {
            return Ok(());
        }
        stream.memcpy_htod(from.bytes(), &mut self.slice.slice_mut(..self.len))
    }

    fn read(&self, stream: &Arc<CudaStream>, into: &mut AlignedBuffer) -> Moved {
        if self.len == 0 {
            return Ok(());
        }
        stream.memcpy_dtoh(&self.slice.slice(..self.len), into.bytes_mut())
    }
}

pub(crate) type Moved = std::result::Result<(), cudarc::driver::DriverError>;

impl DeviceBuffers<DeviceBuffer> {
    /// Makes the buffers of a workload on the GPU of `comm`.
    ///
    /// # Errors
    /// If there is no memory for them.
    pub(crate) fn of_calls(comm: &Arc<Comm>, buffers: &WorkloadBuffers) -> anyhow::Result<Self> {
        Self::new(comm, buffers, DeviceBuffer::new)
    }

    /// Makes the calls of a batch on elements of type `kind`.
    pub(crate) fn call(
        &mut self,
        what: &CallKind<'_>,
        kind: DataType,
        batch: &CallBatch,
    ) -> Result<Times> {
        let stream = Arc::clone(&self.stream);
        let (collective, op) = (what.collective, RawOp::BuiltIn(what.op));
        let is_apart = what.place == BufferPlacement::OutOfPlace;
        self.run(batch, |comm, input, output| {
            let failed = |error: ForeignBuffer| failure(comm, error.to_string());
            let from = Lent::of_view(input.slice.slice(..input.len), &stream).map_err(failed)?;
            let into = output.slice.slice_mut(..output.len);
            let into = Lent::of_view_mut(into, &stream).map_err(failed)?;
            let (input, output) = (is_apart.then_some(from.0), into.0);
            comm.call_on(&stream, &RawCall { collective, kind, op, input, output })
        })
    }
}

/// The failure of the driver to serve the benchmark on this rank.
fn failure(comm: &Comm, why: String) -> maypole::Error {
    let operation = "using a buffer of the benchmark".to_owned();
    maypole::Error::Device { rank: comm.rank(), operation, why }
}

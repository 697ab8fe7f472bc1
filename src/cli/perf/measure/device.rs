//! The buffers of a workload in the memory of a GPU, and the calls on them.

use crate::perf::benchmark::BufferPlacement;
use crate::perf::buffer::AlignedBuffer;
use crate::perf::measure::batch::{CallBatch, Times};
use crate::perf::measure::calls::CallKind;
use crate::perf::measure::workload::WorkloadBuffers;
use anyhow::Context;
use bytemuck::Pod;
use cudarc::driver::{CudaSlice, CudaStream, CudaView, CudaViewMut, DeviceRepr, ValidAsZeroBits};
use maypole::cuda::{Comm, driver};
use maypole::schedule::collective::Collective;
use maypole::{Communicator, Element, Result};
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

/// The buffers of a workload on a GPU, for elements of some type.
pub(crate) trait DeviceWork {
    /// Copies the buffers to the GPU.
    fn upload(&mut self, buffers: &WorkloadBuffers) -> Result<()>;

    /// Makes the calls. Between the two readings of the clock there are only calls, and the wait until
    /// they are done.
    fn run(&mut self, what: &CallKind<'_>, batch: &CallBatch) -> Result<Times>;

    /// Copies the buffers of the results back.
    fn download(&mut self, buffers: &mut WorkloadBuffers) -> Result<()>;
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
        let WorkloadBuffers { input, often, once, .. } = buffers;
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
        copied.map_err(|error| maypole::Error::Device {
            rank: self.comm.rank(),
            operation: "copying a buffer of the benchmark".to_owned(),
            why: format!("the driver reports {error:?}"),
        })
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

/// A buffer of a GPU. The driver has none without bytes, so one element is left over.
struct DeviceBuffer<T> {
    slice: CudaSlice<T>,
    len: usize,
}

impl<T: Pod + DeviceRepr + ValidAsZeroBits> DeviceBuffer<T> {
    fn new(stream: &Arc<CudaStream>, like: &AlignedBuffer) -> anyhow::Result<Self> {
        let len = like.bytes().len() / size_of::<T>();
        let slice = stream.alloc_zeros(len + 1).context("no memory on the GPU for a buffer")?;
        Ok(Self { slice, len })
    }

    fn view(&self) -> CudaView<'_, T> {
        self.slice.slice(..self.len)
    }

    fn view_mut(&mut self) -> CudaViewMut<'_, T> {
        self.slice.slice_mut(..self.len)
    }
}

impl<T: Pod + DeviceRepr + ValidAsZeroBits> DeviceCopies for DeviceBuffer<T> {
    fn write(&mut self, stream: &Arc<CudaStream>, from: &AlignedBuffer) -> Moved {
        if self.len == 0 {
            return Ok(());
        }
        stream.memcpy_htod(from.as_slice::<T>(), &mut self.view_mut())
    }

    fn read(&self, stream: &Arc<CudaStream>, into: &mut AlignedBuffer) -> Moved {
        if self.len == 0 {
            return Ok(());
        }
        stream.memcpy_dtoh(&self.view(), into.as_mut_slice::<T>())
    }
}

pub(crate) type Moved = std::result::Result<(), cudarc::driver::DriverError>;

/// Makes the buffers of a workload on the GPU of `comm`.
///
/// # Errors
/// If there is no memory for them.
pub(crate) fn work<T>(
    comm: &Arc<Comm>,
    buffers: &WorkloadBuffers,
) -> anyhow::Result<Box<dyn DeviceWork>>
where
    T: Element + Pod + DeviceRepr + ValidAsZeroBits,
{
    Ok(Box::new(DeviceBuffers::new(comm, buffers, DeviceBuffer::<T>::new)?))
}

impl<T> DeviceWork for DeviceBuffers<DeviceBuffer<T>>
where
    T: Element + Pod + DeviceRepr + ValidAsZeroBits,
{
    fn upload(&mut self, buffers: &WorkloadBuffers) -> Result<()> {
        self.upload(buffers)
    }

    fn run(&mut self, what: &CallKind<'_>, batch: &CallBatch) -> Result<Times> {
        self.run(batch, |comm, input, output| call(comm, what, input, output))
    }

    fn download(&mut self, buffers: &mut WorkloadBuffers) -> Result<()> {
        Self::download(self, buffers)
    }
}

fn call<T>(
    comm: &Comm,
    what: &CallKind<'_>,
    input: &DeviceBuffer<T>,
    output: &mut DeviceBuffer<T>,
) -> Result<()>
where
    T: Element + Pod + DeviceRepr + ValidAsZeroBits,
{
    let op = &what.op;
    let apart = what.place == BufferPlacement::OutOfPlace;
    let from = input.view();
    let mut into = output.view_mut();
    match what.collective {
        Collective::Broadcast { root } => comm.broadcast_in_place(&mut into, root as i32),
        Collective::Reduce { root } if apart => {
            comm.reduce(&from, Some(&mut into), op, root as i32)
        }
        Collective::Reduce { root } => comm.reduce_in_place(&mut into, op, root as i32),
        Collective::AllReduce if apart => comm.all_reduce(&from, &mut into, op),
        Collective::AllReduce => comm.all_reduce_in_place(&mut into, op),
        Collective::Gather { root } if apart => comm.gather(&from, Some(&mut into), root as i32),
        Collective::Gather { root } => comm.gather_in_place(&mut into, root as i32),
        Collective::AllGather if apart => comm.all_gather(&from, &mut into),
        Collective::AllGather => comm.all_gather_in_place(&mut into),
        Collective::Scatter { root } if apart => comm.scatter(Some(&from), &mut into, root as i32),
        Collective::Scatter { root } => comm.scatter_in_place(&mut into, root as i32),
        Collective::ReduceScatter if apart => comm.reduce_scatter(&from, &mut into, op),
        Collective::ReduceScatter => comm.reduce_scatter_in_place(&mut into, op),
        Collective::AllToAll if apart => comm.all_to_all(&from, &mut into),
        Collective::AllToAll => comm.all_to_all_in_place(&mut into),
        Collective::Scan if apart => comm.scan(&from, &mut into, op),
        Collective::Scan => comm.scan_in_place(&mut into, op),
        Collective::ExclusiveScan if apart => comm.exclusive_scan(&from, &mut into, op),
        Collective::ExclusiveScan => comm.exclusive_scan_in_place(&mut into, op),
        Collective::Barrier => comm.barrier(),
    }
}

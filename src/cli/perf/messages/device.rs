//! Messages between the memory of GPUs.

use super::MessageTest;
use super::work::{MessageCalls, MessageRole, call};
use crate::perf::buffer::AlignedBuffer;
use crate::perf::measure::batch::{CallBatch, Times};
use crate::perf::measure::device::{DeviceBuffers, DeviceCopies, Moved};
use crate::perf::measure::workload::WorkloadBuffers;
use anyhow::Context;
use cudarc::driver::{CudaSlice, CudaStream};
use maypole::Result;
use maypole::cuda::Comm;
use std::sync::Arc;

/// The buffers of the messages of one rank, on its GPU.
pub(crate) struct DeviceMessages {
    pub(crate) buffers: DeviceBuffers<DeviceWindow>,
    /// What confirms a window.
    confirmation: CudaSlice<u8>,
}

/// A buffer for each message of a window.
pub(crate) struct DeviceWindow(Vec<CudaSlice<u8>>);

impl DeviceCopies for DeviceWindow {
    fn write(&mut self, stream: &Arc<CudaStream>, from: &AlignedBuffer) -> Moved {
        let each = from.bytes().len() / self.0.len().max(1);
        let messages = from.bytes().chunks_exact(each.max(1));
        self.0.iter_mut().zip(messages).try_for_each(|(into, from)| stream.memcpy_htod(from, into))
    }

    fn read(&self, stream: &Arc<CudaStream>, into: &mut AlignedBuffer) -> Moved {
        let each = into.bytes().len() / self.0.len().max(1);
        let messages = into.bytes_mut().chunks_exact_mut(each.max(1));
        self.0.iter().zip(messages).try_for_each(|(from, into)| stream.memcpy_dtoh(from, into))
    }
}

impl DeviceMessages {
    /// Makes the buffers on the GPU of `comm`, for messages of `bytes` bytes, as many as there are in
    /// `buffers`.
    ///
    /// # Errors
    ///
    /// If there is no memory for them.
    pub(crate) fn new(
        comm: &Arc<Comm>,
        buffers: &WorkloadBuffers,
        bytes: usize,
    ) -> anyhow::Result<Self> {
        let message = |stream: &Arc<CudaStream>, bytes| {
            stream.alloc_zeros(bytes).context("no memory on the GPU for a message")
        };
        let window = |stream: &Arc<CudaStream>, like: &AlignedBuffer| {
            let messages = 0..like.bytes().len() / bytes;
            let messages = messages.map(|_| message(stream, bytes)).collect::<anyhow::Result<_>>();
            messages.map(DeviceWindow)
        };
        let confirmation = message(&comm.stream(), 1)?;
        Ok(Self { buffers: DeviceBuffers::new(comm, buffers, window)?, confirmation })
    }

    /// Makes the calls of a batch.
    pub(crate) fn run(
        &mut self,
        test: MessageTest,
        role: MessageRole,
        batch: &CallBatch,
    ) -> Result<Times> {
        let confirmation = &mut self.confirmation;
        self.buffers.run(batch, |comm, from, into| {
            call(test, role, &mut DeviceCalls { comm, from, into, confirmation })
        })
    }
}

/// The messages of one call.
struct DeviceCalls<'a> {
    comm: &'a Comm,
    from: &'a DeviceWindow,
    into: &'a mut DeviceWindow,
    confirmation: &'a mut CudaSlice<u8>,
}

impl MessageCalls for DeviceCalls<'_> {
    /// Messages of GPUs have no tags: those of a pair arrive in order.
    fn together(&mut self, to: &[(usize, u32)], from: &[(usize, u32)]) -> Result<()> {
        let mut group = self.comm.group();
        for (peer, _) in to {
            let mut messages = self.from.0.iter();
            messages.try_for_each(|message| group.send(message.as_view(), *peer as i32))?;
        }
        let each = self.into.0.len() / from.len().max(1);
        let senders = from.iter().flat_map(|(peer, _)| std::iter::repeat_n(*peer, each));
        for (message, peer) in self.into.0.iter_mut().zip(senders) {
            group.recv(message.as_view_mut(), peer as i32)?;
        }
        group.end()
    }

    fn confirm(&mut self, peer: usize, sends: bool) -> Result<()> {
        match sends {
            true => self.comm.send(self.confirmation, peer as i32),
            false => self.comm.recv(self.confirmation, peer as i32),
        }
    }
}

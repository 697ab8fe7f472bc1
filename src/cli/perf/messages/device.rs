//! Messages between the memory of GPUs.

use super::MessageTest;
use super::work::MessageRole;
use crate::perf::buffer::AlignedBuffer;
use crate::perf::measure::batch::{CallBatch, Times};
use crate::perf::measure::device::{Moved, failed};
use anyhow::Context;
use cudarc::driver::{CudaSlice, CudaStream};
use maypole::Result;
use maypole::cuda::{Comm, Group};
use maypole_transports::clock::monotonic_ns;
use std::sync::Arc;

/// The buffers of the messages of one rank, on its GPU.
pub(crate) struct DeviceMessages {
    comm: Arc<Comm>,
    stream: Arc<CudaStream>,
    from: DeviceWindow,
    often: DeviceWindow,
    once: DeviceWindow,
    /// What confirms a window.
    confirmation: CudaSlice<u8>,
}

/// A buffer for each message of a window.
struct DeviceWindow(Vec<CudaSlice<u8>>);

impl DeviceWindow {
    fn new(stream: &Arc<CudaStream>, like: &AlignedBuffer, bytes: usize) -> anyhow::Result<Self> {
        let buffer = |_| stream.alloc_zeros(bytes).context("no memory on the GPU for a message");
        Ok(Self((0..like.bytes().len() / bytes).map(buffer).collect::<anyhow::Result<_>>()?))
    }

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

    /// Sends all messages in `group`.
    fn send<'g>(&'g self, group: &mut Group<'g>, peer: usize) -> Result<()> {
        self.0.iter().try_for_each(|message| group.send(message.as_view(), peer as i32))
    }

    /// Receives all messages in `group`, from each of `peers` as many.
    fn receive<'g>(&'g mut self, group: &mut Group<'g>, peers: &[usize]) -> Result<()> {
        let each = self.0.len() / peers.len().max(1);
        let senders = peers.iter().flat_map(|peer| std::iter::repeat_n(*peer, each));
        let mut messages = self.0.iter_mut().zip(senders);
        messages.try_for_each(|(message, peer)| group.recv(message.as_view_mut(), peer as i32))
    }
}

impl DeviceMessages {
    /// Makes the buffers on the GPU of `comm`, for messages of `bytes` bytes, as many as there are
    /// in `buffers`: the sent one, the received one of all calls but the checked one, and that of
    /// the checked call.
    ///
    /// # Errors
    ///
    /// If there is no memory for them.
    pub(crate) fn new(
        comm: &Arc<Comm>,
        buffers: [&AlignedBuffer; 3],
        bytes: usize,
    ) -> anyhow::Result<Self> {
        let stream = comm.stream();
        let [from, often, once] = buffers.map(|like| DeviceWindow::new(&stream, like, bytes));
        let confirmation = stream.alloc_zeros(1).context("no memory on the GPU for a message")?;
        let (from, often, once) = (from?, often?, once?);
        Ok(Self { comm: Arc::clone(comm), stream, from, often, once, confirmation })
    }

    /// Copies the buffers to the GPU.
    pub(crate) fn upload(&mut self, buffers: [&AlignedBuffer; 3]) -> Result<()> {
        let windows = [&mut self.from, &mut self.often, &mut self.once];
        let mut both = windows.into_iter().zip(buffers);
        let copied = both.try_for_each(|(window, buffer)| window.write(&self.stream, buffer));
        let copied = copied.and_then(|()| self.stream.synchronize());
        copied.map_err(|error| failed(&self.comm, error))
    }

    /// Copies the received bytes back.
    pub(crate) fn download(
        &self,
        often: &mut AlignedBuffer,
        once: &mut AlignedBuffer,
    ) -> Result<()> {
        let copied = self.often.read(&self.stream, often);
        let copied = copied.and_then(|()| self.once.read(&self.stream, once));
        let copied = copied.and_then(|()| self.stream.synchronize());
        copied.map_err(|error| failed(&self.comm, error))
    }

    /// Makes the calls. Between the two readings of the clock there are only calls, and the wait until
    /// they are done.
    pub(crate) fn run(
        &mut self,
        test: MessageTest,
        role: MessageRole,
        batch: &CallBatch,
    ) -> Result<Times> {
        let start = monotonic_ns();
        for index in 0..batch.calls {
            if batch.begins(index) {
                self.call(test, role, index == batch.checked)?;
            }
        }
        self.comm.synchronize()?;
        Ok((start, monotonic_ns()))
    }

    fn call(&mut self, test: MessageTest, role: MessageRole, is_checked: bool) -> Result<()> {
        let Self { comm, from, often, once, confirmation, .. } = self;
        let into = if is_checked { once } else { often };
        match (role, test) {
            (MessageRole::Idle, _) => Ok(()),
            (MessageRole::Pair { peer, leads: true }, MessageTest::Bandwidth) => {
                together(comm, |group| from.send(group, peer))?;
                comm.recv(confirmation, peer as i32)
            }
            (MessageRole::Pair { peer, .. }, MessageTest::Bandwidth) => {
                together(comm, |group| into.receive(group, &[peer]))?;
                comm.send(confirmation, peer as i32)
            }
            (MessageRole::Pair { peer, .. }, MessageTest::Bidirectional) => {
                together(comm, |group| {
                    from.send(group, peer)?;
                    into.receive(group, &[peer])
                })
            }
            (MessageRole::Pair { peer, leads }, _) => {
                if leads {
                    together(comm, |group| from.send(group, peer))?;
                }
                together(comm, |group| into.receive(group, &[peer]))?;
                if leads { Ok(()) } else { together(comm, |group| from.send(group, peer)) }
            }
            (MessageRole::Ring { before, next }, MessageTest::Exchange) => {
                together(comm, |group| {
                    from.send(group, next)?;
                    from.send(group, before)?;
                    into.receive(group, &[before, next])
                })
            }
            (MessageRole::Ring { before, next }, _) => together(comm, |group| {
                from.send(group, next)?;
                into.receive(group, &[before])
            }),
        }
    }
}

/// Starts the messages that `add` adds to a group, side by side.
fn together<'g>(comm: &'g Comm, add: impl FnOnce(&mut Group<'g>) -> Result<()>) -> Result<()> {
    let mut group = comm.group();
    add(&mut group)?;
    group.end()
}

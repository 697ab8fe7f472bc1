//! The collectives on buffers of a GPU.

use super::comm::Comm;
use crate::element::{DataType, Element, ReduceOp};
use crate::engine::calls::call::CollectiveCall;
use crate::engine::calls::counts::CallCount;
use crate::error::Result;
use crate::schedule::collective::Collective;
use cudarc::driver::{CudaStream, DevicePtr, DevicePtrMut, SyncOnDrop};
use maypole_transports::cuda::{Lent, lend, lend_mut};

/// A call with the buffers that it is lent.
#[derive(Clone, Copy, Debug)]
pub(super) struct LentCall<'a> {
    pub(super) collective: Collective,
    pub(super) kind: DataType,
    pub(super) op: ReduceOp,
    pub(super) count: usize,
    pub(super) in_place: bool,
    pub(super) input: Lent<'a>,
    pub(super) output: Lent<'a>,
}

impl Comm {
    /// Combines the `send` (`count`) of all ranks into every rank's `receive` (`count`).
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if the lengths differ; else as every call.
    pub fn all_reduce<S: DevicePtr<T>, R: DevicePtrMut<T>, T: Element>(
        &self,
        send: &S,
        receive: &mut R,
        op: &ReduceOp,
    ) -> Result<()> {
        self.check_len("all_reduce", "output", receive.len(), send.len())?;
        let count = send.len();
        self.apart::<T>(Collective::AllReduce, *op, count, Some(send), Some(receive))
    }

    /// Combines the `data` (`count`) of all ranks into every rank's `data`.
    ///
    /// # Errors
    /// As every call.
    pub fn all_reduce_in_place<R: DevicePtrMut<T>, T: Element>(
        &self,
        data: &mut R,
        op: &ReduceOp,
    ) -> Result<()> {
        let count = data.len();
        let stream = self.stream();
        let (data, _guard) = self.written("all_reduce", data, &stream)?;
        self.issue::<T>(Collective::AllReduce, *op, count, true, data, data)
    }

    /// Collects the `send` (`count`) of all ranks, in rank order, in every rank's `receive` (`world
    /// * count`).
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if the output has another length; else as every
    /// call.
    pub fn all_gather<S: DevicePtr<T>, R: DevicePtrMut<T>, T: Element>(
        &self,
        send: &S,
        receive: &mut R,
    ) -> Result<()> {
        let count = send.len();
        self.check_len("all_gather", "output", receive.len(), count * self.world_size())?;
        self.apart::<T>(Collective::AllGather, ReduceOp::Sum, count, Some(send), Some(receive))
    }

    /// [`all_gather`](Self::all_gather) in place. `data` is the whole (`world * count`), in which
    /// this rank's block is in place already.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if the length is no multiple of the world; else as
    /// every call.
    pub fn all_gather_in_place<R: DevicePtrMut<T>, T: Element>(&self, data: &mut R) -> Result<()> {
        let count = self.block("all_gather", data.len())?;
        let stream = self.stream();
        let (whole, _guard) = self.written("all_gather", data, &stream)?;
        let mine = self.mine(whole);
        self.issue::<T>(Collective::AllGather, ReduceOp::Sum, count, true, mine, whole)
    }

    /// Combines the `send` (`world * count`) of all ranks. Block `r` of the result goes into rank
    /// `r`'s `receive` (`count`).
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if the input has another length; else as every
    /// call.
    pub fn reduce_scatter<S: DevicePtr<T>, R: DevicePtrMut<T>, T: Element>(
        &self,
        send: &S,
        receive: &mut R,
        op: &ReduceOp,
    ) -> Result<()> {
        let count = receive.len();
        self.check_len("reduce_scatter", "input", send.len(), count * self.world_size())?;
        self.apart::<T>(Collective::ReduceScatter, *op, count, Some(send), Some(receive))
    }

    /// [`reduce_scatter`](Self::reduce_scatter) in place: this rank's block of `data` (`world *
    /// count`) becomes the result; the rest does not change.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if the length is no multiple of the world; else as
    /// every call.
    pub fn reduce_scatter_in_place<R: DevicePtrMut<T>, T: Element>(
        &self,
        data: &mut R,
        op: &ReduceOp,
    ) -> Result<()> {
        let count = self.block("reduce_scatter", data.len())?;
        let stream = self.stream();
        let (whole, _guard) = self.written("reduce_scatter", data, &stream)?;
        let mine = self.mine(whole);
        self.issue::<T>(Collective::ReduceScatter, *op, count, true, whole, mine)
    }

    /// Copies block `r` of rank `s`'s `send` into block `s` of rank `r`'s `receive`, for all `r`
    /// and `s`. Both buffers are `world * count` long.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if the lengths differ or are no multiple of the
    /// world; else as every call.
    pub fn all_to_all<S: DevicePtr<T>, R: DevicePtrMut<T>, T: Element>(
        &self,
        send: &S,
        receive: &mut R,
    ) -> Result<()> {
        self.check_len("all_to_all", "output", receive.len(), send.len())?;
        let count = self.block("all_to_all", send.len())?;
        self.apart::<T>(Collective::AllToAll, ReduceOp::Sum, count, Some(send), Some(receive))
    }

    /// [`all_to_all`](Self::all_to_all) in place: `data` is input and output. Copies `data` once.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if the length is no multiple of the world; else as
    /// every call.
    pub fn all_to_all_in_place<R: DevicePtrMut<T>, T: Element>(&self, data: &mut R) -> Result<()> {
        let count = self.block("all_to_all", data.len())?;
        let stream = self.stream();
        let (data, _guard) = self.written("all_to_all", data, &stream)?;
        self.issue::<T>(Collective::AllToAll, ReduceOp::Sum, count, true, data, data)
    }

    /// The work that comes on this rank's stream begins after that of all other ranks that was
    /// there when they called this.
    ///
    /// # Errors
    /// As every call.
    pub fn barrier(&self) -> Result<()> {
        let none = Lent::EMPTY;
        self.issue::<u8>(Collective::Barrier, ReduceOp::Sum, 0, false, none, none)
    }

    /// Starts a call whose buffers do not overlap.
    pub(super) fn apart<T: Element>(
        &self,
        collective: Collective,
        op: ReduceOp,
        count: usize,
        send: Option<&impl DevicePtr<T>>,
        receive: Option<&mut impl DevicePtrMut<T>>,
    ) -> Result<()> {
        let stream = self.stream();
        let name = collective.name();
        let input = send.map(|send| self.read(name, send, &stream)).transpose()?;
        let output = receive.map(|receive| self.written(name, receive, &stream)).transpose()?;
        let from = input.as_ref().map_or(Lent::EMPTY, |it| it.0);
        let to = output.as_ref().map_or(Lent::EMPTY, |it| it.0);
        let done = self.issue::<T>(collective, op, count, false, from, to);
        drop((input, output));
        done
    }

    /// Lends a buffer that `operation` reads.
    pub(super) fn read<'a, T>(
        &self,
        operation: &'static str,
        buffer: &'a impl DevicePtr<T>,
        stream: &'a CudaStream,
    ) -> Result<(Lent<'a>, SyncOnDrop<'a>)> {
        lend(buffer, stream).map_err(|why| self.invalid(operation, why.to_string()))
    }

    /// Lends a buffer that `operation` writes.
    pub(super) fn written<'a, T>(
        &self,
        operation: &'static str,
        buffer: &'a mut impl DevicePtrMut<T>,
        stream: &'a CudaStream,
    ) -> Result<(Lent<'a>, SyncOnDrop<'a>)> {
        lend_mut(buffer, stream).map_err(|why| self.invalid(operation, why.to_string()))
    }

    pub(super) fn issue<T: Element>(
        &self,
        collective: Collective,
        op: ReduceOp,
        count: usize,
        in_place: bool,
        input: Lent<'_>,
        output: Lent<'_>,
    ) -> Result<()> {
        let call = LentCall { collective, kind: T::DATA_TYPE, op, count, in_place, input, output };
        self.issue_lent(&call)
    }

    pub(super) fn issue_lent(&self, call: &LentCall<'_>) -> Result<()> {
        let LentCall { collective, kind, op, count, in_place, input, output } = *call;
        if !in_place && input.overlaps(&output) {
            let why = "input and output overlap: use the call in place".to_owned();
            return Err(self.invalid(collective.name(), why));
        }
        let mut rank = self.lock();
        let settings = rank.comm.engine.get().settings();
        let call = CollectiveCall {
            collective,
            kind,
            op: op.into(),
            count: CallCount::Even(count),
            deterministic: settings.is_deterministic_for(collective),
            in_place,
        };
        rank.call(call, op, input, output)
    }

    pub(super) fn check_len(
        &self,
        operation: &'static str,
        which: &str,
        len: usize,
        wanted: usize,
    ) -> Result<()> {
        self.lock().comm.check_len(operation, which, len, wanted)
    }

    pub(super) fn root(&self, operation: &'static str, root: i32) -> Result<usize> {
        let root = usize::try_from(root).unwrap_or(usize::MAX);
        self.lock().comm.check_root(operation, root).map(|()| root)
    }

    /// The root's output, which must have `wanted` elements. That of other ranks is not used.
    pub(super) fn at_root<'a, T: Element, R: DevicePtrMut<T>>(
        &self,
        operation: &'static str,
        root: usize,
        receive: Option<&'a mut R>,
        wanted: usize,
    ) -> Result<Option<&'a mut R>> {
        if self.rank() != root {
            return Ok(None);
        }
        let len = receive.as_ref().map_or(0, |receive| receive.len());
        self.check_len(operation, "output", len, wanted)?;
        Ok(receive)
    }

    /// The number of elements of a rank's block of `len` elements.
    pub(super) fn block(&self, operation: &'static str, len: usize) -> Result<usize> {
        self.lock().comm.block_count(operation, len)
    }

    /// This rank's block of the whole.
    pub(super) fn mine<'a>(&self, whole: Lent<'a>) -> Lent<'a> {
        let bytes = whole.bytes() / self.world_size() as u64;
        let start = self.rank() as u64 * bytes;
        whole.slice(start..start + bytes)
    }
}

//! The collectives on buffers of a GPU.

use super::comm::Comm;
use super::lent_call::number;
use crate::element::{DataType, Element, ReduceOp};
use crate::error::Result;
use crate::schedule::collective::Collective;
use cudarc::driver::{DevicePtr, DevicePtrMut};
use maypole_transports::cuda::Lent;

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
        self.apart(Collective::AllReduce, Some(send), Some(receive), *op)
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
        self.in_place(Collective::AllReduce, data, *op)
    }

    /// Copies the root's `send` (`count`) into every rank's `receive` (`count`). Other ranks pass
    /// `None`.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if there is no such root, or if the root passes
    /// nothing or another length; else as every call.
    pub fn broadcast<S: DevicePtr<T>, R: DevicePtrMut<T>, T: Element>(
        &self,
        send: Option<&S>,
        receive: &mut R,
        root: i32,
    ) -> Result<()> {
        self.apart(Collective::Broadcast { root: number(root) }, send, Some(receive), ReduceOp::Sum)
    }

    /// Copies the root's `data` (`count`) into every rank's `data` (`count`).
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if there is no such root; else as every call.
    pub fn broadcast_in_place<R: DevicePtrMut<T>, T: Element>(
        &self,
        data: &mut R,
        root: i32,
    ) -> Result<()> {
        self.in_place(Collective::Broadcast { root: number(root) }, data, ReduceOp::Sum)
    }

    /// Combines the `send` (`count`) of all ranks into the root's `receive` (`count`). Other ranks
    /// pass `None`.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if there is no such root, or if the root passes
    /// nothing or another length; else as every call.
    pub fn reduce<S: DevicePtr<T>, R: DevicePtrMut<T>, T: Element>(
        &self,
        send: &S,
        receive: Option<&mut R>,
        op: &ReduceOp,
        root: i32,
    ) -> Result<()> {
        self.apart(Collective::Reduce { root: number(root) }, Some(send), receive, *op)
    }

    /// Combines the `data` (`count`) of all ranks into the root's `data`. Other ranks' `data` does
    /// not change.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if there is no such root; else as every call.
    pub fn reduce_in_place<R: DevicePtrMut<T>, T: Element>(
        &self,
        data: &mut R,
        op: &ReduceOp,
        root: i32,
    ) -> Result<()> {
        self.in_place(Collective::Reduce { root: number(root) }, data, *op)
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
        self.apart(Collective::AllGather, Some(send), Some(receive), ReduceOp::Sum)
    }

    /// [`all_gather`](Self::all_gather) in place. `data` is the whole (`world * count`), in which
    /// this rank's block is in place already.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if the length is no multiple of the world; else as
    /// every call.
    pub fn all_gather_in_place<R: DevicePtrMut<T>, T: Element>(&self, data: &mut R) -> Result<()> {
        self.in_place(Collective::AllGather, data, ReduceOp::Sum)
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
        self.apart(Collective::ReduceScatter, Some(send), Some(receive), *op)
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
        self.in_place(Collective::ReduceScatter, data, *op)
    }

    /// Collects the `send` (`count`) of all ranks, in rank order, in the root's `receive` (`world *
    /// count`). Other ranks pass `None`.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if there is no such root, or if the root passes
    /// nothing or another length; else as every call.
    pub fn gather<S: DevicePtr<T>, R: DevicePtrMut<T>, T: Element>(
        &self,
        send: &S,
        receive: Option<&mut R>,
        root: i32,
    ) -> Result<()> {
        self.apart(Collective::Gather { root: number(root) }, Some(send), receive, ReduceOp::Sum)
    }

    /// [`gather`](Self::gather) in place. The root's `data` is the whole (`world * count`), in
    /// which its own block is in place already. The `data` of any other rank is its block
    /// (`count`).
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if there is no such root, or if the root's length
    /// is no multiple of the world; else as every call.
    pub fn gather_in_place<R: DevicePtrMut<T>, T: Element>(
        &self,
        data: &mut R,
        root: i32,
    ) -> Result<()> {
        self.in_place(Collective::Gather { root: number(root) }, data, ReduceOp::Sum)
    }

    /// Copies block `r` of the root's `send` (`world * count`) into rank `r`'s `receive` (`count`).
    /// Other ranks pass `None`.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if there is no such root, or if the root passes
    /// nothing or another length; else as every call.
    pub fn scatter<S: DevicePtr<T>, R: DevicePtrMut<T>, T: Element>(
        &self,
        send: Option<&S>,
        receive: &mut R,
        root: i32,
    ) -> Result<()> {
        self.apart(Collective::Scatter { root: number(root) }, send, Some(receive), ReduceOp::Sum)
    }

    /// [`scatter`](Self::scatter) in place: the root's `data` is the whole (`world * count`) and
    /// does not change; the `data` of any other rank becomes its block (`count`).
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if there is no such root, or if the root's length
    /// is no multiple of the world; else as every call.
    pub fn scatter_in_place<R: DevicePtrMut<T>, T: Element>(
        &self,
        data: &mut R,
        root: i32,
    ) -> Result<()> {
        self.in_place(Collective::Scatter { root: number(root) }, data, ReduceOp::Sum)
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
        self.apart(Collective::AllToAll, Some(send), Some(receive), ReduceOp::Sum)
    }

    /// [`all_to_all`](Self::all_to_all) in place: `data` is input and output. Copies `data` once.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if the length is no multiple of the world; else as
    /// every call.
    pub fn all_to_all_in_place<R: DevicePtrMut<T>, T: Element>(&self, data: &mut R) -> Result<()> {
        self.in_place(Collective::AllToAll, data, ReduceOp::Sum)
    }

    /// [`scan_in_place`](Self::scan_in_place) from `send` (`count`) to `receive` (`count`).
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if the lengths differ, or if `op` is an average;
    /// else as every call.
    pub fn scan<S: DevicePtr<T>, R: DevicePtrMut<T>, T: Element>(
        &self,
        send: &S,
        receive: &mut R,
        op: &ReduceOp,
    ) -> Result<()> {
        self.apart(Collective::Scan, Some(send), Some(receive), *op)
    }

    /// Combines the `data` (`count`) of ranks 0 to this one, in rank order, into this rank's
    /// `data`.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if `op` is an average; else as every call.
    pub fn scan_in_place<R: DevicePtrMut<T>, T: Element>(
        &self,
        data: &mut R,
        op: &ReduceOp,
    ) -> Result<()> {
        self.in_place(Collective::Scan, data, *op)
    }

    /// [`exclusive_scan_in_place`](Self::exclusive_scan_in_place) from `send` (`count`) to
    /// `receive` (`count`). That of rank 0 is not used and may be empty.
    ///
    /// # Errors
    /// As [`scan`](Self::scan).
    pub fn exclusive_scan<S: DevicePtr<T>, R: DevicePtrMut<T>, T: Element>(
        &self,
        send: &S,
        receive: &mut R,
        op: &ReduceOp,
    ) -> Result<()> {
        self.apart(Collective::ExclusiveScan, Some(send), Some(receive), *op)
    }

    /// Combines the `data` (`count`) of the ranks before this one, in rank order, into this rank's
    /// `data`. That of rank 0 does not change.
    ///
    /// # Errors
    /// As [`scan_in_place`](Self::scan_in_place).
    pub fn exclusive_scan_in_place<R: DevicePtrMut<T>, T: Element>(
        &self,
        data: &mut R,
        op: &ReduceOp,
    ) -> Result<()> {
        self.in_place(Collective::ExclusiveScan, data, *op)
    }

    /// Later work on this rank's stream begins after the work of all other ranks that precedes
    /// their call of this.
    ///
    /// # Errors
    /// As every call.
    pub fn barrier(&self) -> Result<()> {
        let (kind, none) = (DataType::U8, Lent::EMPTY);
        let call = self.lent_call(Collective::Barrier, (kind, ReduceOp::Sum), Some(none), none)?;
        self.issue(&self.stream(), &call)
    }
}

//! The collectives that have a root.

use super::comm::Comm;
use crate::element::{Element, ReduceOp};
use crate::error::Result;
use crate::schedule::collective::Collective;
use cudarc::driver::{DevicePtr, DevicePtrMut};
use maypole_transports::cuda::Lent;

impl Comm {
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
        let root = self.root("broadcast", root)?;
        let count = receive.len();
        let send = if self.rank() == root { send } else { None };
        if self.rank() == root {
            let len = send.map_or(0, |send| send.len());
            self.check_len("broadcast", "input", len, count)?;
        }
        self.apart::<T>(Collective::Broadcast { root }, ReduceOp::Sum, count, send, Some(receive))
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
        let root = self.root("broadcast", root)?;
        let count = data.len();
        let stream = self.stream();
        let (data, _guard) = self.written("broadcast", data, &stream)?;
        let input = if self.rank() == root { data } else { Lent::EMPTY };
        self.issue::<T>(Collective::Broadcast { root }, ReduceOp::Sum, count, true, input, data)
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
        let root = self.root("reduce", root)?;
        let count = send.len();
        let receive = self.at_root("reduce", root, receive, count)?;
        self.apart::<T>(Collective::Reduce { root }, *op, count, Some(send), receive)
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
        let root = self.root("reduce", root)?;
        let count = data.len();
        let stream = self.stream();
        let (data, _guard) = self.written("reduce", data, &stream)?;
        let at_root = self.rank() == root;
        let output = if at_root { data } else { Lent::EMPTY };
        self.issue::<T>(Collective::Reduce { root }, *op, count, at_root, data, output)
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
        let root = self.root("gather", root)?;
        let count = send.len();
        let receive = self.at_root("gather", root, receive, count * self.world_size())?;
        self.apart::<T>(Collective::Gather { root }, ReduceOp::Sum, count, Some(send), receive)
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
        let root = self.root("gather", root)?;
        let collective = Collective::Gather { root };
        let at_root = self.rank() == root;
        let count = if at_root { self.block("gather", data.len())? } else { data.len() };
        let stream = self.stream();
        let (data, _guard) = self.written("gather", data, &stream)?;
        let (input, output) = if at_root { (self.mine(data), data) } else { (data, Lent::EMPTY) };
        self.issue::<T>(collective, ReduceOp::Sum, count, at_root, input, output)
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
        let root = self.root("scatter", root)?;
        let count = receive.len();
        let send = if self.rank() == root { send } else { None };
        if self.rank() == root {
            let len = send.map_or(0, |send| send.len());
            self.check_len("scatter", "input", len, count * self.world_size())?;
        }
        self.apart::<T>(Collective::Scatter { root }, ReduceOp::Sum, count, send, Some(receive))
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
        let root = self.root("scatter", root)?;
        let collective = Collective::Scatter { root };
        let at_root = self.rank() == root;
        let count = if at_root { self.block("scatter", data.len())? } else { data.len() };
        let stream = self.stream();
        let (data, _guard) = self.written("scatter", data, &stream)?;
        let (input, output) = if at_root { (data, self.mine(data)) } else { (Lent::EMPTY, data) };
        self.issue::<T>(collective, ReduceOp::Sum, count, at_root, input, output)
    }
}

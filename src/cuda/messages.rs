//! Messages between two ranks.

use super::comm::Comm;
use super::exchange::DeviceMessage;
use crate::element::Element;
use crate::error::Result;
use cudarc::driver::{DevicePtr, DevicePtrMut};

impl Comm {
    /// Sends `data` to rank `peer`, which receives as many elements of the type. Messages from one
    /// rank to another arrive in order. A long message waits on the stream until it is received;
    /// ranks that send each other long messages do so in a [group](Self::group).
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if there is no such rank, or if it is this one: a rank
    /// sends itself messages in a group that receives them; else as every call.
    pub fn send<S: DevicePtr<T>, T: Element>(&self, data: &S, peer: i32) -> Result<()> {
        let peer = self.peer("send", peer)?;
        let stream = self.stream();
        let (data, _guard) = self.read("send", data, &stream)?;
        let kind = T::DATA_TYPE;
        self.exchange_on(&stream, &[DeviceMessage { peer, sends: true, data, kind }])
    }

    /// Receives `data` from rank `peer`: see [`send`](Self::send).
    ///
    /// # Errors
    /// As [`send`](Self::send). A message of another length is a
    /// [`Mismatch`](crate::Error::Mismatch).
    pub fn recv<R: DevicePtrMut<T>, T: Element>(&self, data: &mut R, peer: i32) -> Result<()> {
        let peer = self.peer("recv", peer)?;
        let stream = self.stream();
        let (data, _guard) = self.written("recv", data, &stream)?;
        let kind = T::DATA_TYPE;
        self.exchange_on(&stream, &[DeviceMessage { peer, sends: false, data, kind }])
    }

    pub(super) fn peer(&self, operation: &'static str, peer: i32) -> Result<usize> {
        let world = self.world_size();
        let found = usize::try_from(peer).ok().filter(|peer| *peer < world);
        found.ok_or_else(|| self.invalid(operation, format!("there is no rank {peer} of {world}")))
    }
}

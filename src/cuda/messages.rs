//! Messages between two ranks, alone and in groups.

use super::comm::Comm;
use crate::comm::element::{DataType, Element};
use crate::comm::error::Result;
use cudarc::driver::{CudaView, CudaViewMut, DevicePtr, DevicePtrMut, SyncOnDrop};
use maypole_kernels::mix;
use maypole_transports::cuda::{Lent, lend, lend_mut};

/// One message of a rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceMessage<'a> {
    pub(super) peer: usize,
    pub(super) sends: bool,
    pub(super) data: Lent<'a>,
    pub(super) kind: DataType,
}

impl DeviceMessage<'_> {
    /// A hash of all that the two ends must agree on.
    pub(super) fn fingerprint(&self) -> u32 {
        mix(self.data.bytes() ^ (self.kind as u64) << 56) as u32
    }

    /// What its program is found by.
    pub(super) fn key(&self) -> (u64, bool) {
        (self.data.bytes(), self.sends)
    }

    /// The message in words.
    pub(super) fn describe(&self) -> String {
        let Self { peer, data, kind, .. } = self;
        let (bytes, kind) = (data.bytes(), kind.name());
        match self.sends {
            true => format!("send({bytes} bytes of {kind} to rank {peer})"),
            false => format!("recv({bytes} bytes of {kind} from rank {peer})"),
        }
    }
}

/// Messages that a rank starts together, so that none of them waits for another one: see
/// [`Comm::group`]. They start when this is [ended](Self::end) or dropped.
pub struct Group<'g> {
    comm: &'g Comm,
    messages: Vec<DeviceMessage<'g>>,
    guards: Vec<SyncOnDrop<'g>>,
    has_ended: bool,
}

impl std::fmt::Debug for Group<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Group of {} messages of {:?}", self.messages.len(), self.comm)
    }
}

impl Comm {
    /// Sends `data` to rank `peer`, which receives as many elements of the type. Messages from one
    /// rank to another arrive in order. A long message waits on the stream until it is received;
    /// ranks that send each other long messages do so in a [group](Self::group).
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if there is no such rank, or if it is this one;
    /// else as every call.
    pub fn send<S: DevicePtr<T>, T: Element>(&self, data: &S, peer: i32) -> Result<()> {
        let peer = self.peer("send", peer)?;
        let stream = self.stream();
        let (data, _guard) = lend(data, &stream);
        let kind = T::DATA_TYPE;
        self.lock().exchange_messages(&[DeviceMessage { peer, sends: true, data, kind }])
    }

    /// Receives `data` from rank `peer`: see [`send`](Self::send).
    ///
    /// # Errors
    /// As [`send`](Self::send). A message of another length is a
    /// [`Mismatch`](crate::Error::Mismatch).
    pub fn recv<R: DevicePtrMut<T>, T: Element>(&self, data: &mut R, peer: i32) -> Result<()> {
        let peer = self.peer("recv", peer)?;
        let stream = self.stream();
        let (data, _guard) = lend_mut(data, &stream);
        let kind = T::DATA_TYPE;
        self.lock().exchange_messages(&[DeviceMessage { peer, sends: false, data, kind }])
    }

    /// Begins messages that start together. Views are made before the group, because they outlive
    /// it.
    ///
    /// ```no_run
    /// # fn rank(comm: &maypole::cuda::Comm) -> Result<(), Box<dyn std::error::Error>> {
    /// // Every rank passes its numbers to the next one.
    /// let (rank, world) = (comm.rank() as i32, comm.world_size() as i32);
    /// let mine = comm.stream().clone_htod(&[rank as f32; 1000])?;
    /// let mut theirs = comm.stream().alloc_zeros::<f32>(1000)?;
    /// let (from, into) = (mine.as_view(), theirs.as_view_mut());
    /// let mut group = comm.group();
    /// group.send(from, (rank + 1) % world)?;
    /// group.recv(into, (rank + world - 1) % world)?;
    /// group.end()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn group(&self) -> Group<'_> {
        Group { comm: self, messages: Vec::new(), guards: Vec::new(), has_ended: false }
    }

    fn peer(&self, operation: &'static str, peer: i32) -> Result<usize> {
        let world = self.world_size();
        let found = usize::try_from(peer).ok().filter(|peer| *peer < world);
        found.filter(|peer| *peer != self.rank()).ok_or_else(|| {
            let why = format!("rank {peer} is not one of the other {} ranks", world - 1);
            self.invalid(operation, why)
        })
    }
}

impl<'g> Group<'g> {
    /// Returns the rank's membership.
    pub fn comm(&self) -> &'g Comm {
        self.comm
    }

    /// Adds a message to rank `peer`.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if there is no such rank, or if it is this one.
    pub fn send<'s: 'g, T: Element>(&mut self, data: CudaView<'s, T>, peer: i32) -> Result<()> {
        let peer = self.comm.peer("send", peer)?;
        let (data, guard) = Lent::of_view(data, self.comm.stream_ref());
        self.guards.push(guard);
        let kind = T::DATA_TYPE;
        self.messages.push(DeviceMessage { peer, sends: true, data, kind });
        Ok(())
    }

    /// Adds a message from rank `peer`.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn recv<'r: 'g, T: Element>(&mut self, data: CudaViewMut<'r, T>, peer: i32) -> Result<()> {
        let peer = self.comm.peer("recv", peer)?;
        let (data, guard) = Lent::of_view_mut(data, self.comm.stream_ref());
        self.guards.push(guard);
        let kind = T::DATA_TYPE;
        self.messages.push(DeviceMessage { peer, sends: false, data, kind });
        Ok(())
    }

    /// Starts the messages.
    ///
    /// # Errors
    /// As every call.
    pub fn end(mut self) -> Result<()> {
        self.start()
    }

    fn start(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.has_ended, true) {
            return Ok(());
        }
        self.comm.lock().exchange_messages(&self.messages)
    }
}

impl Drop for Group<'_> {
    /// Starts the messages. An error comes up in the next call, because the communicator has
    /// failed.
    fn drop(&mut self) {
        let _ = self.start();
    }
}

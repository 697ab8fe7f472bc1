//! Calls and messages that a rank starts together.

use super::comm::Comm;
use super::exchange::DeviceMessage;
use super::programs::LentCall;
use crate::element::{Element, ReduceOp};
use crate::error::{Error, Result};
use crate::schedule::collective::Collective;
use cudarc::driver::{CudaView, CudaViewMut, SyncOnDrop};
use maypole_transports::cuda::Lent;

/// Messages that a rank starts together, so that none of them waits for another one, and
/// collectives: see [`Comm::group`]. They start when this is [ended](Self::end) or dropped. If they
/// cannot, a group that is dropped fails the communicator, because it returns no error.
///
/// A group starts all of its calls or none: none if one of them was refused when it was added, and none if
/// the thread panics before the end, which fails the communicator.
///
/// The collectives run one after the other, in the order in which they were added; then the messages
/// run side by side. So a rank must not wait for a message of another rank's group before it makes a
/// collective of that group.
pub struct Group<'g> {
    comm: &'g Comm,
    calls: Vec<LentCall<'g>>,
    messages: Vec<DeviceMessage<'g>>,
    guards: Vec<SyncOnDrop<'g>>,
    has_ended: bool,
    /// A call could not be added.
    is_refused: bool,
}

impl std::fmt::Debug for Group<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (calls, messages) = (self.calls.len(), self.messages.len());
        write!(f, "Group of {calls} collectives and {messages} messages of {:?}", self.comm)
    }
}

impl Comm {
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
        let (calls, messages, guards) = (Vec::new(), Vec::new(), Vec::new());
        Group { comm: self, calls, messages, guards, has_ended: false, is_refused: false }
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
    /// [`Error::Invalid`](crate::Error::Invalid) if there is no such rank. A message to this rank itself
    /// needs its other end in the same group, which [`end`](Self::end) checks.
    pub fn send<'s: 'g, T: Element>(&mut self, data: CudaView<'s, T>, peer: i32) -> Result<()> {
        let peer = self.peer("send", peer)?;
        let data = self.keep("send", Lent::of_view(data, &self.comm.stream))?;
        let kind = T::DATA_TYPE;
        self.messages.push(DeviceMessage { peer, sends: true, data, kind });
        Ok(())
    }

    /// Adds a message from rank `peer`.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn recv<'r: 'g, T: Element>(&mut self, data: CudaViewMut<'r, T>, peer: i32) -> Result<()> {
        let peer = self.peer("recv", peer)?;
        let data = self.keep("recv", Lent::of_view_mut(data, &self.comm.stream))?;
        let kind = T::DATA_TYPE;
        self.messages.push(DeviceMessage { peer, sends: false, data, kind });
        Ok(())
    }

    /// Starts everything that was added.
    ///
    /// # Errors
    /// As every call. If a call is refused after others of the group have started, the communicator
    /// fails.
    pub fn end(mut self) -> Result<()> {
        self.start()
    }

    fn start(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.has_ended, true) {
            return Ok(());
        }
        if self.is_refused {
            let why = "one of its calls was refused, so none of them has started".to_owned();
            return Err(self.comm.invalid("a group of calls", why));
        }
        let stream = self.comm.stream();
        // Nothing has started if one of them cannot.
        let ready = self.calls.iter().map(|call| self.comm.ready(&stream, *call));
        let ready = ready.collect::<Result<Vec<_>>>()?;
        for (nth, call) in ready.iter().enumerate() {
            let started = self.comm.start_on(&stream, call);
            started.inspect_err(|error| self.fail_if(nth > 0, error))?;
        }
        let exchanged = match self.messages[..] {
            [] => Ok(()),
            _ => self.comm.exchange_on(&stream, &self.messages),
        };
        exchanged.inspect_err(|error| self.fail_if(!self.calls.is_empty(), error))
    }

    /// The group ends with `error`. If it `must` fail the communicator, because this rank has done a part
    /// of the group or nobody receives the error, even a call that was only refused does.
    fn fail_if(&self, must: bool, error: &Error) {
        if must && error.is_harmless() {
            let _ = self.comm.lock().fail("a group of calls", error.to_string());
        }
    }

    fn keep(
        &mut self,
        operation: &'static str,
        lent: std::result::Result<(Lent<'g>, SyncOnDrop<'g>), String>,
    ) -> Result<Lent<'g>> {
        let lent = lent.map_err(|why| self.comm.invalid(operation, why));
        let (lent, guard) = self.noted(lent)?;
        self.guards.push(guard);
        Ok(lent)
    }

    fn peer(&mut self, operation: &'static str, peer: i32) -> Result<usize> {
        let peer = self.comm.peer(operation, peer);
        self.noted(peer)
    }

    /// Records that a call cannot be added.
    fn noted<T>(&mut self, added: Result<T>) -> Result<T> {
        self.is_refused |= added.is_err();
        added
    }

    /// Adds a call whose buffers do not overlap.
    pub(super) fn apart<T: Element>(
        &mut self,
        collective: Collective,
        send: Option<CudaView<'g, T>>,
        receive: Option<CudaViewMut<'g, T>>,
        op: ReduceOp,
    ) -> Result<()> {
        let (name, stream) = (collective.name(), &*self.comm.stream);
        let [reads, writes] = self.comm.uses(collective);
        let input = send.filter(|_| reads).map(|it| Lent::of_view(it, stream));
        let input = input.map_or(Ok(Lent::EMPTY), |lent| self.keep(name, lent))?;
        let output = receive.filter(|_| writes).map(|it| Lent::of_view_mut(it, stream));
        let output = output.map_or(Ok(Lent::EMPTY), |lent| self.keep(name, lent))?;
        let call = self.comm.lent_call(collective, (T::DATA_TYPE, op), Some(input), output);
        let call = self.noted(call)?;
        self.calls.push(call);
        Ok(())
    }

    /// Adds a call whose input and output are `data`.
    pub(super) fn in_place<T: Element>(
        &mut self,
        collective: Collective,
        data: CudaViewMut<'g, T>,
        op: ReduceOp,
    ) -> Result<()> {
        let data = Lent::of_view_mut(data, &self.comm.stream);
        let data = self.keep(collective.name(), data)?;
        let call = self.comm.lent_call(collective, (T::DATA_TYPE, op), None, data);
        let call = self.noted(call)?;
        self.calls.push(call);
        Ok(())
    }
}

impl Drop for Group<'_> {
    /// Starts everything that was added. An error fails the communicator, because no other report
    /// of it exists: [`Comm::check`] and the next call return it. A call that was refused has
    /// returned its error.
    fn drop(&mut self) {
        if std::thread::panicking() && !self.has_ended {
            let why = "the thread panicked before the end of the group".to_owned();
            let _ = self.comm.lock().fail("a group of calls", why);
        } else if !self.is_refused
            && let Err(error) = self.start()
        {
            self.fail_if(true, &error);
        }
    }
}

//! Messages that do not block: they are posted immediately and run concurrently with all other
//! calls.

use crate::comm::{Communicator, Request};
use crate::element::{DataType, Element};
use crate::error::Result;
use crate::execute::messages::{MessageMemory, RequestedMessage};
use crate::requests::messages::memory::{Arrival, EndHook, RequestBuffer, data_of, room_of};
use crate::requests::outcome::channel;
use bytemuck::Pod;
use std::sync::Arc;

/// # Messages that do not block
///
/// Each of these posts a message and returns immediately. Unlike the requests of
/// [`start`](Communicator::start), they wait neither for one another nor for any other request or
/// call, and no call waits for them: those of one communicator progress together, each to its own
/// end, while a thread of the rank waits for one of them, within its blocking sends and receives,
/// and on a thread of the communicator's own.
///
/// A receive takes the first message of its pair that has its tag and that no earlier receive took,
/// whether it blocks or not; another tag never holds it up. A request has the
/// [`timeout`](Communicator::timeout) of the communicator from its start on. If it cannot be
/// completed, because of that or because a rank has failed, the communicator fails on all ranks. A
/// dropped request continues, and a communicator that is closed waits for it first.
///
/// ```
/// use maypole::Communicator;
/// let came = Communicator::run_local(2, |mut comm| {
///     let other = 1 - comm.rank();
///     let late = comm.start_recv(vec![0u8; 3], other, 1);
///     let _sent = comm.start_send(vec![7u8; 100_000], other, 2);
///     // The receive with tag 1 is posted, and does not hold this one up.
///     let mut long = vec![0u8; 100_000];
///     comm.recv(&mut long, other, 2).unwrap();
///     comm.send(b"end", other, 1).unwrap();
///     (late.wait().unwrap(), long[0])
/// });
/// assert_eq!(came, [(b"end".to_vec(), 7), (b"end".to_vec(), 7)]);
/// ```
impl Communicator {
    /// [`send`](Self::send) without waiting, at any length of the message. A rank may also send to
    /// itself. The request gives the buffer back once all of its bytes have left.
    #[doc(alias("MPI_Isend", "isend"))]
    pub fn start_send<T: Element, B: AsRef<[T]> + Send + 'static>(
        &mut self,
        data: B,
        to: usize,
        tag: u32,
    ) -> Request<B> {
        let memory = data_of::<T, B>;
        self.post("start_send", (T::DATA_TYPE, Some(to), tag), data, memory, |data, _| data, None)
    }

    /// [`recv`](Self::recv) without waiting. `bool` cannot be received in this way, because not
    /// every byte is a `bool`: receive `u8`.
    #[doc(alias("MPI_Irecv", "irecv"))]
    pub fn start_recv<T: Element + Pod, B: AsMut<[T]> + Send + 'static>(
        &mut self,
        data: B,
        from: usize,
        tag: u32,
    ) -> Request<B> {
        let memory = room_of::<T, B>;
        self.post("start_recv", (T::DATA_TYPE, Some(from), tag), data, memory, |data, _| data, None)
    }

    /// [`recv_any`](Self::recv_any) without waiting. The request gives the buffer back, and the
    /// rank that sent the message with its number of elements.
    ///
    /// ```
    /// use maypole::Communicator;
    /// Communicator::run_local(2, |mut comm| {
    ///     let other = 1 - comm.rank();
    ///     let receive = comm.start_recv_any(vec![0u16; 8], 5);
    ///     comm.send(&[1u16, 2, 3], other, 5).unwrap();
    ///     let (data, (from, count)) = receive.wait().unwrap();
    ///     assert_eq!((&data[..count], from), (&[1, 2, 3][..], other));
    /// });
    /// ```
    pub fn start_recv_any<T: Element + Pod, B: AsMut<[T]> + Send + 'static>(
        &mut self,
        data: B,
        tag: u32,
    ) -> Request<(B, (usize, usize))> {
        let memory = room_of::<T, B>;
        let give = |data, arrival| (data, arrival);
        self.post("start_recv", (T::DATA_TYPE, None, tag), data, memory, give, None)
    }

    /// Posts a `message` with elements of a type to or from a rank, which owns `buffer`: see
    /// [`RequestBuffer`].
    pub(super) fn post<B: Send + 'static, R: Send + 'static>(
        &mut self,
        operation: &'static str,
        message: (DataType, Option<usize>, u32),
        mut buffer: B,
        memory: impl Fn(&mut B) -> MessageMemory<'_> + Send + 'static,
        give: impl FnOnce(B, Arrival) -> R + Send + 'static,
        hook: Option<EndHook>,
    ) -> Request<R> {
        let checked = self.check_start(operation, message, memory(&mut buffer).len());
        let rank = self.rank();
        let (outcome, shared) = channel(rank, &self.engine.unreported);
        let owned = RequestBuffer { rank, buffer, memory, give, hook, outcome };
        match checked {
            Ok(()) => {
                let deadline = self.engine.message_deadline();
                let message = RequestedMessage::new(Box::new(owned), message, deadline);
                self.engine.messages.start(message);
            }
            Err(error) => owned.finish(Err(error)),
        }
        let messages = Arc::clone(&self.engine.messages);
        Request::new(&self.engine, shared, Some(messages))
    }

    /// Refuses a message that cannot be posted.
    fn check_start(
        &mut self,
        operation: &'static str,
        (kind, peer, _): (DataType, Option<usize>, u32),
        bytes: usize,
    ) -> Result<()> {
        self.engine.check_process()?;
        if let Some(peer) = peer {
            self.check_peer(operation, peer)?;
        }
        if !bytes.is_multiple_of(kind.size()) {
            let size = kind.size();
            let why = format!("{bytes} bytes are no whole number of elements of {size} bytes");
            return Err(self.invalid(operation, why));
        }
        if self.engine.messages.is_closed() {
            return Err(self.invalid(operation, "the communicator has been closed".to_owned()));
        }
        match self.engine.is_here() {
            true => self.engine.get_mut().check_usable(|| format!("{operation}()")),
            // Requests in flight report a failure of the communicator themselves.
            false => Ok(()),
        }
    }
}

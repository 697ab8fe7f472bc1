//! Messages that do not block: they are posted immediately and run concurrently with all other
//! calls.

use crate::comm::{Communicator, Request};
use crate::element::{DataType, Element};
use crate::error::Result;
use crate::execute::messages::NewRequest;
use crate::requests::messages::memory::{
    Arrival, EndHook, EndOfMessage, ReceiveBuffer, SendBuffer,
};
use crate::requests::outcome::channel;
use bytemuck::Pod;
use std::marker::PhantomData;

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
    pub fn start_send<T: Element, B: AsRef<[T]> + Send + 'static>(
        &mut self,
        data: B,
        to: usize,
        tag: u32,
    ) -> Request<B> {
        self.post_send::<T, B>(T::DATA_TYPE, data, to, tag, None)
    }

    /// [`recv`](Self::recv) without waiting. `bool` cannot be received in this way, because not
    /// every byte is a `bool`: receive `u8`.
    pub fn start_recv<T: Element + Pod, B: AsMut<[T]> + Send + 'static>(
        &mut self,
        data: B,
        from: usize,
        tag: u32,
    ) -> Request<B> {
        let give = |data: B, _: Arrival| data;
        self.post_receive::<T, B, B>(T::DATA_TYPE, data, (Some(from), tag), give, None)
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
        let give = |data: B, arrival: Arrival| (data, arrival);
        self.post_receive::<T, B, _>(T::DATA_TYPE, data, (None, tag), give, None)
    }

    pub(super) fn post_send<T: Element, B: AsRef<[T]> + Send + 'static>(
        &mut self,
        kind: DataType,
        buffer: B,
        to: usize,
        tag: u32,
        hook: Option<EndHook>,
    ) -> Request<B> {
        let bytes = size_of_val(buffer.as_ref());
        let checked = self.check_start("start_send", Some(to), kind, bytes);
        self.post(checked, hook, |end| {
            let owned = Box::new(SendBuffer { buffer, end, element: PhantomData::<fn(T)> });
            NewRequest::Send { to, tag, kind, owned }
        })
    }

    pub(super) fn post_receive<T, B, R>(
        &mut self,
        kind: DataType,
        mut buffer: B,
        (from, tag): (Option<usize>, u32),
        give: fn(B, Arrival) -> R,
        hook: Option<EndHook>,
    ) -> Request<R>
    where
        T: Element + Pod,
        B: AsMut<[T]> + Send + 'static,
        R: Send + 'static,
    {
        let bytes = size_of_val(buffer.as_mut());
        let checked = self.check_start("start_recv", from, kind, bytes);
        self.post(checked, hook, |end| {
            let element = PhantomData::<fn(T)>;
            let owned = Box::new(ReceiveBuffer { buffer, kind, give, end, element });
            NewRequest::Receive { from, tag, kind, owned }
        })
    }

    /// Posts the message that `new` makes, unless the check of its arguments has failed.
    fn post<R: Send + 'static>(
        &mut self,
        checked: Result<()>,
        hook: Option<EndHook>,
        new: impl FnOnce(EndOfMessage<R>) -> NewRequest,
    ) -> Request<R> {
        let (tell, outcome) = channel(self.rank(), &self.engine.unreported);
        let end = EndOfMessage { rank: self.rank(), hook, tell };
        match checked {
            Ok(()) => {
                let deadline = self.engine.message_deadline();
                self.engine.messages.start(new(end), deadline);
            }
            Err(error) => end.refuse(error),
        }
        Request::of_message(&self.engine, outcome)
    }

    /// Refuses a message that cannot be posted.
    fn check_start(
        &mut self,
        operation: &'static str,
        peer: Option<usize>,
        kind: DataType,
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

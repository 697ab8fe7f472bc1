//! The memory of messages that are posted without waiting, and what their requests are told.

use crate::element::Element;
use crate::error::Error;
use crate::execute::messages::{MessageEnd, Misfit, OwnedReceive, OwnedSend};
use crate::requests::outcome::OutcomeSender;
use bytemuck::Pod;
use maypole_kernels::{DataType, View, ViewMut};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The rank at the other end of a message, and the number of its elements.
pub(crate) type Arrival = (usize, usize);

/// What is called at the end of a message, before its request is told.
pub(crate) type EndHook = Box<dyn FnOnce(std::result::Result<Arrival, &Error>) + Send>;

/// What a request is told at the end of its message.
pub(crate) struct EndOfMessage<R> {
    pub(crate) rank: usize,
    pub(crate) hook: Option<EndHook>,
    pub(crate) tell: OutcomeSender<R>,
}

impl<R> EndOfMessage<R> {
    /// Tells that the message was not posted.
    pub(crate) fn refuse(self, error: Error) {
        self.tell(MessageEnd::Failed(Box::new(error)), |_| unreachable!("it has failed"));
    }

    /// Tells that the message has ended: `give` makes what the request gives back.
    fn tell(self, end: MessageEnd, give: impl FnOnce(Arrival) -> R) {
        let end = match end {
            MessageEnd::Moved { peer, count } => Ok((peer, count)),
            MessageEnd::Misfit(misfit) => Err(misfit_error(self.rank, misfit)),
            MessageEnd::Failed(error) => {
                Err(*error.downcast::<Error>().expect("requests end with errors of calls"))
            }
        };
        if let Some(hook) = self.hook {
            // The thread that drives has other messages, too, and goes on.
            let _ = catch_unwind(AssertUnwindSafe(|| hook(end.as_ref().map(|it| *it))));
        }
        self.tell.send(Ok(end.map(give)));
    }
}

/// The elements `T` of a message to send.
pub(crate) struct SendBuffer<T, B> {
    pub(crate) buffer: B,
    pub(crate) end: EndOfMessage<B>,
    pub(crate) element: PhantomData<fn(T)>,
}

impl<T: Element, B: AsRef<[T]> + Send> OwnedSend for SendBuffer<T, B> {
    fn data(&self) -> View<'_> {
        View::of(self.buffer.as_ref())
    }

    fn end(self: Box<Self>, end: MessageEnd) {
        let Self { buffer, end: request, .. } = *self;
        request.tell(end, |_| buffer);
    }
}

/// The memory for the elements `T` of a message to receive. `give` makes what its request gives
/// back.
pub(crate) struct ReceiveBuffer<T, B, R> {
    pub(crate) buffer: B,
    pub(crate) kind: DataType,
    pub(crate) give: fn(B, Arrival) -> R,
    pub(crate) end: EndOfMessage<R>,
    pub(crate) element: PhantomData<fn(T)>,
}

impl<T, B, R> OwnedReceive for ReceiveBuffer<T, B, R>
where
    T: Element + Pod,
    B: AsMut<[T]> + Send,
    R: Send,
{
    fn room(&mut self) -> ViewMut<'_> {
        ViewMut::of(self.buffer.as_mut())
    }

    fn end(self: Box<Self>, end: MessageEnd) {
        let Self { mut buffer, kind, give, end: request, .. } = *self;
        if let (DataType::Bool, MessageEnd::Moved { count, .. }) = (kind, &end) {
            // A peer can send any byte, and every byte but 0 is true.
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(buffer.as_mut());
            bytes[..*count].iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
        }
        request.tell(end, |arrival| give(buffer, arrival));
    }
}

/// The error of a receive whose message did not fit.
pub(crate) fn misfit_error(rank: usize, misfit: Misfit) -> Error {
    let Misfit { peer, tag, sent, room, up_to } = misfit;
    let words = |(kind, count): (DataType, usize)| format!("{count} x {}", kind.name());
    let (operation, most) = if up_to { ("recv_any", "up to ") } else { ("recv", "") };
    let why = format!(
        "sent {} with tag {tag}, but this receive takes {most}{}; the message is dropped",
        words(sent),
        words(room)
    );
    Error::Value { rank, operation, peer, why }
}

//! The memory of messages that are posted without waiting, and the end of their requests.

use crate::element::Element;
use crate::error::Error;
use crate::execute::messages::{MessageEnd, MessageFailure, MessageMemory, Misfit, OwnedMessage};
use crate::requests::outcome::OutcomeSender;
use bytemuck::Pod;
use maypole_kernels::{DataType, View, ViewMut};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The rank at the other end of a message, and the number of its elements.
pub(crate) type Arrival = (usize, usize);

/// A function that is called at the end of a message, before its request has the outcome.
pub(crate) type EndHook = Box<dyn FnOnce(std::result::Result<Arrival, &Error>) + Send>;

/// A message of a request, which owns `buffer`. `memory` returns the message's memory in the
/// buffer, and `give` makes the request's result.
pub(crate) struct RequestBuffer<B, M, G, R> {
    pub(crate) rank: usize,
    pub(crate) buffer: B,
    pub(crate) memory: M,
    pub(crate) give: G,
    pub(crate) hook: Option<EndHook>,
    pub(crate) outcome: OutcomeSender<R>,
}

impl<B, M, G, R> RequestBuffer<B, M, G, R>
where
    G: FnOnce(B, Arrival) -> R,
{
    /// Ends the request. A message that was not posted ends so, too.
    pub(crate) fn finish(self, end: std::result::Result<Arrival, Error>) {
        let Self { rank, buffer, give, hook, outcome, .. } = self;
        let arrival = end.as_ref().copied();
        let given = give(buffer, arrival.unwrap_or((rank, 0)));
        if let Some(hook) = hook {
            // A panic of the hook must not end the driving of other messages.
            let _ = catch_unwind(AssertUnwindSafe(|| hook(arrival)));
        }
        outcome.send(Some(given), Ok(end.map(drop)));
    }
}

impl<B, M, G, R> OwnedMessage for RequestBuffer<B, M, G, R>
where
    B: Send,
    M: Fn(&mut B) -> MessageMemory<'_> + Send,
    G: FnOnce(B, Arrival) -> R + Send,
    R: Send,
{
    fn memory(&mut self) -> MessageMemory<'_> {
        (self.memory)(&mut self.buffer)
    }

    fn end(self: Box<Self>, end: MessageEnd) {
        let rank = self.rank;
        self.finish(end.map_err(|failure| match failure {
            MessageFailure::Misfit(misfit) => misfit_error(rank, misfit),
            MessageFailure::Group(error) => {
                *error.downcast().expect("requests end with errors of calls")
            }
        }));
    }
}

/// The elements `T` of a message to send.
pub(crate) fn data_of<T: Element, B: AsRef<[T]>>(buffer: &mut B) -> MessageMemory<'_> {
    MessageMemory::Data(View::of(B::as_ref(buffer)))
}

/// The memory for the elements `T` of a message to receive.
pub(crate) fn room_of<T: Element + Pod, B: AsMut<[T]>>(buffer: &mut B) -> MessageMemory<'_> {
    MessageMemory::Room(ViewMut::of(buffer.as_mut()))
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

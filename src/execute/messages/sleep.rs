//! The sleeps of a wait for messages, which whatever lets a link go on ends early.

use super::carrier::LinkWait;
use super::drive::once_each;
use super::links::MessageLinks;
use super::requests::MessageRequests;
use arrayvec::ArrayVec;
use maypole_transports::Sleep;
use maypole_transports::pipe::PipeWait;

impl MessageLinks {
    /// True while the bytes of a message are on their way through shared memory.
    pub(crate) fn is_moving(&self) -> bool {
        let outgoing = self.outgoing.iter().flatten().filter(|link| link.carrier.is_sending());
        let incoming = self.incoming.iter().flatten().filter(|link| link.is_receiving());
        let moving = outgoing.map(|link| link.awaited()).chain(incoming.map(|it| it.awaited()));
        moving.flatten().any(|link| link.pipe_wait().is_some())
    }

    /// Ranks to which requests send.
    fn targets_of_requests(&self) -> Vec<usize> {
        let busy = |to: &usize| self.outgoing[*to].as_ref().is_some_and(|link| link.is_busy());
        (0..self.outgoing.len()).filter(busy).collect()
    }

    /// Ranks from which `requests` receive.
    fn sources_of(&self, requests: &MessageRequests) -> Vec<usize> {
        let awaited = |from: &usize| match &self.incoming[*from] {
            Some(link) => link.is_awaited(requests),
            None => requests.awaits(*from),
        };
        (0..self.incoming.len()).filter(awaited).collect()
    }

    /// Takes the `sleep`, which ends early if a link to `targets`, from `sources` or of `requests` can go
    /// on, or there is a new one of these, unless bytes are on the move.
    pub(crate) fn sleep_on(
        &mut self,
        targets: &[usize],
        sources: &[usize],
        requests: &MessageRequests,
        sleep: Sleep<'_>,
    ) {
        if !self.activity.is_idle() {
            return;
        }
        let targets = once_each([targets, &self.targets_of_requests()].concat());
        let sources = once_each([sources, &self.sources_of(requests)].concat());
        let Self { outgoing, incoming, .. } = self;
        let quiet_to = |to: &usize| {
            let link = outgoing[*to].as_mut();
            link.is_none_or(|link| link.carrier.prepare_to_sleep())
        };
        let quiet_from = |from: &usize| {
            let link = incoming.get_mut(*from).and_then(Option::as_mut);
            link.is_none_or(|link| link.carrier.prepare_to_sleep())
        };
        let is_quiet = sleep.is_in_background()
            || targets.iter().all(quiet_to) && sources.iter().all(quiet_from);
        if !is_quiet {
            return;
        }
        let awaited = || {
            let to = targets.iter().filter_map(|to| Some(outgoing[*to].as_ref()?.awaited()));
            let from =
                sources.iter().filter_map(|from| Some(incoming.get(*from)?.as_ref()?.awaited()));
            to.chain(from)
        };
        let pipes: ArrayVec<Option<PipeWait<'_>>, { PipeWait::MOST }> =
            awaited().map(|it| it?.pipe_wait()).take(PipeWait::MOST).collect();
        // A thread sleeps on pipes or on descriptors, and not on both.
        if sleep.is_in_background() || !pipes.is_empty() && pipes.iter().all(Option::is_some) {
            let pipes: ArrayVec<_, { PipeWait::MOST }> = pipes.into_iter().flatten().collect();
            return requests.sleep(&pipes, sleep);
        }
        sleep.take(awaited().flatten().filter_map(LinkWait::interest));
    }
}

#[cfg(test)]
mod tests {
    use super::super::batch::MessageBatch;
    use super::super::frame::{Envelope, Frame};
    use super::super::incoming::IncomingLink;
    use super::super::posted::Posted;
    use super::super::{MessageDeadline, MessageEnd, MessageMemory, NewRequest, OwnedMessage};
    use super::*;
    use crate::execute::AnyStream;
    use maypole_kernels::{DataType, View, ViewMut};
    use maypole_transports::{HEAD, Mem, Stream, mem};
    use std::time::{Duration, Instant};

    const BYTES: usize = 64 << 10;

    impl OwnedMessage for Vec<u8> {
        fn memory(&mut self) -> MessageMemory<'_> {
            MessageMemory::Room(ViewMut::of(self))
        }

        fn end(self: Box<Self>, end: MessageEnd) {
            assert!(matches!(end, Ok((1, BYTES))), "{end:?}");
        }
    }

    /// A request for a message of rank 1, as rank 0 has it.
    fn requested() -> MessageRequests {
        let mut requests = MessageRequests::default();
        let owned = Box::new(vec![0u8; BYTES]);
        let allowed = Duration::from_secs(60);
        let deadline = MessageDeadline { end: Instant::now() + allowed, allowed };
        let kind = DataType::U8;
        requests.inbox().push(NewRequest { peer: Some(1), tag: 5, kind, owned, deadline });
        requests.take_new();
        requests
    }

    /// Sends a frame with its body and lets the link take them.
    fn arrive(
        sender: &mut Mem,
        (frame, body): (Frame, &[u8]),
        links: &mut MessageLinks,
        requests: &mut MessageRequests,
    ) {
        let sent = sender.send(&frame.to_bytes(), View::of(body), 0).unwrap();
        assert_eq!(sent, HEAD + body.len());
        let mut posted = Posted { batch: &mut MessageBatch::default(), requests };
        links.incoming[1].as_mut().unwrap().drive(&mut posted);
        requests.tell();
    }

    #[test]
    fn a_request_sleeps_on_its_link_until_the_last_byte_has_come() {
        let (mut sender, receiver) = mem::pair(2 * BYTES);
        let link = IncomingLink::new(1, AnyStream::Mem(receiver), false);
        let mut links = MessageLinks::new(0, 2);
        links.incoming = vec![None, Some(Box::new(link))];
        assert!(links.sources_of(&MessageRequests::default()).is_empty());

        let requests = &mut requested();
        assert_eq!(links.sources_of(requests), [1]);
        let announced = Frame::ReadyToSend(Envelope { tag: 5, kind: DataType::U8, bytes: BYTES });
        arrive(&mut sender, (announced, &[]), &mut links, requests);
        assert_eq!(links.sources_of(requests), [1], "its bytes are on their way");
        arrive(&mut sender, (Frame::Data(0), &[7; BYTES]), &mut links, requests);
        assert!(links.is_done_with(requests) && links.sources_of(requests).is_empty());
    }
}

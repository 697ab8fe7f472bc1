//! The sleeps of a wait for messages. Any event on an awaited link ends them early.

use super::carrier::Carrier;
use super::links::MessageLinks;
use super::requests::MessageRequests;
use arrayvec::ArrayVec;
use maypole_transports::pipe::PipeWait;
use maypole_transports::{Sleep, Stream};

impl MessageLinks {
    /// True while the bytes of a message move through shared memory.
    pub(crate) fn is_moving(&self) -> bool {
        let outgoing = self.outgoing.iter().flatten().filter(|link| link.carrier.is_sending());
        let incoming = self.incoming.iter().flatten().filter(|link| link.is_receiving());
        let outgoing = outgoing.map(|link| link.carrier.pipe_wait(link.needs_replies()));
        let mut moving = outgoing.chain(incoming.map(|link| link.carrier.pipe_wait(true)));
        moving.any(|wait| wait.is_some())
    }

    /// Takes the `sleep`, which ends early if a link to `targets`, from `sources` or of `requests`
    /// can progress, or there is a new one of these, unless bytes are moving. Ranks are ascending,
    /// or all.
    pub(crate) fn sleep_on(
        &mut self,
        targets: &[usize],
        sources: &[usize],
        requests: &MessageRequests,
        sleep: Sleep<'_>,
    ) {
        if std::mem::take(&mut self.moved) {
            return;
        }
        let Self { outgoing, incoming, world, .. } = self;
        let names =
            |ranks: &[usize], at: usize| ranks.len() == *world || ranks.binary_search(&at).is_ok();
        let outgoing = outgoing.iter_mut().enumerate().filter_map(|(at, link)| {
            let link = link.as_mut().filter(|link| link.is_busy() || names(targets, at))?;
            Some((link.needs_replies(), &mut link.carrier))
        });
        let incoming = incoming.iter_mut().enumerate().filter_map(|(at, link)| {
            let link = link.as_mut().filter(|it| it.is_awaited(requests) || names(sources, at))?;
            Some((true, &mut link.carrier))
        });
        let mut carriers: Vec<(bool, &mut Carrier)> = outgoing.chain(incoming).collect();
        let mut all = carriers.iter_mut();
        if !sleep.is_in_background() && !all.all(|(_, carrier)| carrier.stream.prepare_to_sleep()) {
            return;
        }
        let pipes = carriers.iter().map(|(receives, carrier)| carrier.pipe_wait(*receives));
        let pipes: ArrayVec<Option<PipeWait<'_>>, { PipeWait::MOST }> =
            pipes.take(PipeWait::MOST).collect();
        // A thread sleeps on pipes or on descriptors, and not on both.
        if sleep.is_in_background() || !pipes.is_empty() && pipes.iter().all(Option::is_some) {
            let pipes: ArrayVec<_, { PipeWait::MOST }> = pipes.into_iter().flatten().collect();
            return requests.sleep(&pipes, sleep);
        }
        sleep.take(carriers.iter().filter_map(|(receives, carrier)| carrier.interest(*receives)));
    }
}

#[cfg(test)]
mod tests {
    use super::super::batch::MessageBatch;
    use super::super::frame::{Envelope, Frame};
    use super::super::incoming::IncomingLink;
    use super::super::posted::Posted;
    use super::super::{
        AllowedTime, MessageDeadline, MessageEnd, MessageMemory, OwnedMessage, RequestedMessage,
    };
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
        let allowed = AllowedTime { time: Duration::from_secs(60), is_own: false };
        let deadline = MessageDeadline { end: Instant::now() + allowed.time, allowed };
        let message = RequestedMessage::new(owned, (DataType::U8, Some(1), 5), deadline);
        requests.inbox.push(message);
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
        let is_awaited = |links: &MessageLinks, requests: &MessageRequests| {
            links.incoming[1].as_ref().unwrap().is_awaited(requests)
        };
        assert!(!is_awaited(&links, &MessageRequests::default()));

        let requests = &mut requested();
        assert!(is_awaited(&links, requests));
        let announced = Frame::ReadyToSend(Envelope { tag: 5, kind: DataType::U8, bytes: BYTES });
        arrive(&mut sender, (announced, &[]), &mut links, requests);
        assert!(is_awaited(&links, requests), "its bytes are on their way");
        arrive(&mut sender, (Frame::Data(0), &[7; BYTES]), &mut links, requests);
        assert!(links.is_done_with(requests) && !is_awaited(&links, requests));
    }
}

//! Which posted message cannot be completed, and why.

use super::MessageError;
use super::batch::{BatchMember, ReceiveHead, ReceiveState, SendHead};
use super::drive::{MessageRun, once_each};
use super::requests::FIRST_REQUEST;
use crate::execute::LinkError;
use maypole_transports::turns;

impl MessageRun<'_, '_, '_> {
    /// The receives that are not over: those of the batch, then those of requests.
    fn open_receives(&self) -> impl Iterator<Item = (usize, &ReceiveHead)> {
        let batch = self.posted.batch.receives.iter().map(|receive| &receive.head).enumerate();
        let open = batch.filter(|(_, head)| !head.state.is_over());
        open.chain(self.posted.requests.open_receives())
    }

    /// The sends that have not left as a whole: those of the batch, then those of requests.
    fn open_sends(&self) -> impl Iterator<Item = (usize, &SendHead)> {
        let batch = self.posted.batch.sends.iter().map(|send| &send.head).enumerate();
        let open = batch.filter(|(_, head)| !head.complete);
        open.chain(self.posted.requests.open_sends())
    }

    /// A message that cannot be completed, if there is one.
    #[inline]
    pub(super) fn failed_message(&mut self) -> Option<MessageError> {
        if let Some(error) = self.lost_message() {
            return Some(error);
        }
        if self.polls.is_peer_check_due() { self.unanswered_message() } else { None }
    }

    /// A message that cannot be completed because its link is lost, if there is one. Requests are
    /// many, so they are looked at less often.
    fn lost_message(&mut self) -> Option<MessageError> {
        let lost = self.targets.iter().any(|to| self.is_lost_to(*to))
            || self.sources.iter().any(|from| self.is_lost_from(*from));
        let looks = !self.posted.requests.is_idle() && self.polls.is_drive_due();
        if !lost && !looks {
            return None;
        }
        let lost_source = |head: &ReceiveHead| match (head.peer(), head.from) {
            (Some(peer), _) => Some(peer).filter(|peer| self.is_lost_from(*peer)),
            (None, _) => self.any_peer_if_all_are_lost(),
        };
        let mut receives = self.open_receives();
        if let Some((at, peer)) = receives.find_map(|(at, head)| Some((at, lost_source(head)?))) {
            drop(receives);
            let fault = self.links.incoming[peer].as_mut()?.fault.take()?;
            return Some(self.receive_error(at, Some(peer), LinkError::Lost(fault)));
        }
        drop(receives);
        let mut sends = self.open_sends();
        let (at, to) = sends
            .find_map(|(at, head)| Some((at, head.to)).filter(|(_, to)| self.is_lost_to(*to)))?;
        drop(sends);
        let fault = self.links.outgoing[to].as_mut()?.fault.take()?;
        Some(self.send_error(at, LinkError::Lost(fault)))
    }

    fn is_lost_to(&self, peer: usize) -> bool {
        matches!(self.links.outgoing.get(peer), Some(Some(link)) if link.fault.is_some())
    }

    fn is_lost_from(&self, peer: usize) -> bool {
        matches!(self.links.incoming.get(peer), Some(Some(link)) if link.fault.is_some())
    }

    /// All ranks but this one.
    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let rank = self.links.rank;
        (0..self.links.world).filter(move |peer| *peer != rank)
    }

    /// One of the other ranks, if the links from all of them are lost.
    fn any_peer_if_all_are_lost(&self) -> Option<usize> {
        let all_lost = self.others().all(|peer| self.is_lost_from(peer));
        if all_lost { self.others().next() } else { None }
    }

    /// A message that will never be completed because its peer has left, if there is one.
    fn unanswered_message(&mut self) -> Option<MessageError> {
        let mut peers: Vec<usize> = self.open_sends().map(|(_, head)| head.to).collect();
        for (_, head) in self.open_receives() {
            match head.peer() {
                Some(peer) => peers.push(peer),
                None => peers.extend(self.others()),
            }
        }
        let named = once_each(peers).into_iter().filter(|peer| *peer != self.links.rank);
        let gone: Vec<usize> =
            named.filter(|peer| self.context.connector.has_left(*peer)).collect();
        if gone.is_empty() {
            return None;
        }
        // After this, the links of all peers that made one before they left are known.
        self.links.accept_callers(self.context);
        let links = &*self.links;
        let silent = |peer: usize| gone.contains(&peer) && !links.receives_from(peer);
        for (at, head) in self.open_receives().filter(|(_, it)| it.state == ReceiveState::Posted) {
            let never = match head.from {
                Some(from) => Some(from).filter(|from| silent(*from)),
                None => {
                    let mut others = self.others();
                    let all = others.all(|peer| silent(peer) || self.is_lost_from(peer));
                    Some(gone[0]).filter(|_| all)
                }
            };
            if never.is_some() {
                return Some(self.receive_error(at, never, LinkError::PeerLeft));
            }
        }
        let (at, _) = self.open_sends().find(|(_, head)| gone.contains(&head.to))?;
        Some(self.send_error(at, LinkError::PeerLeft))
    }

    /// A message of a request whose deadline has passed, if there is one.
    pub(super) fn late_message(&self) -> Option<MessageError> {
        if !self.polls.is_clock_due() {
            return None;
        }
        let at = self.posted.requests.late(turns::now())?;
        let error = match self.posted.requests.receive(at).map(ReceiveHead::peer) {
            Some(peer) => self.receive_error(at, peer, LinkError::TimedOut),
            None => self.send_error(at, LinkError::TimedOut),
        };
        Some(self.with_full_queue(error))
    }

    /// The same error, which says so if the awaited rank can send nothing more before this rank
    /// receives what it has sent.
    pub(super) fn with_full_queue(&self, mut error: MessageError) -> MessageError {
        let link = error.peer.and_then(|peer| self.links.incoming.get(peer)?.as_ref());
        if let (Some(waiting), LinkError::TimedOut) =
            (link.and_then(|link| link.full_queue()), &error.error)
        {
            error.operation.push_str(&format!(
                ", while {waiting} messages with other tags wait for their receives and fill the \
                 queue: receive those first"
            ));
        }
        error
    }

    pub(super) fn send_error(&self, at: usize, error: LinkError) -> MessageError {
        let peer = Some(self.posted.send(at).to);
        match at < FIRST_REQUEST {
            true => MessageError::of_batch(self.posted.batch, BatchMember::Send(at), peer, error),
            false => MessageError::of_request(self.posted.requests, at, peer, error),
        }
    }

    fn receive_error(&self, at: usize, peer: Option<usize>, error: LinkError) -> MessageError {
        let batch = &*self.posted.batch;
        match at < FIRST_REQUEST {
            true => MessageError::of_batch(batch, BatchMember::Receive(at), peer, error),
            false => MessageError::of_request(self.posted.requests, at, peer, error),
        }
    }
}

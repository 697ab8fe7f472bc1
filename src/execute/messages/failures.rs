//! Finds posted messages that cannot be completed, and the reason.

use super::MessageError;
use super::drive::{MessageRun, once_each};
use super::message::{MessageHead, MessageState};
use crate::execute::LinkError;
use maypole_transports::turns;

impl MessageRun<'_, '_, '_> {
    /// A message that cannot be completed, if there is one.
    #[inline]
    pub(super) fn failed_message(&mut self) -> Option<MessageError> {
        if let Some(error) = self.lost_message() {
            return Some(error);
        }
        if self.polls.is_peer_check_due() { self.unanswered_message() } else { None }
    }

    /// A message that cannot be completed because its link is lost, if there is one. Requests are
    /// many, so they are checked less often.
    fn lost_message(&mut self) -> Option<MessageError> {
        let lost = self.targets.iter().any(|to| self.is_lost_to(*to))
            || self.sources.iter().any(|from| self.is_lost_from(*from));
        let looks = !self.posted.requests.is_idle() && self.polls.is_drive_due();
        if !lost && !looks {
            return None;
        }
        let lost_peer = |head: &MessageHead| match (head.sends, head.peer()) {
            (true, to) => to.filter(|to| self.is_lost_to(*to)),
            (false, Some(from)) => Some(from).filter(|from| self.is_lost_from(*from)),
            (false, None) => self.any_peer_if_all_are_lost(),
        };
        let mut open = self.posted.open(false).chain(self.posted.open(true));
        let (at, sends, peer) =
            open.find_map(|(at, head)| Some((at, head.sends, lost_peer(head)?)))?;
        drop(open);
        let fault = match sends {
            true => self.links.outgoing[peer].as_mut()?.carrier.fault.take()?,
            false => self.links.incoming[peer].as_mut()?.carrier.fault.take()?,
        };
        Some(self.posted.error(at, Some(peer), LinkError::Lost(fault)))
    }

    fn is_lost_to(&self, peer: usize) -> bool {
        matches!(self.links.outgoing.get(peer), Some(Some(link)) if link.carrier.fault.is_some())
    }

    fn is_lost_from(&self, peer: usize) -> bool {
        matches!(self.links.incoming.get(peer), Some(Some(link)) if link.carrier.fault.is_some())
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
        let open = self.posted.open(true).chain(self.posted.open(false));
        let any = 0..self.links.world;
        let peers = open.flat_map(|(_, it)| it.peer().map_or(any.clone(), |peer| peer..peer + 1));
        let named = once_each(peers.collect()).into_iter().filter(|peer| *peer != self.links.rank);
        let gone: Vec<usize> =
            named.filter(|peer| self.context.connector.has_left(*peer)).collect();
        if gone.is_empty() {
            return None;
        }
        // A peer that sent a message before it left has made its link: take all new ones first.
        self.links.accept_callers(self.context);
        let links = &*self.links;
        let silent = |peer: usize| gone.contains(&peer) && !links.receives_from(peer);
        let receives = self.posted.open(false);
        for (at, head) in receives.filter(|(_, it)| it.state == MessageState::Posted) {
            let never = match head.rank {
                Some(from) => Some(from).filter(|from| silent(*from)),
                None => {
                    let mut others = self.others();
                    let all = others.all(|peer| silent(peer) || self.is_lost_from(peer));
                    Some(gone[0]).filter(|_| all)
                }
            };
            if never.is_some() {
                return Some(self.posted.error(at, never, LinkError::PeerLeft));
            }
        }
        let is_gone = |head: &MessageHead| head.rank.is_some_and(|to| gone.contains(&to));
        let (at, head) = self.posted.open(true).find(|(_, head)| is_gone(head))?;
        Some(self.posted.error(at, head.rank, LinkError::PeerLeft))
    }

    /// A message of a request whose deadline has passed, if there is one.
    pub(super) fn late_message(&self) -> Option<MessageError> {
        if !self.polls.is_clock_due() {
            return None;
        }
        let at = self.posted.requests.late(turns::now())?;
        let error = self.posted.error(at, self.posted.head(at).peer(), LinkError::TimedOut);
        Some(self.with_full_queue(error))
    }

    /// The same error, with a note if the awaited rank has no credit left until this rank receives
    /// its earlier messages.
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
}

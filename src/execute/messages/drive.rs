//! Runs a batch: posts all of its messages, then moves bytes on all links until they are complete.

use super::BatchError;
use super::batch::{MessageBatch, ReceiveState};
use super::context::BatchContext;
use super::links::MessageLinks;
use super::recording::BatchRecording;
use crate::execute::LinkError;
use crate::execute::polling::PollCounter;
use crate::execute::record::Recorder;
use maypole_transports::Sleep;
use std::cell::RefCell;

/// A batch that runs.
struct BatchRun<'a, 'b, 'c> {
    links: &'a mut MessageLinks,
    batch: &'a mut MessageBatch<'b>,
    context: &'a BatchContext<'c>,
    recording: BatchRecording<'a>,
    /// Ranks that the batch sends to, once each.
    targets: Vec<usize>,
    /// Ranks that the batch receives from, once each; all ranks, if one may receive from any.
    sources: Vec<usize>,
    polls: PollCounter,
}

impl MessageLinks {
    /// Runs `batch` to its end and tells `recorder` of it. Calls `slow` with the batch once the
    /// wait has become long.
    ///
    /// # Errors
    /// [`BatchError`]; afterwards the links can only be left.
    pub(crate) fn run(
        &mut self,
        batch: &mut MessageBatch<'_>,
        context: &BatchContext<'_>,
        recorder: Option<&mut Recorder>,
        mut slow: impl FnMut(&MessageBatch<'_>),
    ) -> Result<(), BatchError> {
        let recording = BatchRecording::new(recorder, self.rank, batch);
        let mut run = BatchRun {
            links: self,
            batch,
            context,
            recording,
            targets: Vec::new(),
            sources: Vec::new(),
            polls: PollCounter::default(),
        };
        run.recording.before_moving();
        run.post()?;
        run.recording.after_moving(run.batch);
        let run = RefCell::new(run);
        let ready = || {
            let mut run = run.borrow_mut();
            let ended = run.poll();
            if ended.is_none() && run.polls.is_first_peer_check() {
                slow(run.batch);
            }
            ended
        };
        let sleep = |sleep: Sleep<'_>| run.borrow_mut().sleep(sleep);
        match context.waiting.until(context.alarm, sleep, ready) {
            Ok(ended) => ended,
            Err(interrupted) => {
                let (member, peer) = run.borrow().batch.awaited();
                Err(BatchError { member, peer, error: interrupted.into() })
            }
        }
    }

    /// The rank whose message with this `tag` a receive from any rank would take now, if one has
    /// arrived.
    pub(crate) fn first_arrived(&mut self, tag: u32, context: &BatchContext<'_>) -> Option<usize> {
        self.accept_callers(context);
        for link in self.incoming.iter_mut().flatten() {
            // No receive is posted, so none can fail. What has arrived goes to the unexpected
            // queue, whose length is bounded.
            while link.drive(&mut []).is_ok_and(|moved| moved) {}
        }
        let has_message = |peer: &usize| match self.incoming.get(*peer) {
            Some(Some(link)) => link.has_unexpected(tag),
            _ => false,
        };
        ranks_from(self.first_source, self.world).find(has_message)
    }
}

impl BatchRun<'_, '_, '_> {
    /// Makes links, takes what is in the unexpected queues, and queues what may be sent.
    fn post(&mut self) -> Result<(), BatchError> {
        for at in 0..self.batch.sends.len() {
            let to = self.batch.sends[at].to;
            let connected = self.links.connect(to, self.context);
            let failed = |why| BatchError::send(at, to, LinkError::Unconnected(why));
            connected.map_err(failed)?;
        }
        let missing = |from: Option<usize>| from.is_none_or(|from| !self.links.receives_from(from));
        if self.batch.receives.iter().any(|receive| missing(receive.from)) {
            self.links.accept_callers(self.context);
        }
        for at in 0..self.batch.receives.len() {
            self.match_unexpected(at)?;
        }
        for at in 0..self.batch.sends.len() {
            let to = self.batch.sends[at].to;
            let link = self.links.outgoing[to].as_mut().expect("connected above");
            link.post(at, &mut self.batch.sends);
        }
        self.name_peers();
        Ok(())
    }

    /// Serves a receive from the unexpected queue of its source, or of the first source that has a
    /// message for it.
    fn match_unexpected(&mut self, at: usize) -> Result<(), BatchError> {
        if let Some(from) = self.batch.receives[at].from {
            return self.match_unexpected_of(at, from).map(drop);
        }
        for peer in ranks_from(self.links.first_source, self.links.world) {
            if self.match_unexpected_of(at, peer)? {
                self.links.first_source = peer + 1;
                break;
            }
        }
        Ok(())
    }

    fn match_unexpected_of(&mut self, at: usize, from: usize) -> Result<bool, BatchError> {
        match self.links.incoming.get_mut(from) {
            Some(Some(link)) => link.match_unexpected(at, &mut self.batch.receives),
            _ => Ok(false),
        }
    }

    /// Notes the peers whose links the batch waits for.
    fn name_peers(&mut self) {
        self.targets = once_each(self.batch.sends.iter().map(|send| send.to).collect());
        let receives = self.batch.receives.iter();
        let sources: Option<Vec<usize>> = receives.map(|receive| receive.from).collect();
        let all = || ranks_from(self.links.first_source, self.links.world).collect();
        self.sources = sources.map_or_else(all, once_each);
    }

    /// Moves bytes; returns the result of the batch once it has ended.
    fn poll(&mut self) -> Option<Result<(), BatchError>> {
        self.polls.count();
        self.recording.before_moving();
        if let Err(error) = self.drive() {
            return Some(Err(error));
        }
        self.recording.after_moving(self.batch);
        if self.batch.is_complete() {
            self.remember_source();
            return Some(Ok(()));
        }
        if let Some(error) = self.lost_message() {
            return Some(Err(error));
        }
        if self.polls.is_peer_check_due() { self.unanswered_message().map(Err) } else { None }
    }

    /// Moves what can be moved now on the links that the batch waits for. Now and then, moves it on
    /// all incoming links and takes new ones, so that no sender has to wait because a stream is
    /// full.
    fn drive(&mut self) -> Result<(), BatchError> {
        let drives_all = self.polls.is_drive_due();
        let MessageBatch { sends, receives } = &mut *self.batch;
        let links = &mut *self.links;
        for to in &self.targets {
            if let Some(link) = &mut links.outgoing[*to] {
                if drives_all {
                    link.take_segment();
                }
                links.activity.note(link.drive(sends));
            }
        }
        for from in &self.sources {
            if let Some(Some(link)) = links.incoming.get_mut(*from) {
                links.activity.note(link.drive(receives)?);
            }
        }
        if drives_all {
            links.accept_callers(self.context);
            for link in links.incoming.iter_mut().flatten() {
                links.activity.note(link.drive(receives)?);
            }
        }
        Ok(())
    }

    /// Lets the next receive from any rank begin behind the rank whose message came last.
    fn remember_source(&mut self) {
        let receives = self.batch.receives.iter();
        let from_any = receives.rev().find(|receive| receive.from.is_none());
        if let Some(receive) = from_any
            && let ReceiveState::Complete { peer, .. } = receive.state
        {
            self.links.first_source = peer + 1;
        }
    }

    /// A message that cannot be completed because its link is lost, if there is one.
    fn lost_message(&mut self) -> Option<BatchError> {
        let send_lost = self.targets.iter().any(|to| self.is_lost_to(*to));
        if !send_lost && !self.sources.iter().any(|from| self.is_lost_from(*from)) {
            return None;
        }
        for (at, receive) in self.batch.receives.iter().enumerate() {
            let peer = match (receive.state, receive.from) {
                (ReceiveState::Complete { .. }, _) => None,
                (ReceiveState::Cleared { peer, .. }, _) => Some(peer),
                (ReceiveState::Posted, Some(peer)) => Some(peer),
                (ReceiveState::Posted, None) => self.any_peer_if_all_are_lost(),
            };
            if let Some(peer) = peer.filter(|peer| self.is_lost_from(*peer)) {
                let fault = self.links.incoming[peer].as_mut()?.fault.take()?;
                return Some(BatchError::receive(at, Some(peer), LinkError::Lost(fault)));
            }
        }
        let mut sends = self.batch.sends.iter();
        let at = sends.position(|send| !send.complete && self.is_lost_to(send.to))?;
        let to = self.batch.sends[at].to;
        let fault = self.links.outgoing[to].as_mut()?.fault.take()?;
        Some(BatchError::send(at, to, LinkError::Lost(fault)))
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
    fn unanswered_message(&mut self) -> Option<BatchError> {
        let named = self.targets.iter().chain(&self.sources).copied();
        let peers = named.filter(|peer| *peer != self.links.rank);
        let gone: Vec<usize> =
            peers.filter(|peer| self.context.connector.has_left(*peer)).collect();
        if gone.is_empty() {
            return None;
        }
        // After this, the links of all peers that made one before they left are known.
        self.links.accept_callers(self.context);
        let links = &*self.links;
        let silent = |peer: usize| gone.contains(&peer) && !links.receives_from(peer);
        let open = self.batch.receives.iter().enumerate();
        for (at, receive) in open.filter(|(_, it)| it.state == ReceiveState::Posted) {
            let never = match receive.from {
                Some(from) => Some(from).filter(|from| silent(*from)),
                None => {
                    let mut others = self.others();
                    let all = others.all(|peer| silent(peer) || self.is_lost_from(peer));
                    Some(gone[0]).filter(|_| all)
                }
            };
            if never.is_some() {
                return Some(BatchError::receive(at, never, LinkError::PeerLeft));
            }
        }
        let mut sends = self.batch.sends.iter();
        let at = sends.position(|send| !send.complete && gone.contains(&send.to))?;
        Some(BatchError::send(at, self.batch.sends[at].to, LinkError::PeerLeft))
    }

    /// Takes the `sleep`, which ends early if a link of the batch can go on, unless bytes are on
    /// the move.
    fn sleep(&mut self, sleep: Sleep<'_>) {
        let MessageLinks { outgoing, incoming, activity, .. } = &mut *self.links;
        if !activity.is_idle() {
            return;
        }
        let quiet_to = |to: &usize| {
            let link = outgoing[*to].as_mut();
            link.is_none_or(|link| link.carrier.prepare_to_sleep())
        };
        let quiet_from = |from: &usize| {
            let link = incoming.get_mut(*from).and_then(Option::as_mut);
            link.is_none_or(|link| link.carrier.prepare_to_sleep())
        };
        let heeds = sleep.heeds_interests();
        if heeds && !(self.targets.iter().all(quiet_to) && self.sources.iter().all(quiet_from)) {
            return;
        }
        let targets = self.targets.iter().filter_map(|to| outgoing[*to].as_ref()?.interest());
        let sources =
            self.sources.iter().filter_map(|from| incoming.get(*from)?.as_ref()?.interest());
        sleep.take(targets.chain(sources));
    }
}

/// All ranks of a world in order, beginning with `first`.
fn ranks_from(first: usize, world: usize) -> impl Iterator<Item = usize> {
    (first..first + world).map(move |rank| rank % world)
}

fn once_each(mut ranks: Vec<usize>) -> Vec<usize> {
    ranks.sort_unstable();
    ranks.dedup();
    ranks
}

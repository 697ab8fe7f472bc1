//! Posts messages, and moves bytes on all links until those of the running call are complete.

use super::MessageError;
use super::batch::MessageBatch;
use super::context::BatchContext;
use super::links::MessageLinks;
use super::message::MessageHead;
use super::posted::Posted;
use super::requests::MessageRequests;
use crate::execute::LinkError;
use crate::execute::polling::PollCounter;
use crate::execute::record::Recorder;
use maypole_transports::Sleep;
use std::cell::RefCell;

/// A run of the driver: the messages of a call, and of all requests.
pub(super) struct MessageRun<'a, 'b, 'c> {
    pub(super) links: &'a mut MessageLinks,
    pub(super) posted: Posted<'a, 'b>,
    pub(super) context: &'a BatchContext<'c>,
    recorder: Option<&'a mut Recorder>,
    /// Ranks that the batch sends to, once each.
    pub(super) targets: Vec<usize>,
    /// Ranks that the batch receives from, once each; all ranks, if a receive takes a message of
    /// any rank.
    pub(super) sources: Vec<usize>,
    pub(super) polls: PollCounter,
}

impl MessageLinks {
    /// Runs `batch` to its end, with `recorder` as its observer. Drives the messages of `requests`
    /// meanwhile. Calls `slow` with the batch once the wait has become long.
    ///
    /// # Errors
    /// [`MessageError`]; afterwards the links can only be closed.
    pub(crate) fn run(
        &mut self,
        batch: &mut MessageBatch<'_>,
        requests: &mut MessageRequests,
        context: &BatchContext<'_>,
        recorder: Option<&mut Recorder>,
        mut slow: impl FnMut(&MessageBatch<'_>),
    ) -> Result<(), MessageError> {
        // The links hold indices of the batch's messages, so no thread may drive them without it.
        self.is_broken = true;
        let mut run = MessageRun::new(self, Posted { batch, requests }, context, recorder);
        run.before_moving();
        run.post_new()?;
        run.post_batch()?;
        run.after_moving();
        let run = RefCell::new(run);
        let ready = || {
            let mut run = run.borrow_mut();
            let ended = run.poll();
            if ended.is_none() && run.polls.is_first_peer_check() {
                slow(run.posted.batch);
            }
            ended
        };
        let sleep = |sleep: Sleep<'_>| {
            let MessageRun { links, targets, sources, posted, .. } = &mut *run.borrow_mut();
            links.sleep_on(targets, sources, posted.requests, sleep);
        };
        let ended = match context.waiting.on_streams().until(context.alarm, sleep, ready) {
            Ok(ended) => ended,
            Err(interrupted) => {
                let MessageRun { posted, .. } = &*run.borrow();
                let at = posted.batch.first_awaited();
                let error = posted.error(at, posted.head(at).peer(), interrupted.into());
                Err(run.borrow().with_full_queue(error))
            }
        };
        drop(run);
        self.is_broken = ended.is_err();
        ended
    }

    /// Posts the requests that were started meanwhile, and moves the bytes of all requests that can
    /// be moved now.
    ///
    /// # Errors
    /// [`MessageError`] of the first request that fails; afterwards the links can only be closed.
    pub(crate) fn drive_requests(
        &mut self,
        requests: &mut MessageRequests,
        context: &BatchContext<'_>,
    ) -> Result<(), MessageError> {
        let polls = std::mem::take(&mut requests.polls);
        let posted = Posted { batch: &mut MessageBatch::default(), requests };
        let mut run = MessageRun::new(self, posted, context, None);
        run.polls = polls;
        let ended = run.post_new().and_then(|()| {
            run.advance();
            let failed = run.failed_message().or_else(|| run.late_message());
            failed.map_or(Ok(()), Err)
        });
        run.posted.requests.polls = run.polls;
        self.is_broken = ended.is_err();
        ended
    }

    /// True if the links have no work left for `requests`.
    pub(crate) fn is_done_with(&self, requests: &MessageRequests) -> bool {
        let owes = || self.incoming.iter().flatten().any(|link| link.owes_answer());
        requests.is_empty() && (self.is_broken || !owes())
    }
}

impl<'a, 'b, 'c> MessageRun<'a, 'b, 'c> {
    fn new(
        links: &'a mut MessageLinks,
        posted: Posted<'a, 'b>,
        context: &'a BatchContext<'c>,
        recorder: Option<&'a mut Recorder>,
    ) -> Self {
        let (targets, sources, polls) = (Vec::new(), Vec::new(), PollCounter::default());
        Self { links, posted, context, recorder, targets, sources, polls }
    }

    #[inline]
    fn before_moving(&mut self) {
        if let Some(recorder) = &mut self.recorder {
            recorder.about_to_move();
        }
    }

    #[inline]
    fn after_moving(&mut self) {
        if let Some(recorder) = &mut self.recorder {
            let rank = self.links.rank;
            self.posted.batch.record_complete(rank, |message| recorder.message(message));
        }
    }

    /// Posts the requests that were started meanwhile.
    #[inline(always)]
    fn post_new(&mut self) -> Result<(), MessageError> {
        if self.posted.requests.inbox.is_filled() { self.post_requests() } else { Ok(()) }
    }

    #[cold]
    fn post_requests(&mut self) -> Result<(), MessageError> {
        let new: Vec<usize> = self.posted.requests.take_new().into_iter().collect();
        self.connect(new.iter().copied())?;
        new.into_iter().for_each(|at| self.post(at));
        Ok(())
    }

    /// Makes links, takes messages of the unexpected queues, and queues sends.
    fn post_batch(&mut self) -> Result<(), MessageError> {
        let messages = 0..self.posted.batch.len();
        self.connect(messages.clone())?;
        for sends in [false, true] {
            for at in messages.clone() {
                if self.posted.head(at).sends == sends {
                    self.post(at);
                }
            }
        }
        self.name_peers();
        Ok(())
    }

    /// Makes the links for those of `messages` that are sends and have none.
    fn connect(&mut self, messages: impl Iterator<Item = usize>) -> Result<(), MessageError> {
        let mut absent = Vec::new();
        for at in messages {
            let MessageHead { sends: true, rank: Some(to), .. } = *self.posted.head(at) else {
                continue;
            };
            if !self.links.sends_to(to) && absent.iter().all(|(peer, _)| *peer != to) {
                absent.push((to, at));
            }
        }
        if absent.is_empty() {
            return Ok(());
        }
        let peers: Vec<usize> = absent.iter().map(|(peer, _)| *peer).collect();
        self.links.connect(&peers, self.context).map_err(|(peer, why)| {
            let of = absent.iter().find(|it| it.0 == peer).map_or(0, |(_, at)| *at);
            self.posted.error(of, Some(peer), LinkError::Unconnected(why))
        })
    }

    /// Queues a send. For a receive, takes a message of the unexpected queue of its source, or of
    /// the first source that has one.
    fn post(&mut self, at: usize) {
        match *self.posted.head(at) {
            MessageHead { sends: true, rank: Some(to), .. } => {
                let link = self.links.outgoing[to].as_mut().expect("connected before");
                link.post(at, &mut self.posted);
            }
            MessageHead { rank, .. } => self.post_receive(at, rank),
        }
    }

    fn post_receive(&mut self, at: usize, from: Option<usize>) {
        if from.is_none_or(|from| !self.links.receives_from(from)) {
            self.links.accept_callers(self.context);
        }
        if let Some(from) = from {
            self.match_unexpected_of(at, from);
            return;
        }
        for peer in ranks_from(self.links.first_source, self.links.world) {
            if self.match_unexpected_of(at, peer) {
                self.links.first_source = peer + 1;
                break;
            }
        }
    }

    fn match_unexpected_of(&mut self, at: usize, from: usize) -> bool {
        match self.links.incoming.get_mut(from) {
            Some(Some(link)) => link.match_unexpected(at, &mut self.posted),
            _ => false,
        }
    }

    /// Collects the peers whose links the batch waits for.
    fn name_peers(&mut self) {
        let batch = &*self.posted.batch;
        self.targets = once_each(batch.of_kind(true).filter_map(|it| it.rank).collect());
        let sources: Option<Vec<usize>> = batch.of_kind(false).map(|it| it.rank).collect();
        let all = || ranks_from(self.links.first_source, self.links.world).collect();
        self.sources = sources.map_or_else(all, once_each);
    }

    /// Moves bytes; returns the result of the batch once it has ended.
    fn poll(&mut self) -> Option<Result<(), MessageError>> {
        self.before_moving();
        if let Err(error) = self.post_new() {
            return Some(Err(error));
        }
        self.advance();
        self.after_moving();
        if self.posted.batch.is_complete() && !self.owes_answer() {
            self.remember_source();
            return Some(Ok(()));
        }
        self.failed_message().map(Err)
    }

    /// Moves the bytes that can be moved now, and notifies completed requests.
    #[inline(always)]
    fn advance(&mut self) {
        self.polls.count();
        self.drive();
        self.posted.requests.tell();
    }

    /// Moves the bytes that can be moved now on the links that the batch waits for. At intervals,
    /// drives all incoming links and takes new ones, so that no sender has to wait because a stream
    /// is full.
    fn drive(&mut self) {
        let drives_all = self.polls.is_drive_due();
        let links = &mut *self.links;
        for to in &self.targets {
            if let Some(link) = &mut links.outgoing[*to] {
                links.moved |= link.drive(&mut self.posted, drives_all);
            }
        }
        for from in &self.sources {
            if let Some(Some(link)) = links.incoming.get_mut(*from) {
                links.moved |= link.drive(&mut self.posted);
            }
        }
        if !self.posted.requests.is_idle() {
            self.drive_for_requests(drives_all);
        }
        if drives_all {
            let links = &mut *self.links;
            links.accept_callers(self.context);
            for link in links.incoming.iter_mut().flatten() {
                links.moved |= link.drive(&mut self.posted);
            }
        }
    }

    /// Moves the bytes that can be moved now on the links that requests wait for.
    fn drive_for_requests(&mut self, drives_all: bool) {
        let links = &mut *self.links;
        for link in links.outgoing.iter_mut().flatten().filter(|link| link.is_busy()) {
            links.moved |= link.drive(&mut self.posted, drives_all);
        }
        for link in links.incoming.iter_mut().flatten() {
            if link.is_awaited(self.posted.requests) {
                links.moved |= link.drive(&mut self.posted);
            }
        }
    }

    /// True if a sender of the batch waits for a reply that has not left.
    fn owes_answer(&self) -> bool {
        let incoming = &self.links.incoming;
        let owes = |from: &usize| matches!(incoming.get(*from), Some(Some(it)) if it.owes_answer());
        self.sources.iter().any(owes)
    }

    /// Lets the next receive from any rank begin after the last source, so that senders take turns.
    fn remember_source(&mut self) {
        let mut receives = self.posted.batch.of_kind(false).rev();
        let from_any = receives.find(|it| it.rank.is_none());
        if let Some(peer) = from_any.and_then(MessageHead::peer) {
            self.links.first_source = peer + 1;
        }
    }
}

/// All ranks of a world in order, beginning with `first`.
fn ranks_from(first: usize, world: usize) -> impl Iterator<Item = usize> {
    (first..first + world).map(move |rank| rank % world)
}

pub(super) fn once_each(mut ranks: Vec<usize>) -> Vec<usize> {
    ranks.sort_unstable();
    ranks.dedup();
    ranks
}

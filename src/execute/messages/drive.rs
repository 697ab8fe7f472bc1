//! Runs a batch: posts everything, then moves bytes on all links until all of it is done.

use super::post::{Batch, State};
use super::shown::Shown;
use super::{Pairs, Scene, Stop, Why};
use crate::execute::record::Recorder;
use maypole_transports::{Interrupted, Sleep};
use std::cell::RefCell;

/// Polls between two looks at links that the batch does not name, and at new ones.
const OFTEN: u32 = 64;
/// Polls between two looks at whether what is awaited can still come.
const SELDOM: u32 = 1024;

/// A batch that runs.
struct Run<'a, 'b, 'c> {
    pairs: &'a mut Pairs,
    batch: &'a mut Batch<'b>,
    scene: &'a Scene<'c>,
    shown: Shown<'a>,
    /// Ranks that the batch sends to, and ranks that it receives from.
    named: [Vec<usize>; 2],
    polls: u32,
}

impl Pairs {
    /// Runs `batch`, and tells `recorder` of it. `slow` is called with it once the wait has become
    /// long.
    ///
    /// After an error these links are good for nothing but being left.
    pub(crate) fn run(
        &mut self,
        batch: &mut Batch<'_>,
        scene: &Scene<'_>,
        recorder: Option<&mut Recorder>,
        mut slow: impl FnMut(&Batch<'_>),
    ) -> Result<(), Stop> {
        let shown = Shown::new(recorder, self.rank, batch);
        let mut run =
            Run { pairs: self, batch, scene, shown, named: [Vec::new(), Vec::new()], polls: 0 };
        run.shown.before();
        run.post()?;
        run.shown.after(run.batch);
        let run = RefCell::new(run);
        let ready = || {
            let mut run = run.borrow_mut();
            let ended = run.poll();
            if ended.is_none() && run.polls == SELDOM {
                slow(run.batch);
            }
            ended
        };
        match scene.waiting.until(scene.alarm, |sleep| run.borrow_mut().sleep(sleep), ready) {
            Ok(ended) => ended,
            Err(interrupted) => {
                let (part, peer) = run.borrow().batch.awaited();
                let why = match interrupted {
                    Interrupted::TimedOut => Why::TimedOut,
                    Interrupted::Alarmed => Why::Alarmed,
                };
                Err(Stop { part, peer, why })
            }
        }
    }
}

impl Run<'_, '_, '_> {
    /// Makes links, takes what waits already, and puts on its way what may go.
    fn post(&mut self) -> Result<(), Stop> {
        for at in 0..self.batch.sends.len() {
            let to = self.batch.sends[at].to;
            self.pairs
                .open(to, self.scene)
                .map_err(|why| Stop::send(at, to, Why::Unconnected(why)))?;
        }
        let missing = |pairs: &Pairs, from: usize| !matches!(pairs.from.get(from), Some(Some(_)));
        if self
            .batch
            .receives
            .iter()
            .any(|receive| receive.from.is_none_or(|from| missing(self.pairs, from)))
        {
            self.pairs.answer_calls(self.scene);
        }
        for at in 0..self.batch.receives.len() {
            self.take_waiting(at)?;
        }
        for at in 0..self.batch.sends.len() {
            let to = self.batch.sends[at].to;
            self.pairs.to[to].as_mut().expect("made above").post(at, &mut self.batch.sends);
        }
        self.name();
        Ok(())
    }

    fn take_waiting(&mut self, at: usize) -> Result<(), Stop> {
        if let Some(from) = self.batch.receives[at].from {
            return self.serve(at, from).map(drop);
        }
        for peer in turned(self.pairs.first, self.pairs.world) {
            if self.serve(at, peer)? {
                self.pairs.first = peer + 1;
                break;
            }
        }
        Ok(())
    }

    fn serve(&mut self, at: usize, from: usize) -> Result<bool, Stop> {
        match self.pairs.from.get_mut(from) {
            Some(Some(link)) => link.serve(at, &mut self.batch.receives),
            _ => Ok(false),
        }
    }

    /// Notes whose links matter.
    fn name(&mut self) {
        let Batch { sends, receives } = &*self.batch;
        let (world, first) = (self.pairs.world, self.pairs.first);
        let named: Option<Vec<usize>> = receives.iter().map(|receive| receive.from).collect();
        let to = once_each(sends.iter().map(|send| send.to).collect());
        self.named = [to, named.map_or_else(|| turned(first, world).collect(), once_each)];
    }

    fn poll(&mut self) -> Option<Result<(), Stop>> {
        let idle = self.polls % OFTEN == OFTEN - 1;
        self.polls = self.polls.wrapping_add(1);
        self.shown.before();
        if let Err(stop) = self.drive(idle) {
            return Some(Err(stop));
        }
        self.shown.after(self.batch);
        if self.batch.is_done() {
            self.remember();
            return Some(Ok(()));
        }
        self.fault()
            .or_else(|| if self.polls.is_multiple_of(SELDOM) { self.hopeless() } else { None })
            .map(Err)
    }

    /// Moves what can be moved now on the links that matter; on `all` links now and then, so that
    /// those who send to us meanwhile are not held up by how little a stream holds.
    fn drive(&mut self, all: bool) -> Result<(), Stop> {
        let Batch { sends, receives } = &mut *self.batch;
        let pairs = &mut *self.pairs;
        for to in &self.named[0] {
            if let Some(link) = &mut pairs.to[*to] {
                if all {
                    link.collect();
                }
                pairs.moved |= link.drive(sends);
            }
        }
        for from in &self.named[1] {
            if let Some(Some(link)) = pairs.from.get_mut(*from) {
                pairs.moved |= link.drive(receives)?;
            }
        }
        if all {
            pairs.answer_calls(self.scene);
            for link in pairs.from.iter_mut().flatten() {
                pairs.moved |= link.drive(receives)?;
            }
        }
        Ok(())
    }

    /// The next receive from any rank begins behind the one whose message came.
    fn remember(&mut self) {
        if let Some(receive) = self.batch.receives.iter().rfind(|receive| receive.from.is_none())
            && let State::Done(peer, _) = receive.state
        {
            self.pairs.first = peer + 1;
        }
    }

    /// What cannot be done any more because a link is lost.
    fn fault(&mut self) -> Option<Stop> {
        let lost_to = self.named[0].iter().any(|to| self.is_lost_to(*to));
        if !lost_to && !self.named[1].iter().any(|from| self.is_lost_from(*from)) {
            return None;
        }
        for (at, receive) in self.batch.receives.iter().enumerate() {
            let peer = match (receive.state, receive.from) {
                (State::Done(..), _) => None,
                (State::Granted(peer, _), _) | (State::Open, Some(peer)) => Some(peer),
                (State::Open, None) => self.one_if_all_are_lost(),
            };
            if let Some(peer) = peer.filter(|peer| self.is_lost_from(*peer)) {
                let fault = self.pairs.from[peer].as_mut()?.fault.take()?;
                return Some(Stop::receive(at, Some(peer), Why::Lost(fault)));
            }
        }
        let at = self.batch.sends.iter().position(|send| !send.done && self.is_lost_to(send.to))?;
        let to = self.batch.sends[at].to;
        let fault = self.pairs.to[to].as_mut()?.fault.take()?;
        Some(Stop::send(at, to, Why::Lost(fault)))
    }

    fn is_lost_to(&self, peer: usize) -> bool {
        matches!(self.pairs.to.get(peer), Some(Some(link)) if link.fault.is_some())
    }

    fn is_lost_from(&self, peer: usize) -> bool {
        matches!(self.pairs.from.get(peer), Some(Some(link)) if link.fault.is_some())
    }

    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let rank = self.pairs.rank;
        (0..self.pairs.world).filter(move |peer| *peer != rank)
    }

    /// One of the other ranks, if none of them can send any more.
    fn one_if_all_are_lost(&self) -> Option<usize> {
        self.others().all(|peer| self.is_lost_from(peer)).then(|| self.others().next())?
    }

    /// What will never be done, if that shows: whom it needs has left.
    fn hopeless(&mut self) -> Option<Stop> {
        let named = self.named.iter().flatten().copied().filter(|peer| *peer != self.pairs.rank);
        let gone: Vec<usize> = named.filter(|peer| self.scene.control.has_left(*peer)).collect();
        if gone.is_empty() {
            return None;
        }
        // Whoever called before leaving is known now.
        self.pairs.answer_calls(self.scene);
        let silent = |peer: &usize| {
            gone.contains(peer) && !matches!(self.pairs.from.get(*peer), Some(Some(_)))
        };
        for (at, receive) in
            self.batch.receives.iter().enumerate().filter(|(_, it)| it.state == State::Open)
        {
            let never = match receive.from {
                Some(from) => Some(from).filter(silent),
                None => {
                    let all = self.others().all(|peer| silent(&peer) || self.is_lost_from(peer));
                    Some(gone[0]).filter(|_| all)
                }
            };
            if never.is_some() {
                return Some(Stop::receive(at, never, Why::Left));
            }
        }
        let at = self.batch.sends.iter().position(|send| !send.done && gone.contains(&send.to))?;
        Some(Stop::send(at, self.batch.sends[at].to, Why::Left))
    }

    /// Sleeps as [`Links`](crate::execute::links::Links) do.
    fn sleep(&mut self, sleep: Sleep<'_>) {
        if !std::mem::take(&mut self.pairs.moved) {
            let pairs = &*self.pairs;
            let outgoing = self.named[0].iter().filter_map(|to| pairs.to[*to].as_ref()?.interest());
            let incoming =
                self.named[1].iter().filter_map(|from| pairs.from.get(*from)?.as_ref()?.interest());
            sleep.take(outgoing.chain(incoming));
        }
    }
}

/// All ranks, beginning with `first`.
fn turned(first: usize, world: usize) -> impl Iterator<Item = usize> {
    (first..first + world).map(move |rank| rank % world)
}

fn once_each(mut ranks: Vec<usize>) -> Vec<usize> {
    ranks.sort_unstable();
    ranks.dedup();
    ranks
}

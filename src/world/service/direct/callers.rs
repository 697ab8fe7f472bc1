//! The answering end of questions: connections by which peers ask this rank.

use super::{PeerAnswer, PeerQuestion};
use crate::world::service::message::{MAX_JOIN_MESSAGE, decode};
use crate::world::service::state::ServiceContext;
use crate::world::service::{Authenticated, CALLER, Cause, ControlConnection};
use maypole_transports::watch::Watch;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The most connections that are kept. The oldest is closed when another one comes.
const MAX_CALLERS: usize = 64;
/// How long a connection is kept. A question takes one round trip.
const CALL_TIME: Duration = Duration::from_secs(5);

/// Connections by which peers ask, the oldest first.
#[derive(Debug, Default)]
pub(in crate::world::service) struct Callers {
    open: VecDeque<Caller>,
    next: u64,
}

#[derive(Debug)]
struct Caller {
    number: u64,
    control: ControlConnection,
    until: Instant,
}

impl Callers {
    /// Keeps a connection whose other end holds the job's key.
    pub(in crate::world::service) fn add(&mut self, call: Authenticated, watch: &Watch) {
        if self.open.len() == MAX_CALLERS {
            self.close_first(watch);
        }
        let number = CALLER + self.next;
        self.next += 1;
        let Authenticated { stream, channel, .. } = call;
        let Ok(control) = ControlConnection::new(stream, channel) else { return };
        if watch.add(&control.stream, number, false).is_ok() {
            self.open.push_back(Caller { number, control, until: Instant::now() + CALL_TIME });
        }
    }

    /// Keeps a connection to which `reply` is the only answer, until the other end has read it.
    pub(in crate::world::service) fn dismiss(
        &mut self,
        call: Authenticated,
        reply: &[u8],
        watch: &Watch,
    ) {
        self.add(call, watch);
        if let Some(caller) = self.open.back_mut() {
            caller.control.push_bytes(reply);
            caller.control.flush(caller.number, watch);
        }
    }

    /// Handles the event of `number`. Returns a failure that the caller tells.
    pub(in crate::world::service) fn ready(
        &mut self,
        number: u64,
        shared: &ServiceContext,
        watch: &Watch,
    ) -> Option<Cause> {
        let at = self.open.iter().position(|caller| caller.number == number)?;
        let control = &mut self.open[at].control;
        let (messages, ended) = control.read(MAX_JOIN_MESSAGE);
        let mut told = None;
        for bytes in messages {
            match decode(&bytes) {
                Some(PeerQuestion::Progress(group)) => {
                    control.push(&PeerAnswer::Progress(shared.progress.report(group)));
                }
                Some(PeerQuestion::Failed(cause)) => {
                    control.push(&PeerAnswer::Heard);
                    told = Some(cause);
                }
                // A process that wanted to join asks differently, and has its answer already.
                None => {}
            }
        }
        control.flush(number, watch);
        if ended.is_some() {
            self.close(at, watch);
        }
        told
    }

    /// When [`expire`](Self::expire) has something to do.
    pub(in crate::world::service) fn deadline(&self) -> Option<Instant> {
        self.open.front().map(|caller| caller.until)
    }

    /// Closes the connections whose time is over.
    pub(in crate::world::service) fn expire(&mut self, now: Instant, watch: &Watch) {
        while self.open.front().is_some_and(|caller| caller.until <= now) {
            self.close_first(watch);
        }
    }

    fn close_first(&mut self, watch: &Watch) {
        self.close(0, watch);
    }

    fn close(&mut self, at: usize, watch: &Watch) {
        if let Some(caller) = self.open.remove(at) {
            watch.remove(&caller.control.stream);
        }
    }
}

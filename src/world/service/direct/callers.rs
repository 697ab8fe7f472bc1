//! The replying end of status requests: connections that peers have made to this rank.

use super::{ConnectionKey, DataConnection, PeerQuestion, VerbsMeeting};
use crate::wire::decode;
use crate::world::calls::RankStatus;
use crate::world::service::message::MAX_JOIN_MESSAGE;
use crate::world::service::state::ServiceContext;
use crate::world::service::{Authenticated, CALLER, Cause, ControlConnection};
use maypole_transports::watch::Watch;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The most open connections. A further one closes the oldest.
const MAX_CALLERS: usize = 64;
/// The lifetime of a connection. A query takes one round trip.
const CALL_TIME: Duration = Duration::from_secs(5);

/// Connections that peers have made for queries, the oldest first.
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
    /// The requested connection by verbs; `None` if the peer sends status requests.
    meeting: Option<VerbsMeeting>,
}

/// An event for the service thread.
#[derive(Debug)]
pub(in crate::world::service) enum CallerEvent {
    /// A failure, which the service thread relays.
    Failed(Cause),
    /// A data connection, which the service thread keeps.
    Connected(ConnectionKey, DataConnection),
}

impl Callers {
    /// Keeps a connection whose other end holds the job's key, and may request a connection by verbs.
    pub(in crate::world::service) fn add(
        &mut self,
        call: Authenticated,
        meeting: Option<VerbsMeeting>,
        watch: &Watch,
    ) {
        if self.open.len() == MAX_CALLERS {
            self.close(0, watch);
        }
        let number = CALLER + self.next;
        self.next += 1;
        let Authenticated { stream, channel, .. } = call;
        let Ok(control) = ControlConnection::new(stream, channel) else { return };
        if watch.add(&control.stream, number, false).is_ok() {
            let until = Instant::now() + CALL_TIME;
            self.open.push_back(Caller { number, control, until, meeting });
        }
    }

    /// Sends `reply`, and keeps the connection until the other end has read it.
    pub(in crate::world::service) fn dismiss(
        &mut self,
        call: Authenticated,
        reply: &[u8],
        watch: &Watch,
    ) {
        self.add(call, None, watch);
        if let Some(caller) = self.open.back_mut() {
            caller.control.push_bytes(reply);
            caller.control.flush(caller.number, watch);
        }
    }

    /// Handles the event of `number`. Returns the event for the service thread, if there is one.
    pub(in crate::world::service) fn ready(
        &mut self,
        number: u64,
        shared: &ServiceContext,
        watch: &Watch,
    ) -> Option<CallerEvent> {
        let at = self.open.iter().position(|caller| caller.number == number)?;
        let caller = &mut self.open[at];
        let (messages, ended) = caller.control.read(MAX_JOIN_MESSAGE);
        let mut event = None;
        for bytes in messages {
            event = caller.hear(&bytes, shared).or(event);
        }
        caller.control.flush(number, watch);
        if ended.is_some() || caller.meeting.as_ref().is_some_and(|it| it.stream.is_some()) {
            let Caller { meeting, control, .. } = self.close(at, watch)?;
            let made = meeting.and_then(|it| it.end(control.channel));
            event = made.map(|(key, connection)| CallerEvent::Connected(key, connection)).or(event);
        }
        event
    }

    /// The next deadline for [`expire`](Self::expire).
    pub(in crate::world::service) fn deadline(&self) -> Option<Instant> {
        self.open.front().map(|caller| caller.until)
    }

    /// Closes the connections whose deadline has passed.
    pub(in crate::world::service) fn expire(&mut self, now: Instant, watch: &Watch) {
        while self.open.front().is_some_and(|caller| caller.until <= now) {
            self.close(0, watch);
        }
    }

    fn close(&mut self, at: usize, watch: &Watch) -> Option<Caller> {
        self.open.remove(at).inspect(|caller| watch.remove(&caller.control.stream))
    }
}

impl Caller {
    /// Handles a message of the peer.
    fn hear(&mut self, bytes: &[u8], shared: &ServiceContext) -> Option<CallerEvent> {
        if let Some(meeting) = &mut self.meeting {
            self.control.push(&meeting.hear(decode(bytes).ok()?, &shared.settings.verbs));
            return None;
        }
        // A process that was refused sends a join request, which needs no second reply.
        match decode(bytes).ok()? {
            PeerQuestion::Status(group) => {
                self.control.push(&Some(shared.status(Some(group))));
                None
            }
            PeerQuestion::Failed(cause) => {
                self.control.push(&None::<RankStatus>);
                Some(CallerEvent::Failed(cause))
            }
        }
    }
}

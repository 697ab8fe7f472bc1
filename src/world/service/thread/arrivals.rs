//! Arrivals at a service thread other than control messages: new connections, and status requests
//! on connections that peers have made.

use super::ServiceThread;
use crate::world::service::direct::{CallerEvent, ConnectionKey, VERBS_LANE, VerbsMeeting, relay};
use crate::world::service::{Authenticated, DataConnection, GroupId};
use maypole_transports::secure::{Binding, Purpose};
use maypole_transports::sockets::set_tcp_options;

impl ServiceThread {
    pub(super) fn admit(&mut self, authenticated: Authenticated) {
        let Binding { purpose, group: [parent_epoch, counter], lane, initiator, responder } =
            authenticated.binding;
        let rank = self.shared.rank;
        let world = self.shared.peers.len();
        let initiator = initiator as usize;
        let fits = responder as usize == rank && initiator < world && initiator != rank;
        if purpose == Purpose::Join {
            return self.turn_away(initiator, authenticated);
        }
        if purpose == Purpose::Question && fits {
            return self.callers.add(authenticated, None, &self.watch);
        }
        let group = GroupId { parent_epoch, counter };
        if purpose == Purpose::Shrink && fits {
            let answered = self.shared.update(|state| {
                let has_left = state.left_groups.contains(group);
                state.shrinks.arrived(authenticated, group, has_left)
            });
            if let Some((call, answer)) = answered {
                self.callers.dismiss(call, &answer, &self.watch);
            }
            return;
        }
        if purpose != self.shared.data_purpose()
            || !fits
            || set_tcp_options(&authenticated.stream, self.shared.settings.timeout).is_err()
        {
            return;
        }
        let key = (group, initiator, lane & !VERBS_LANE);
        let encrypts = purpose == Purpose::EncryptedData;
        if lane & VERBS_LANE != 0 {
            let meeting = VerbsMeeting::new(key, encrypts);
            return self.callers.add(authenticated, Some(meeting), &self.watch);
        }
        let channel = encrypts.then_some(authenticated.channel);
        self.keep(key, DataConnection::Tcp(authenticated.stream, channel));
    }

    /// Keeps a data connection until a calling thread takes it.
    fn keep(&self, key: ConnectionKey, connection: DataConnection) {
        self.shared.update(|state| {
            if key.0 != GroupId::WORLD && state.left_groups.contains(key.0) {
                state.left_groups.keep_open(connection);
            } else {
                state.arrived.insert(key, connection);
            }
        });
    }

    /// Replies to a process that tries to join after all ranks have joined.
    fn turn_away(&mut self, rank: usize, call: Authenticated) {
        if let Some(answer) = self.late_answer {
            let answer = answer(&self.shared.peers, rank);
            self.callers.dismiss(call, &answer, &self.watch);
        }
    }

    /// Handles a peer's status request, a failure that rank 0 has not forwarded, or a connection by
    /// verbs.
    pub(super) fn hear_caller(&mut self, number: u64) {
        let cause = match self.callers.ready(number, &self.shared, &self.watch) {
            Some(CallerEvent::Failed(cause)) => cause,
            Some(CallerEvent::Connected(key, connection)) => return self.keep(key, connection),
            None => return,
        };
        let is_news =
            self.shared.state().fates.world.cause.as_ref().is_none_or(|known| cause < *known);
        if is_news {
            relay(&self.shared, cause);
        }
    }
}

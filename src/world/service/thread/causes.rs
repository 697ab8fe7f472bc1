//! The delivery of a failure to the rank's own program, after the other ranks.

use super::{RELAY_TIME, ServiceThread};
use crate::world::service::ControlConnection;
use crate::world::service::direct::relay;
use crate::world::service::message::Notice;
use std::time::Instant;

impl ServiceThread {
    /// On rank 0: handles a message for itself, and queues it while a failure is sent to the
    /// others.
    pub(super) fn hear_own(&mut self, notice: Notice) {
        let is_failure = matches!(notice, Notice::Abort(_));
        if !is_failure && self.withheld.is_empty() {
            return self.hear(notice);
        }
        if self.withheld.is_empty() {
            self.withheld_until = Instant::now() + RELAY_TIME;
        }
        self.withheld.push(notice);
    }

    /// On rank 0: delivers a failure to its own program once the socket buffers hold the messages
    /// for all others. On others: relays a failure that rank 0 does not confirm to the neighbours.
    pub(super) fn pass_causes(&mut self, now: Instant) {
        let all_sent = self.controls.values().all(ControlConnection::is_idle);
        if all_sent || self.withheld_until <= now {
            for notice in std::mem::take(&mut self.withheld) {
                self.hear(notice);
            }
        }
        if let Some((cause, _)) = self.unconfirmed.take_if(|(_, until)| *until <= now) {
            let known = self.shared.state().fates.world.cause.clone();
            relay(&self.shared, known.map_or(cause.clone(), |known| known.min(cause)));
        }
    }
}

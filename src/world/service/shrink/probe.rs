//! A leader's search for a member that has not arrived: it finds whether the member is alive, or gets
//! its reply if it has decided or left. It is a thread of its own, so that the leader does not wait
//! for unresponsive hosts.

use super::Member;
use super::calls::PROBE;
use super::follow::{ATTEMPT, Followed, obey, pursue};
use crate::world::service::{DialedLink, SILENCE_LIMIT};
use maypole_transports::watch::Waker;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::Builder;
use std::time::Instant;

/// The search for one member. It ends within an attempt to connect after this is dropped.
#[derive(Debug)]
pub(super) struct Probe {
    found: Receiver<Followed>,
    _wanted: Arc<()>,
}

impl Probe {
    /// Begins to search for `rank`. `waker` wakes the leader when there is a finding.
    pub(super) fn start(member: &Member<'_>, rank: usize, waker: &Arc<Waker>) -> io::Result<Self> {
        let shared = &member.service.shared;
        let (address, secret) = (shared.peers[rank].listen, shared.settings.secret.clone());
        let (binding, waker) = (member.binding(rank, PROBE), Arc::clone(waker));
        let (wanted, deadline) = (Arc::new(()), member.deadline);
        let still_wanted = Arc::downgrade(&wanted);
        let (ended, found) = channel();
        let search = move || {
            let is_over = || still_wanted.strong_count() == 0;
            let dial = || {
                let until = Instant::now() + ATTEMPT;
                DialedLink::dial(address, SILENCE_LIMIT, (&secret, &binding), until)
            };
            let listen = |link: &mut DialedLink| obey(link, &mut None, deadline, is_over);
            // The leader may have decided meanwhile.
            let _ = ended.send(pursue(rank, dial, listen, is_over, deadline).0);
            waker.wake();
        };
        Builder::new().name("maypole-probe".to_owned()).spawn(search)?;
        Ok(Self { found, _wanted: wanted })
    }

    /// The result of the search, once, when it has ended. A member that is alive and silent gives none.
    pub(super) fn finding(&self) -> Option<Followed> {
        self.found.try_recv().ok()
    }
}

//! How long calls may take.

use crate::comm::Communicator;
use crate::comm::engine::Engine;
use maypole_transports::Waiting;
use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

/// No deadline is further away: what is added to the clock must not overflow.
const EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// A communicator whose calls share a deadline: see [`Communicator::within`].
#[derive(Debug)]
pub struct Within<'a>(&'a mut Communicator);

impl Communicator {
    /// How long a wait for a peer may last before the call fails. At first `MAYPOLE_TIMEOUT`, or
    /// 300 s.
    pub fn timeout(&self) -> Duration {
        self.engine.timeout
    }

    /// Changes [`timeout`](Self::timeout) for the calls and requests that follow. A local matter:
    /// other ranks keep theirs.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.engine.timeout = timeout;
        self.engine.change(move |engine| {
            engine.timeout = timeout;
            engine.set_waits();
        });
    }

    /// Gives what is called through it a deadline of its own: all of it must be done `duration`
    /// from now, however many waits that takes, whatever [`timeout`](Self::timeout) says. A
    /// request's time begins when its turn comes.
    ///
    /// Like every call that does not end in time, one that misses this deadline fails the
    /// communicator on all ranks.
    ///
    /// ```
    /// use maypole::{Communicator, Error, ReduceOp};
    /// use std::time::Duration;
    /// // Two ranks; only one of them calls.
    /// let mut comms = Communicator::local(2);
    /// let soon = Duration::from_millis(20);
    /// let error = comms[0].within(soon).all_reduce(&mut [1.0f32], ReduceOp::Sum).unwrap_err();
    /// assert!(matches!(error, Error::TimedOut { peer: 1, after, .. } if after == soon));
    /// ```
    pub fn within(&mut self, duration: Duration) -> Within<'_> {
        self.engine.change(move |engine| {
            engine.limits.push((Instant::now() + duration.min(EVER), duration));
            engine.set_waits();
        });
        Within(self)
    }
}

impl Deref for Within<'_> {
    type Target = Communicator;

    fn deref(&self) -> &Communicator {
        self.0
    }
}

impl DerefMut for Within<'_> {
    fn deref_mut(&mut self) -> &mut Communicator {
        self.0
    }
}

impl Drop for Within<'_> {
    fn drop(&mut self) {
        self.0.engine.change(|engine| {
            engine.limits.pop();
            engine.set_waits();
        });
    }
}

impl Engine {
    /// When what begins now must end.
    pub(crate) fn deadline(&self) -> Instant {
        match self.limits.last() {
            Some((deadline, _)) => *deadline,
            None => Instant::now() + self.timeout.min(EVER),
        }
    }

    /// How long what timed out was given.
    pub(crate) fn allowed(&self) -> Duration {
        self.limits.last().map_or(self.timeout, |(_, allowed)| *allowed)
    }

    /// How this rank waits now.
    pub(crate) fn waiting(&self) -> Waiting {
        let deadline = self.limits.last().map(|(deadline, _)| *deadline);
        let waiting = if self.beside {
            self.surroundings.waiting.in_background()
        } else {
            self.surroundings.waiting
        };
        waiting.with_timeout(self.timeout).with_deadline(deadline)
    }

    /// From now on it is used, or not any more, by a thread beside the one that its rank computes
    /// on.
    pub(crate) fn set_beside(&mut self, beside: bool) {
        self.beside = beside;
        self.set_waits();
    }

    fn set_waits(&mut self) {
        self.executor.set_waiting(self.waiting());
    }
}

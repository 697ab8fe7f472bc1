//! Time limits of calls.

use crate::execute::messages::AllowedTime;
use maypole_transports::{Waiting, turns};
use std::time::{Duration, Instant};

pub(crate) use maypole_transports::turns::LONGEST;

/// The timeout of single waits, and the deadlines of whole sections of code.
#[derive(Debug)]
pub(crate) struct TimeLimits {
    /// The timeout of one wait for a peer.
    pub(crate) timeout: Duration,
    /// The deadline and the duration of each open section. The innermost section is last, and only
    /// its deadline counts.
    deadlines: Vec<(Instant, Duration)>,
    /// True while a background thread uses the engine and the rank computes in another thread.
    pub(crate) background: bool,
}

impl TimeLimits {
    pub(crate) fn new(timeout: Duration) -> Self {
        Self { timeout, deadlines: Vec::new(), background: false }
    }

    /// Opens a section with a deadline `duration` from now.
    pub(crate) fn open(&mut self, duration: Duration) {
        let deadline = turns::now() + duration.min(LONGEST);
        self.deadlines.push((deadline, duration));
    }

    /// Closes the section that was opened last.
    pub(crate) fn close(&mut self) {
        self.deadlines.pop();
    }

    /// The deadline of an operation that begins now.
    pub(crate) fn deadline(&self) -> Instant {
        match self.deadlines.last() {
            Some((deadline, _)) => *deadline,
            None => turns::now() + self.timeout.min(LONGEST),
        }
    }

    /// The time that an operation had which has timed out.
    pub(crate) fn allowed(&self) -> AllowedTime {
        let own = self.deadlines.last().map(|(_, allowed)| *allowed);
        AllowedTime { time: own.unwrap_or(self.timeout), is_own: own.is_some() }
    }

    /// The policy of waits under these limits, if it is `usual` without them.
    pub(crate) fn waiting(&self, usual: Waiting) -> Waiting {
        let waiting = if self.background { usual.in_background() } else { usual };
        let deadline = self.deadlines.last().map(|(deadline, _)| *deadline);
        waiting.with_timeout(self.timeout).with_deadline(deadline)
    }
}

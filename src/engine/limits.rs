//! How long calls may take.

use maypole_transports::{Waiting, turns};
use std::time::{Duration, Instant};

pub(crate) use maypole_transports::turns::LONGEST;

/// The timeout of single waits, and the deadlines of whole sections of code.
#[derive(Debug)]
pub(crate) struct TimeLimits {
    /// How long one wait for a peer may last.
    pub(crate) timeout: Duration,
    /// When each open section must end, and how long it was given. The innermost section is last,
    /// and only its deadline counts.
    deadlines: Vec<(Instant, Duration)>,
    /// True while a background thread uses the engine and the rank computes in another thread.
    pub(crate) background: bool,
}

impl TimeLimits {
    pub(crate) fn new(timeout: Duration) -> Self {
        Self { timeout, deadlines: Vec::new(), background: false }
    }

    /// Opens a section that must end within `duration` from now.
    pub(crate) fn open(&mut self, duration: Duration) {
        let deadline = turns::now() + duration.min(LONGEST);
        self.deadlines.push((deadline, duration));
    }

    /// Closes the section that was opened last.
    pub(crate) fn close(&mut self) {
        self.deadlines.pop();
    }

    /// When an operation that begins now must end.
    pub(crate) fn deadline(&self) -> Instant {
        match self.deadlines.last() {
            Some((deadline, _)) => *deadline,
            None => turns::now() + self.timeout.min(LONGEST),
        }
    }

    /// How long an operation that has timed out was given.
    pub(crate) fn allowed(&self) -> Duration {
        self.deadlines.last().map_or(self.timeout, |(_, allowed)| *allowed)
    }

    /// How this rank waits under these limits, if it waits as `usual` without them.
    pub(crate) fn waiting(&self, usual: Waiting) -> Waiting {
        let waiting = if self.background { usual.in_background() } else { usual };
        let deadline = self.deadlines.last().map(|(deadline, _)| *deadline);
        waiting.with_timeout(self.timeout).with_deadline(deadline)
    }
}

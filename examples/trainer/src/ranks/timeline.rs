//! Where a rank's time went: spans of compute, of sending and of waiting, for the shares and for
//! the picture.
//!
//! A collective that was started runs on a thread of its own. Its span is beside what the rank does
//! meanwhile: where it lies beside a backward pass, it is hidden; where it lies beside a wait, it
//! is not.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The activity of a rank in a span of time.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum RankActivity {
    /// The forward pass.
    Forward,
    /// The backward pass.
    Backward,
    /// The optimizer.
    Update,
    /// Waiting for a collective: communication that nothing hides.
    Wait,
    /// Waiting for other stages of the pipeline: the bubble ([`crate::pipeline_parallel::bubble`]).
    Bubble,
    /// A collective at work while this rank may compute.
    Communication,
}

impl RankActivity {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Forward,
        Self::Backward,
        Self::Update,
        Self::Wait,
        Self::Bubble,
        Self::Communication,
    ];

    /// The name in a picture.
    pub fn name(self) -> &'static str {
        ["forward", "backward", "update", "exposed communication", "bubble", "communication"]
            [self as usize]
    }
}

/// One span.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeSpan {
    /// What was done.
    pub kind: RankActivity,
    /// Since the timeline began.
    pub start: Duration,
    /// Since the timeline began.
    pub end: Duration,
}

/// A handle on one rank's spans; clones record in the same list, on whichever thread.
#[derive(Clone, Debug)]
pub struct Timeline {
    began: Instant,
    spans: Arc<Mutex<Vec<TimeSpan>>>,
}

impl Default for Timeline {
    fn default() -> Self {
        Self { began: Instant::now(), spans: Arc::default() }
    }
}

impl Timeline {
    /// Does `work` and notes how long it took.
    pub fn record<R>(&self, kind: RankActivity, work: impl FnOnce() -> R) -> R {
        let start = self.began.elapsed();
        let result = work();
        self.note(TimeSpan { kind, start, end: self.began.elapsed() });
        result
    }

    /// Notes a span that was timed elsewhere.
    pub fn note(&self, span: TimeSpan) {
        // A panic while the lock was held leaves the list valid.
        self.spans.lock().unwrap_or_else(PoisonError::into_inner).push(span);
    }

    /// How long ago it began.
    pub fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Takes the spans noted so far.
    pub fn take(&self) -> Vec<TimeSpan> {
        std::mem::take(&mut self.spans.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Time by kind, where spans of one rank may lie within one another: a wait within a forward pass
/// is a wait.
pub fn shares(spans: &[TimeSpan]) -> [Duration; 6] {
    let total = |kind: RankActivity| -> Duration {
        spans.iter().filter(|span| span.kind == kind).map(|span| span.end - span.start).sum()
    };
    let mut shares = RankActivity::ALL.map(total);
    for wait in spans.iter().filter(|span| span.kind == RankActivity::Wait) {
        let passes = |kind| !matches!(kind, RankActivity::Wait | RankActivity::Communication);
        let around = |span: &&TimeSpan| {
            passes(span.kind) && span.start <= wait.start && wait.end <= span.end
        };
        if let Some(around) = spans.iter().find(around) {
            shares[around.kind as usize] =
                shares[around.kind as usize].saturating_sub(wait.end - wait.start);
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_within_a_pass_is_counted_once() {
        let span = |kind, start, end| TimeSpan {
            kind,
            start: Duration::from_secs(start),
            end: Duration::from_secs(end),
        };
        let spans = [
            span(RankActivity::Communication, 1, 7),
            span(RankActivity::Wait, 2, 3),
            span(RankActivity::Forward, 0, 5),
            span(RankActivity::Wait, 6, 7),
            span(RankActivity::Update, 7, 9),
        ];
        assert_eq!(shares(&spans).map(|share| share.as_secs()), [4, 0, 2, 2, 0, 6]);
    }
}

//! The spans of time of one rank: spans of compute, of sending and of waiting, for the shares
//! (`maypole_lab::report::shares`) and for pictures.
//!
//! A started collective runs on a thread of its own, so its span overlaps other spans of the rank. The
//! part that overlaps a backward pass is hidden; the part that overlaps a wait is exposed.

use crate::ranks::memory::MemoryKind;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
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
    /// Waiting for a collective: exposed communication.
    Wait,
    /// Waiting for other stages of the pipeline: the bubble.
    Bubble,
    /// Moving experts to other ranks.
    Moving,
    /// Writing a checkpoint, and waiting for the other ranks to have written theirs.
    Saving,
    /// Computing the loss of text that was not trained on.
    Validation,
    /// A collective that runs on a thread of its own while this rank may compute.
    Communication,
}

/// One span.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeSpan {
    /// The activity.
    pub kind: RankActivity,
    /// When it began, since the start of the timeline.
    pub start: Duration,
    /// When it ended, since the start of the timeline.
    pub end: Duration,
}

/// The most spans that a timeline holds: far more than one step makes.
const MOST_SPANS: usize = 1 << 16;

/// A handle on one rank's spans. Clones record in the same list, on any thread.
///
/// Spans stay until [`take`](Self::take) is called. The list holds at most 65,536 spans: when it is
/// full, the older half is dropped.
#[derive(Clone, Debug)]
pub struct Timeline {
    began: Instant,
    spans: Arc<Mutex<Vec<TimeSpan>>>,
    under_way: Arc<AtomicUsize>,
    /// Nanoseconds of all waits so far.
    waited: Arc<AtomicU64>,
}

/// A collective that was started and is not waited for yet.
#[derive(Debug)]
pub(crate) struct UnderWay(Arc<AtomicUsize>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Default for Timeline {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            spans: Arc::default(),
            under_way: Arc::default(),
            waited: Arc::default(),
        }
    }
}

impl Timeline {
    /// Runs `work` and notes its span.
    pub fn record<R>(&self, kind: RankActivity, work: impl FnOnce() -> R) -> R {
        let start = self.began.elapsed();
        let result = work();
        self.note(TimeSpan { kind, start, end: self.began.elapsed() });
        result
    }

    /// Counts a collective as in flight for as long as the result lives.
    pub(crate) fn begin(&self) -> UnderWay {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        UnderWay(Arc::clone(&self.under_way))
    }

    /// Returns the number of collectives that this rank has started and not waited for.
    pub fn under_way(&self) -> usize {
        self.under_way.load(Ordering::Relaxed)
    }

    /// Returns the time that this rank has waited for collectives since the start of the timeline.
    /// It includes spans that were taken or dropped.
    pub fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited.load(Ordering::Relaxed))
    }

    /// Notes a span that was timed elsewhere.
    pub fn note(&self, span: TimeSpan) {
        if span.kind == RankActivity::Wait {
            let nanos = span.end.saturating_sub(span.start).as_nanos() as u64;
            self.waited.fetch_add(nanos, Ordering::Relaxed);
        }
        // A panic while the lock was held leaves the list valid.
        let mut spans = self.spans.lock().unwrap_or_else(PoisonError::into_inner);
        if spans.len() >= MOST_SPANS {
            spans.drain(..MOST_SPANS / 2);
        }
        // Memory of the list is not of the kind that the caller counts.
        MemoryKind::Other.hold(|| spans.push(span));
    }

    /// Returns the time since the start of the timeline.
    pub fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Returns the spans noted so far, and removes them.
    pub fn take(&self) -> Vec<TimeSpan> {
        std::mem::take(&mut self.spans.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_that_are_never_taken_are_bounded_and_the_last_ones_stay() {
        let timeline = Timeline::default();
        for nth in 0..200_000 {
            let end = Duration::from_nanos(nth);
            timeline.note(TimeSpan { kind: RankActivity::Wait, start: end, end });
        }
        let spans = timeline.take();
        assert!(spans.len() <= MOST_SPANS && spans.len() >= MOST_SPANS / 2, "{}", spans.len());
        assert_eq!(spans.last().unwrap().end, Duration::from_nanos(199_999));
        assert!(spans.is_sorted_by_key(|span| span.end));
    }
}

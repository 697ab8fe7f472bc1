//! Where a rank's time went: spans of compute, of sending and of waiting, for the shares and for the picture.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// What a rank was at.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Kind {
    /// The forward pass.
    Forward,
    /// The backward pass.
    Backward,
    /// The optimizer.
    Update,
    /// Handing something to a collective that runs on.
    Send,
    /// Waiting for a collective: communication that nothing hides.
    Wait,
    /// Waiting for the neighbour in the pipeline: the bubble.
    Bubble,
}

/// One span.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// What was done.
    pub kind: Kind,
    /// Since the timeline began.
    pub start: Duration,
    /// Since the timeline began.
    pub end: Duration,
}

/// A handle on one rank's spans; clones record in the same list.
#[derive(Clone, Debug)]
pub struct Timeline {
    began: Instant,
    spans: Rc<RefCell<Vec<Span>>>,
}

impl Default for Timeline {
    fn default() -> Self {
        Self { began: Instant::now(), spans: Rc::default() }
    }
}

impl Timeline {
    /// Does `work` and notes how long it took.
    pub fn record<R>(&self, kind: Kind, work: impl FnOnce() -> R) -> R {
        let start = self.began.elapsed();
        let result = work();
        self.spans.borrow_mut().push(Span { kind, start, end: self.began.elapsed() });
        result
    }

    /// Takes the spans noted so far.
    pub fn take(&self) -> Vec<Span> {
        std::mem::take(&mut self.spans.borrow_mut())
    }
}

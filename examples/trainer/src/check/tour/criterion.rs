//! What a row of data parallelism is judged by.

use crate::check::verify::{OutcomeDifference, TrainingOutcome};

/// The values that are compared with one process, and the greatest difference that passes.
pub(super) enum Criterion {
    Bitwise,
    /// Losses and weights within one part in a million.
    Close,
    /// The last losses within one part in a hundred.
    Loss,
}

impl Criterion {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Bitwise => "bitwise",
            Self::Close => "loss, weights 1e-6",
            Self::Loss => "last losses 1e-2",
        }
    }

    /// The greatest difference that passes; 0: bitwise.
    pub(super) fn bound(&self) -> f64 {
        match self {
            Self::Bitwise => 0.0,
            Self::Close => 1e-6,
            Self::Loss => 1e-2,
        }
    }

    /// Returns the difference of the outcomes, and true if it passes.
    pub(super) fn compare(&self, ours: &TrainingOutcome, theirs: &TrainingOutcome) -> (f64, bool) {
        let OutcomeDifference { loss, weights, bitwise } = ours.difference(theirs);
        let last = |outcome: &TrainingOutcome| outcome.losses.iter().rev().take(5).sum::<f64>();
        let last = (last(ours) - last(theirs)).abs() / last(theirs);
        match self {
            Self::Bitwise => (loss.max(weights), bitwise),
            Self::Close => (loss.max(weights), loss.max(weights) < self.bound()),
            Self::Loss => (last, last < self.bound()),
        }
    }
}

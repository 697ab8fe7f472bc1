//! What a row of data parallelism is judged by.

use crate::compare::{OutcomeDifference, TrainingOutcome, nan_as_infinity};

/// The values that are compared with one process, and the greatest difference that passes.
pub(super) enum Criterion {
    Bitwise,
    /// Losses and weights within one part in a million.
    Close,
    /// The last losses within this part.
    Loss(f64),
}

impl Criterion {
    pub(super) fn name(&self) -> String {
        match self {
            Self::Bitwise => "bitwise".to_owned(),
            Self::Close => "loss, weights 1e-6".to_owned(),
            Self::Loss(bound) => format!("last losses {bound:.0e}"),
        }
    }

    /// The greatest difference that passes; 0: bitwise.
    pub(super) fn bound(&self) -> f64 {
        match self {
            Self::Bitwise => 0.0,
            Self::Close => 1e-6,
            Self::Loss(bound) => *bound,
        }
    }

    /// The greatest difference of the `outcomes` of all ranks from one process, and whether all of
    /// them pass.
    pub(super) fn compare_all(
        &self,
        outcomes: &[TrainingOutcome],
        alone: &TrainingOutcome,
    ) -> (f64, bool) {
        let each = outcomes.iter().map(|outcome| self.compare(outcome, alone));
        each.fold((0.0, true), |(most, all), (difference, pass)| {
            (nan_as_infinity(difference).max(most), all && pass)
        })
    }

    /// Returns the difference of the outcomes, and true if it passes.
    pub(super) fn compare(&self, ours: &TrainingOutcome, theirs: &TrainingOutcome) -> (f64, bool) {
        let OutcomeDifference { loss, weights, bitwise, .. } = ours.difference(theirs);
        let last = |outcome: &TrainingOutcome| outcome.losses.iter().rev().take(5).sum::<f64>();
        let last = (last(ours) - last(theirs)).abs() / last(theirs);
        match self {
            Self::Bitwise => (loss.max(weights), bitwise),
            Self::Close => (loss.max(weights), loss.max(weights) < self.bound()),
            Self::Loss(bound) => (last, last < *bound),
        }
    }
}

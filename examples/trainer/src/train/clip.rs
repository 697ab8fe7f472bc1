//! The norm of the whole model's gradient, however it is sharded, and clipping by it.
//!
//! If the norm exceeds a limit, all gradients are multiplied by limit / norm, on every rank alike.
//! So the norm has to be that of the *whole* gradient: a rank that has a part sums the squares of
//! its part, and the sums are added over all ranks. A number that several ranks have must be
//! counted once, which sharded trainers often get wrong: norms and biases are on every rank of a
//! tensor group, and everything is on every rank of a data-parallel group.
//!
//! * **Collective:** an all-gather of one number a rank, added in rank order, so that all ranks
//!   clip alike to the last bit.
//!
//! A norm that is not finite belongs to a gradient that would spoil every weight. Then no rank
//! updates a weight: the step is skipped. A loss scale is lowered first; a run whose steps are
//! skipped in a row in spite of that ends with an error.

use crate::model::layout::{LayoutEntry, ParameterLayout};
use crate::model::store::ParamShard;
use crate::ranks::group::RankGroup;
use crate::tensor::math::{Real, sum_of_squares};
use crate::tensor::precision::LossScale;
use maypole::{Error, Result};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The default for the most steps that may be skipped in a row.
pub const MOST_SKIPPED: u64 = 5;

/// The length of the gradient: its norm, the most that it may be, and the scale of losses.
#[derive(Clone, Debug)]
pub struct Clip {
    /// The norm of the whole gradient, from the parts of all ranks.
    pub norm: GradientNorm,
    /// The most that the norm may be.
    pub limit: Option<f64>,
    /// The factor of losses before the backward pass, if gradients are 16-bit numbers.
    pub scale: Option<LossScale>,
    /// The norm in the last step, before clipping.
    pub last: f64,
    /// Steps that were skipped.
    pub skipped: SkippedSteps,
    /// So many skipped steps in a row are an error. Those that lower the scale do not count.
    pub most_skipped: u64,
    /// The factor of losses in this step.
    used: f64,
}

/// Steps without an update, because a gradient was not finite.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct SkippedSteps {
    /// All of them.
    pub all: u64,
    /// Those in a row up to the last step that did not lower the scale of losses.
    pub in_a_row: u64,
}

impl Clip {
    /// No limit, and no scale.
    pub fn new(norm: GradientNorm) -> Self {
        let skipped = SkippedSteps::default();
        let most_skipped = MOST_SKIPPED;
        Self { norm, limit: None, scale: None, last: 0.0, skipped, most_skipped, used: 1.0 }
    }

    /// Begins a step. Returns the factor of its losses before the backward pass.
    pub fn loss_scale(&mut self) -> f64 {
        self.used = self.scale.map_or(1.0, |scale| scale.factor);
        self.used
    }

    /// The loss of this step without the factor.
    pub fn unscaled(&self, loss: f64) -> f64 {
        loss / self.used
    }

    /// The factor of the gradients in the update; `None` if one on any rank is not finite, so that
    /// there is no update.
    ///
    /// # Errors
    /// As the collective in it. [`Error::Invalid`], equal on all ranks, if `most_skipped` steps in
    /// a row had a gradient that was not finite.
    pub fn factor<T: Real>(&mut self, owned: &[ParamShard<'_, T>]) -> Result<Option<f64>> {
        self.last = self.norm.of(owned)? / self.used;
        let lowered = self.scale.as_mut().is_some_and(|scale| scale.update(self.last));
        let SkippedSteps { all, in_a_row } = &mut self.skipped;
        if self.last.is_finite() {
            *in_a_row = 0;
            return Ok(Some(factor(self.last, self.limit) / self.used));
        }
        *all += 1;
        *in_a_row += u64::from(!lowered);
        if *in_a_row < self.most_skipped || lowered {
            return Ok(None);
        }
        let why = format!("the gradient was not finite in {in_a_row} steps in a row");
        Err(Error::Invalid { rank: self.norm.group.rank(), operation: "a training step", why })
    }
}

/// Computes the norm of the whole gradient. It stores for each parameter of this rank the number of
/// ranks that have the same one, so that each counts once.
#[derive(Clone, Debug)]
pub struct GradientNorm {
    /// The ranks that have the parts of the gradient.
    pub group: RankGroup,
    /// Runs of the flat buffer, and how many ranks have each of their elements.
    runs: Vec<(Range<usize>, usize)>,
}

impl GradientNorm {
    /// The norm over all ranks of `group`, in which `copies` ranks have each parameter.
    pub fn new(
        layout: &ParameterLayout,
        group: RankGroup,
        copies: impl Fn(&LayoutEntry) -> usize,
    ) -> Self {
        let runs = layout.entries.iter().map(|entry| (entry.range(), copies(entry))).collect();
        Self { group, runs }
    }

    /// The norm. NaN or infinite, if a gradient on any rank is.
    ///
    /// # Errors
    /// As the collective in it.
    pub fn of<T: Real>(&self, owned: &[ParamShard<'_, T>]) -> Result<f64> {
        // Tensor by tensor, so that the bits do not depend on how whole tensors are grouped into
        // runs.
        let mine: f64 = owned.iter().flat_map(|run| self.squares(run)).sum();
        Ok(self.group.sum(mine)?.sqrt())
    }

    /// For each tensor in a run: the sum of squares of its part there, divided by the number of
    /// ranks that have it.
    fn squares<T: Real>(&self, owned: &ParamShard<'_, T>) -> impl Iterator<Item = f64> {
        let here = owned.offset..owned.offset + owned.gradients.len();
        let first = self.runs.partition_point(|(run, _)| run.end <= here.start);
        let touching = self.runs[first..].iter().take_while(move |(run, _)| run.start < here.end);
        touching.map(|(run, copies)| {
            let here = owned.offset..owned.offset + owned.gradients.len();
            let start = run.start.max(here.start) - here.start;
            let end = run.end.min(here.end) - here.start;
            sum_of_squares(&owned.gradients[start..end]) / *copies as f64
        })
    }
}

/// Returns the factor by which gradients of norm `norm` have a norm of at most `limit`.
pub fn factor(norm: f64, limit: Option<f64>) -> f64 {
    limit.map_or(1.0, |limit| if norm > limit { limit / norm } else { 1.0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::config::Config;

    fn clip(scale: Option<LossScale>) -> Clip {
        let layout = ParameterLayout::whole(&Config::default());
        let mut clip = Clip::new(GradientNorm::new(&layout, RankGroup::single(), |_| 1));
        (clip.limit, clip.scale) = (Some(1.0), scale);
        clip
    }

    fn step(clip: &mut Clip, gradient: f32) -> Result<Option<f64>> {
        clip.loss_scale();
        let (weights, gradients) = (&mut [1.0, 1.0], &mut [0.0, gradient]);
        clip.factor(&[ParamShard { offset: 0, weights, gradients }])
    }

    #[test]
    fn without_a_scale_a_gradient_that_is_not_finite_skips_the_step_and_the_fifth_in_a_row_fails() {
        for spoilt in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for limit in [None, Some(1.0)] {
                let mut clip = clip(None);
                clip.limit = limit;
                for skipped in 1..=4 {
                    assert_eq!(step(&mut clip, spoilt).unwrap(), None, "{spoilt} {limit:?}");
                    assert_eq!(clip.skipped, SkippedSteps { all: skipped, in_a_row: skipped });
                }
                let factor = step(&mut clip, 4.0).unwrap();
                assert_eq!(factor, Some(limit.map_or(1.0, |limit| limit / 4.0)));
                (0..4).for_each(|_| assert_eq!(step(&mut clip, spoilt).unwrap(), None));
                let why = step(&mut clip, spoilt).unwrap_err().to_string();
                assert!(why.contains("not finite in 5 steps in a row"), "{why}");
                assert_eq!(clip.skipped.all, 9);
            }
        }
    }

    /// A scale that is too high comes down in many steps, which are no failure. At its lowest it has
    /// come down for the last time.
    #[test]
    fn a_scale_comes_down_to_its_lowest_and_ends_there() {
        let mut clip = clip(Some(LossScale { factor: 1_024.0, ..LossScale::default() }));
        for lowered in 1..=10 {
            assert_eq!(step(&mut clip, f32::NAN).unwrap(), None);
            assert_eq!(clip.scale.unwrap().factor, 1_024.0 / f64::from(1 << lowered));
            assert_eq!(clip.skipped.in_a_row, 0);
        }
        (0..4).for_each(|_| assert_eq!(step(&mut clip, f32::NAN).unwrap(), None));
        assert!(step(&mut clip, f32::NAN).is_err());
        assert_eq!((clip.scale.unwrap().factor, clip.skipped.all), (LossScale::LOWEST, 15));
    }
}

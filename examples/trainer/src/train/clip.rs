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

use crate::model::layout::{LayoutEntry, ParameterLayout};
use crate::model::store::OwnedRun;
use crate::ranks::group::RankGroup;
use crate::tensor::math::{Real, sum_of_squares};
use crate::tensor::precision::LossScale;
use maypole::Result;
use std::ops::Range;

/// The length of the gradient: its norm, the most that it may be, and the scale of losses.
#[derive(Clone, Debug)]
pub struct Clip {
    /// The norm of the whole gradient, from the parts of all ranks.
    pub norm: GradientNorm,
    /// The most that the norm may be.
    pub limit: Option<f64>,
    /// The factor of losses before the backward pass, if gradients are 16-bit numbers.
    pub scale: Option<LossScale>,
    /// The norm in the last step, before clipping; `None` unless the limit or the scale needs it.
    pub last: Option<f64>,
    /// The factor of losses in this step.
    used: f64,
}

impl Clip {
    /// No limit, and no scale.
    pub fn new(norm: GradientNorm) -> Self {
        Self { norm, limit: None, scale: None, last: None, used: 1.0 }
    }

    /// Begins a step. Returns the factor of its losses before the backward pass.
    pub fn begin(&mut self) -> f64 {
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
    /// As the collective in it.
    pub fn factor<T: Real>(&mut self, owned: &[OwnedRun<'_, T>]) -> Result<Option<f64>> {
        let wanted = self.limit.is_some() || self.scale.is_some();
        let norm = wanted.then(|| self.norm.of(owned)).transpose()?;
        self.last = norm.map(|norm| norm / self.used);
        let scale = self.scale.as_mut().zip(self.last);
        let good = scale.is_none_or(|(scale, norm)| scale.update(norm));
        let factor = self.last.map_or(1.0, |norm| factor(norm, self.limit)) / self.used;
        Ok(good.then_some(factor))
    }
}

/// Computes the norm of the whole gradient. For each parameter of this rank it knows how many ranks
/// have the same one, so that each counts once.
#[derive(Clone, Debug)]
pub struct GradientNorm {
    group: RankGroup,
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
    pub fn of<T: Real>(&self, owned: &[OwnedRun<'_, T>]) -> Result<f64> {
        // Tensor by tensor, so that the bits do not depend on how whole tensors are grouped into
        // runs.
        let mine: f64 = owned.iter().flat_map(|run| self.squares(run)).sum();
        Ok(self.group.sum(mine)?.sqrt())
    }

    /// For each tensor in a run: the sum of squares of its part there, divided by the number of
    /// ranks that have it.
    fn squares<T: Real>(&self, owned: &OwnedRun<'_, T>) -> impl Iterator<Item = f64> {
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

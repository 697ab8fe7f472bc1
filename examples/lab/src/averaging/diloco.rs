//! DiLoCo: each rank trains alone for H steps; then the mean change of the weights is the gradient
//! of an outer optimizer.
//!
//! * **Sharded:** the batch. A rank also keeps the weights after the last outer step (the anchor), and
//!   the velocity of the outer optimizer: in f32 8 bytes a parameter more.
//! * **Collective:** one all-reduce of the change every H steps.
//! * **Cost:** 2 (n-1)/n numbers a parameter leave each rank every H steps: 1/H of data
//!   parallelism.
//!
//! The inner optimizer, AdamW, keeps its state on each rank. The outer one is Nesterov's momentum:
//! with `d` the mean over ranks of `anchor - weights`,
//!
//! ```text
//! velocity = momentum velocity + d
//! anchor   = anchor - rate (d + momentum velocity)        weights = anchor, on all ranks
//! ```
//!
//! With a rate of 1 and no momentum the anchor becomes the mean of the weights: local SGD. The mean
//! of the ranks' changes is shorter than the change of each rank; momentum compensates for this
//! (Douillard et al. 2023).

use super::apart::{AveragingRule, mean};
use maypole::Result;
use maypole_trainer::ranks::group::RankGroup;
use maypole_trainer::tensor::math::{FloatElement, number};

/// The constants of the outer optimizer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OuterStep {
    /// The share of the mean change that is taken.
    pub rate: f64,
    /// The share of the velocity that stays.
    pub momentum: f64,
}

impl Default for OuterStep {
    /// The constants of the paper.
    fn default() -> Self {
        Self { rate: 0.7, momentum: 0.9 }
    }
}

/// The outer optimizer and its state.
#[derive(Debug)]
pub struct Diloco<T> {
    /// The weights after the last outer step, the same on all ranks.
    anchor: Vec<T>,
    velocity: Vec<T>,
    outer: OuterStep,
}

impl<T: FloatElement> Diloco<T> {
    /// An outer optimizer for `weights`, which are equal on all ranks at first.
    pub fn new(weights: &[T], outer: OuterStep) -> Self {
        Self { anchor: weights.to_vec(), velocity: vec![T::zero(); weights.len()], outer }
    }
}

impl<T: FloatElement> AveragingRule<T> for Diloco<T> {
    fn average(&mut self, weights: &mut [T], group: &RankGroup) -> Result<()> {
        let both = self.anchor.iter().zip(&*weights);
        let mut change: Vec<T> = both.map(|(anchor, weight)| *anchor - *weight).collect();
        mean(&mut change, group)?;
        let [rate, momentum] = [self.outer.rate, self.outer.momentum].map(number::<T>);
        let state = self.anchor.iter_mut().zip(&mut self.velocity).zip(&change);
        for ((anchor, velocity), change) in state {
            *velocity = momentum * *velocity + *change;
            *anchor -= rate * (*change + momentum * *velocity);
        }
        weights.copy_from_slice(&self.anchor);
        Ok(())
    }

    /// Returns the weights after the last outer step. Later changes differ between ranks, and are
    /// left out.
    fn model(&mut self, _: &[T], _: &RankGroup) -> Result<Vec<T>> {
        Ok(self.anchor.clone())
    }

    fn bytes(&self) -> usize {
        size_of_val(&*self.anchor) + size_of_val(&*self.velocity)
    }
}

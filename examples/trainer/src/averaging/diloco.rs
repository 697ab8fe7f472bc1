//! DiLoCo: each rank trains alone for H steps; then the mean change of the weights is the gradient
//! of an outer optimizer.
//!
//! * **Sharded:** the batch. A rank keeps besides its own weights those after the last outer step,
//!   and the velocity of the outer optimizer: 8 bytes a parameter more.
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
//! With a rate of 1 and without momentum the anchor becomes the mean of the weights: local SGD.
//! Momentum makes up for H steps of averaging, which shortens the change (Douillard et al. 2023).

use crate::model::layout::ParameterLayout;
use crate::model::store::{FlatStore, OwnedRun, Store, StoreBytes};
use crate::ranks::group::RankGroup;
use crate::tensor::math::{FloatElement, number, scale};
use maypole::Result;

/// The constants of the outer optimizer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OuterStep {
    /// The share of the mean change that is taken.
    pub rate: f64,
    /// The share of the velocity that stays.
    pub momentum: f64,
}

impl Default for OuterStep {
    /// Those of the paper.
    fn default() -> Self {
        Self { rate: 0.7, momentum: 0.9 }
    }
}

/// Weights that are a rank's own between outer steps.
#[derive(Debug)]
pub struct Diloco<T> {
    flat: FlatStore<T>,
    /// The weights after the last outer step, the same on all ranks.
    anchor: Vec<T>,
    velocity: Vec<T>,
    group: RankGroup,
    every: u64,
    outer: OuterStep,
    steps: u64,
}

impl<T: FloatElement> Diloco<T> {
    /// These weights, alike on all ranks of `group` to begin with, and an outer step after every
    /// `every` steps.
    ///
    /// # Panics
    /// If `every` is zero.
    pub fn new(flat: FlatStore<T>, group: RankGroup, every: u64, outer: OuterStep) -> Self {
        assert!(every > 0, "an outer step comes every so many steps, at least one");
        let anchor = flat.weights.clone();
        let velocity = vec![T::zero(); anchor.len()];
        Self { flat, anchor, velocity, group, every, outer, steps: 0 }
    }

    fn outer_step(&mut self) -> Result<()> {
        let both = self.anchor.iter().zip(&self.flat.weights);
        let mut change: Vec<T> = both.map(|(anchor, weight)| *anchor - *weight).collect();
        self.group.all_reduce(&mut change)?;
        scale(&mut change, number(1.0 / self.group.world() as f64));
        let [rate, momentum] = [self.outer.rate, self.outer.momentum].map(number::<T>);
        let state = self.anchor.iter_mut().zip(&mut self.velocity).zip(&change);
        for ((anchor, velocity), change) in state {
            *velocity = momentum * *velocity + *change;
            *anchor -= rate * (*change + momentum * *velocity);
        }
        self.flat.weights.copy_from_slice(&self.anchor);
        Ok(())
    }
}

impl<T: FloatElement> Store<T> for Diloco<T> {
    fn layout(&self) -> &ParameterLayout {
        self.flat.layout()
    }

    fn diverges(&self) -> bool {
        true
    }

    fn weights(&mut self, unit: usize) -> Result<&[T]> {
        self.flat.weights(unit)
    }

    fn weights_and_gradients(&mut self, unit: usize) -> Result<(&[T], &mut [T])> {
        self.flat.weights_and_gradients(unit)
    }

    /// A rank that trains alone takes the mean over its own rows: gradients are shares of the mean
    /// over the rows of all ranks.
    fn finish(&mut self) -> Result<()> {
        scale(&mut self.flat.gradients, number(self.group.world() as f64));
        Ok(())
    }

    fn owned(&mut self) -> Vec<OwnedRun<'_, T>> {
        self.flat.owned()
    }

    fn share(&mut self) -> Result<()> {
        Ok(())
    }

    fn publish(&mut self) -> Result<()> {
        self.steps += 1;
        if self.steps.is_multiple_of(self.every) {
            self.outer_step()?;
        }
        self.flat.publish()
    }

    fn bytes(&self) -> StoreBytes {
        let outer = size_of_val(&*self.anchor) + size_of_val(&*self.velocity);
        StoreBytes { masters: outer, ..self.flat.bytes() }
    }

    /// The weights after the last outer step: what came after it is each rank's own.
    fn all_weights(&mut self) -> Result<Vec<T>> {
        Ok(self.anchor.clone())
    }
}

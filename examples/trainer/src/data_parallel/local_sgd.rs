//! Local SGD: each rank trains alone for H steps, then weights are averaged over ranks.
//!
//! * **Sharded:** the batch, as in data parallelism; but ranks drift apart between averages.
//! * **Collective:** one all-reduce of the *weights* every H steps (Stich 2019); of every step the
//!   loss alone, a number, so that it can be shown.
//! * **Cost:** 2 (n-1)/n numbers a parameter leave each rank every H steps: 1/H of data
//!   parallelism, for links that are slow. It is another algorithm, not another execution of the
//!   same: only with H = 1 and plain SGD are the steps those of data parallelism, because the
//!   average of `w - rate * g` is `w - rate *` the average of g.
//!
//! A rank that trains alone takes the mean over its own rows, so gradients, which are shares of the
//! mean over the rows of all ranks, are multiplied by n first. Their norm is that rank's own, and
//! so is what [clipping](crate::train::clip) makes of it: with clipping even H = 1 is not data
//! parallelism, which clips the mean.

use crate::model::layout::ParameterLayout;
use crate::model::store::{FlatStore, OwnedRun, Store, StoreBytes};
use crate::ranks::group::RankGroup;
use crate::tensor::math::{FloatElement, number, scale};
use maypole::Result;

/// Weights that are a rank's own between averages.
#[derive(Debug)]
pub struct LocalSgd<T> {
    flat: FlatStore<T>,
    group: RankGroup,
    every: u64,
    steps: u64,
}

/// The mean of what the ranks of `group` have, on all of them.
fn average<T: FloatElement>(group: &RankGroup, weights: &mut [T]) -> Result<()> {
    group.all_reduce(weights)?;
    scale(weights, number(1.0 / group.world() as f64));
    Ok(())
}

impl<T: FloatElement> LocalSgd<T> {
    /// These weights, alike on all ranks of `group` to begin with, averaged after every `every`
    /// steps.
    ///
    /// # Panics
    /// If `every` is zero.
    pub fn new(flat: FlatStore<T>, group: RankGroup, every: u64) -> Self {
        assert!(every > 0, "weights are averaged every so many steps, at least one");
        Self { flat, group, every, steps: 0 }
    }
}

impl<T: FloatElement> Store<T> for LocalSgd<T> {
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
            average(&self.group, &mut self.flat.weights)?;
        }
        self.flat.publish()
    }

    fn bytes(&self) -> StoreBytes {
        self.flat.bytes()
    }

    /// Between averages ranks have weights of their own: the mean of them, which is what the next
    /// average would be.
    fn all_weights(&mut self) -> Result<Vec<T>> {
        let mut all = self.flat.weights.clone();
        if !self.steps.is_multiple_of(self.every) {
            average(&self.group, &mut all)?;
        }
        Ok(all)
    }
}

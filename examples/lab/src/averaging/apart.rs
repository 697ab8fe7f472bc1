//! The store of ranks that train apart: each rank has its own weights, and every H steps an
//! [`AveragingRule`] averages them.

use maypole::Result;
use maypole_trainer::model::store::{FlatStore, Store, StoreBytes, forward_store};
use maypole_trainer::ranks::group::RankGroup;
use maypole_trainer::ranks::memory::MemoryKind;
use maypole_trainer::tensor::math::{FloatElement, number, scale};

/// The rule by which ranks that train apart average their weights.
pub trait AveragingRule<T: FloatElement> {
    /// Replaces this rank's `weights` by the average of the rule. All ranks of `group` call it
    /// after the same step.
    ///
    /// # Errors
    /// As the collectives and messages in it.
    fn average(&mut self, weights: &mut [T], group: &RankGroup) -> Result<()>;

    /// Returns the weights of the model that a run gives, the same on all ranks. By default they
    /// are the mean of all ranks' `weights`. All ranks of `group` call it.
    ///
    /// # Errors
    /// As the collectives in it.
    fn model(&mut self, weights: &[T], group: &RankGroup) -> Result<Vec<T>> {
        let mut all = weights.to_vec();
        mean(&mut all, group)?;
        Ok(all)
    }

    /// True if all ranks have the same weights right after [`average`](Self::average).
    fn makes_equal(&self) -> bool {
        true
    }

    /// Returns the bytes that the rule keeps from step to step.
    fn bytes(&self) -> usize {
        0
    }
}

/// Replaces `weights` by their mean over the ranks of `group`.
///
/// # Errors
/// As the all-reduce in it.
pub(crate) fn mean<T: FloatElement>(weights: &mut [T], group: &RankGroup) -> Result<()> {
    group.all_reduce(weights)?;
    scale(weights, number(1.0 / group.world() as f64));
    Ok(())
}

/// A store of weights that differ between ranks from one average to the next.
#[derive(Debug)]
pub struct AveragedStore<T, R, G = T> {
    inner: FlatStore<T, G>,
    group: RankGroup,
    rule: R,
    every: u64,
    steps: u64,
}

impl<T: FloatElement, R: AveragingRule<T>, G: FloatElement> AveragedStore<T, R, G> {
    /// A store of the weights of `flat`, which are equal on all ranks of `group` at first. After
    /// every `every` steps `rule` averages them.
    ///
    /// # Panics
    /// If `every` is zero.
    pub fn new(flat: FlatStore<T, G>, group: RankGroup, every: u64, rule: R) -> Self {
        assert!(every > 0, "weights are averaged every so many steps, at least one");
        Self { inner: flat, group, rule, every, steps: 0 }
    }

    fn is_average_due(&self) -> bool {
        self.steps.is_multiple_of(self.every)
    }
}

impl<T, R, G> Store<T, G> for AveragedStore<T, R, G>
where
    T: FloatElement,
    R: AveragingRule<T>,
    G: FloatElement,
{
    forward_store!(T, G: layout, weights, weights_and_gradients, local_shards, all_gather_params);

    fn diverges(&self) -> bool {
        true
    }

    /// Gradients are shares of the mean over the rows of all ranks. A rank that trains alone needs
    /// the mean over its own rows, so its gradients are multiplied by the number of ranks.
    fn finish_grad_sync(&mut self) -> Result<()> {
        scale(&mut self.inner.gradients, number(self.group.world() as f64));
        Ok(())
    }

    fn publish(&mut self) -> Result<()> {
        self.steps += 1;
        if self.is_average_due() {
            let weights = &mut self.inner.weights;
            MemoryKind::Units.hold(|| self.rule.average(weights, &self.group))?;
        }
        self.inner.publish()
    }

    fn bytes(&self) -> StoreBytes {
        StoreBytes { masters: self.rule.bytes(), ..self.inner.bytes() }
    }

    /// Returns the model that the rule makes from the ranks' weights.
    fn all_weights(&mut self) -> Result<Vec<T>> {
        if self.rule.makes_equal() && self.is_average_due() {
            return Ok(self.inner.weights.clone());
        }
        self.rule.model(&self.inner.weights, &self.group)
    }
}

//! ZeRO stage 2: each rank keeps the gradients of the parameters that it updates, and no others.
//!
//! * **Sharded:** the optimizer and the gradients: with AdamW in f32, 4 + 12/n bytes a parameter
//!   are left, and one unit's gradients while they are made.
//! * **Collectives:** reduce-scatter of each unit's gradients as soon as its backward pass is done,
//!   *with every micro-batch*: no rank has memory to keep them until the last. Then all-gather of
//!   the updated weights.
//! * **Cost:** (m + 1) (n-1)/n numbers a parameter leave each rank with m micro-batches; with one,
//!   as plain data parallelism. A known mistake is to replace the shard with the sums of the last
//!   micro-batch instead of adding to it.

use crate::data_parallel::gathered::GatheredWeights;
use crate::data_parallel::shards::Shards;
use crate::model::layout::ParameterLayout;
use crate::model::store::{OwnedRun, Store, StoreBytes};
use crate::ranks::group::{PendingCollective, RankGroup};
use crate::tensor::math::{FloatElement, add};
use maypole::Result;

/// All weights, and a part of the gradients.
#[derive(Debug)]
pub struct Zero2<T> {
    layout: ParameterLayout,
    group: RankGroup,
    shards: Shards,
    weights: GatheredWeights<T>,
    /// Sums of this rank's parts, put together.
    gradients: Vec<T>,
    /// One unit's gradients, while they are made.
    making: Vec<T>,
    under_way: Option<(usize, PendingCollective<T>)>,
    transient: usize,
}

impl<T: FloatElement> Zero2<T> {
    /// These weights, alike on all ranks of `group`. All ranks call it.
    ///
    /// # Errors
    /// If the ranks cannot make memory that they share.
    ///
    /// # Panics
    /// If there are not as many as the layout says.
    pub fn new(layout: ParameterLayout, weights: &[T], group: RankGroup) -> Result<Self> {
        assert_eq!(weights.len(), layout.len(), "weights are as the layout says");
        let shards = Shards::new(&layout, group.shard());
        let gradients = vec![T::zero(); shards.len()];
        let weights = GatheredWeights::new(weights, &shards, &group)?;
        Ok(Self {
            layout,
            group,
            shards,
            weights,
            gradients,
            making: Vec::new(),
            under_way: None,
            transient: 0,
        })
    }

    /// Adds the sums that are under way to this rank's.
    fn receive(&mut self) -> Result<()> {
        if let Some((unit, sum)) = self.under_way.take() {
            let sum = sum.wait()?;
            add(&mut self.gradients[self.shards.packed(unit)], &sum[self.shards.within(unit)]);
        }
        Ok(())
    }
}

impl<T: FloatElement> Store<T> for Zero2<T> {
    fn layout(&self) -> &ParameterLayout {
        &self.layout
    }

    fn weights(&mut self, unit: usize) -> Result<&[T]> {
        Ok(&self.weights[self.shards.units[unit].clone()])
    }

    fn weights_and_gradients(&mut self, unit: usize) -> Result<(&[T], &mut [T])> {
        let range = self.shards.units[unit].clone();
        self.making = vec![T::zero(); range.len()];
        let sending = self.under_way.as_ref().map_or(0, |(unit, _)| self.shards.units[*unit].len());
        self.transient = self.transient.max((range.len() + sending) * size_of::<T>());
        Ok((&self.weights[range], &mut self.making))
    }

    fn gradients(&mut self, _unit: usize) -> Result<&mut [T]> {
        Ok(&mut self.making)
    }

    fn backward_done(&mut self, unit: usize) -> Result<()> {
        self.receive()?;
        self.under_way =
            Some((unit, self.group.start_reduce_scatter(std::mem::take(&mut self.making))?));
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.receive()
    }

    fn owned(&mut self) -> Vec<OwnedRun<'_, T>> {
        self.shards.owned(&mut self.weights, &mut self.gradients)
    }

    fn share(&mut self) -> Result<()> {
        self.weights.share(&self.shards, &self.group)
    }

    fn publish(&mut self) -> Result<()> {
        self.share()?;
        self.gradients.fill(T::zero());
        Ok(())
    }

    fn bytes(&self) -> StoreBytes {
        let weights = size_of_val(&*self.weights);
        let gradients = size_of_val(&*self.gradients);
        StoreBytes { weights, gradients, transient: self.transient, ..StoreBytes::default() }
    }
}

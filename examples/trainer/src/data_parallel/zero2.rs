//! ZeRO stage 2: each rank keeps the gradients of the parameters that it updates, and no others.
//!
//! * **Sharded:** the optimizer and the gradients: with AdamW in f32, 4 + 12/n bytes a parameter
//!   are left. During a step a rank also holds the gradients of up to two units: of the unit that
//!   runs, and of the unit in its reduce-scatter.
//! * **Collectives:** reduce-scatter of each unit's gradients as soon as its backward pass is done,
//!   *in every micro-batch*: no rank has the memory to keep all gradients until the last
//!   micro-batch. After the update an all-gather of the weights.
//! * **Cost:** (m + 1) (n-1)/n numbers a parameter leave each rank with m micro-batches: with one,
//!   as much as in plain data parallelism. A common mistake is to replace the shard by the sums of
//!   the last micro-batch instead of adding these sums.

use crate::data_parallel::gathered::GatheredWeights;
use crate::data_parallel::shards::Shards;
use crate::model::layout::ParameterLayout;
use crate::model::store::{OwnedRun, Store, StoreBytes};
use crate::ranks::group::{PendingCollective, RankGroup};
use crate::tensor::math::{FloatElement, add};
use maypole::Result;

/// All weights, and a rank's part of the gradients.
#[derive(Debug)]
pub struct Zero2<T, G = T> {
    layout: ParameterLayout,
    group: RankGroup,
    shards: Shards,
    weights: GatheredWeights<T>,
    /// The sums of this rank's parts, concatenated.
    gradients: Vec<G>,
    /// The gradients of the unit that runs.
    making: Vec<G>,
    under_way: Option<(usize, PendingCollective<G>)>,
    transient: usize,
}

impl<T: FloatElement, G: FloatElement> Zero2<T, G> {
    /// A store of `weights`, which are equal on all ranks of `group`. All ranks call it.
    ///
    /// # Errors
    /// If the ranks cannot make memory that they share.
    ///
    /// # Panics
    /// If the number of weights is not that of the layout.
    pub fn new(layout: ParameterLayout, weights: &[T], group: RankGroup) -> Result<Self> {
        assert_eq!(weights.len(), layout.len(), "the number of weights is that of the layout");
        let shards = Shards::new(&layout, group.shard());
        let gradients = vec![G::zero(); shards.len()];
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

    /// Waits for the reduce-scatter in flight, and adds its result to this rank's gradients.
    fn receive(&mut self) -> Result<()> {
        if let Some((unit, sum)) = self.under_way.take() {
            let sum = sum.wait()?;
            add(&mut self.gradients[self.shards.packed(unit)], &sum[self.shards.within(unit)]);
        }
        Ok(())
    }
}

impl<T: FloatElement, G: FloatElement> Store<T, G> for Zero2<T, G> {
    fn layout(&self) -> &ParameterLayout {
        &self.layout
    }

    fn weights(&mut self, unit: usize) -> Result<&[T]> {
        Ok(&self.weights[self.shards.units[unit].clone()])
    }

    fn weights_and_gradients(&mut self, unit: usize) -> Result<(&[T], &mut [G])> {
        let range = self.shards.units[unit].clone();
        self.making = vec![G::zero(); range.len()];
        let sending = self.under_way.as_ref().map_or(0, |(unit, _)| self.shards.units[*unit].len());
        self.transient = self.transient.max((range.len() + sending) * size_of::<G>());
        Ok((&self.weights[range], &mut self.making))
    }

    fn gradients(&mut self, _unit: usize) -> Result<&mut [G]> {
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

    fn owned(&mut self) -> Vec<OwnedRun<'_, T, G>> {
        self.shards.owned(&mut self.weights, &mut self.gradients)
    }

    fn share(&mut self) -> Result<()> {
        self.weights.share(&self.shards, &self.group)
    }

    fn publish(&mut self) -> Result<()> {
        self.share()?;
        self.gradients.fill(G::zero());
        Ok(())
    }

    fn bytes(&self) -> StoreBytes {
        let weights = size_of_val(&*self.weights);
        let gradients = size_of_val(&*self.gradients);
        StoreBytes { weights, gradients, transient: self.transient, ..StoreBytes::default() }
    }
}

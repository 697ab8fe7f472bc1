//! ZeRO stage 1: every rank has all weights and gradients, and its part of the optimizer's state.
//!
//! * **Sharded:** the optimizer: with AdamW in f32, 8 of 16 bytes a parameter become 8/n. During the
//!   last backward pass a rank also holds a copy of the gradients of one unit, in its reduce-scatter.
//! * **Collectives:** reduce-scatter of each unit's gradients during the last backward pass, after
//!   which each rank has the sums of its part and updates that part; then all-gather of the
//!   weights.
//! * **Cost:** an all-reduce *is* a reduce-scatter and an all-gather, so 2 (n-1)/n numbers a
//!   parameter leave each rank, as in plain data parallelism. The memory is saved without
//!   sending more (Rajbhandari et al. 2020). A common mistake is to wait for all sums at the end of
//!   the backward pass: then the copies of all units are live together, 4 + 4/n bytes a parameter,
//!   and two ranks need more memory than without ZeRO.

use crate::data_parallel::gathered::GatheredWeights;
use crate::data_parallel::shards::Shards;
use crate::model::layout::ParameterLayout;
use crate::model::store::{OwnedRun, Store, StoreBytes, StorePass};
use crate::ranks::group::{PendingCollective, RankGroup};
use crate::tensor::math::FloatElement;
use maypole::Result;

/// Weights and gradients of a rank that updates a part of them.
#[derive(Debug)]
pub struct Zero1<T, G = T> {
    layout: ParameterLayout,
    weights: GatheredWeights<T>,
    /// In the order of the layout.
    gradients: Vec<G>,
    group: RankGroup,
    shards: Shards,
    under_way: Option<(usize, PendingCollective<G>)>,
    last: bool,
}

impl<T: FloatElement, G: FloatElement> Zero1<T, G> {
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
        let gradients = vec![G::zero(); weights.len()];
        let weights = GatheredWeights::new(weights, &shards, &group)?;
        let under_way = None;
        Ok(Self { layout, weights, gradients, group, shards, under_way, last: false })
    }

    /// Waits for the reduce-scatter in flight, and takes the result of this rank's part.
    fn receive(&mut self) -> Result<()> {
        if let Some((unit, sum)) = self.under_way.take() {
            let sum = sum.wait()?;
            let mine = self.shards.mine[unit].clone();
            self.gradients[mine].copy_from_slice(&sum[self.shards.within(unit)]);
        }
        Ok(())
    }
}

impl<T: FloatElement, G: FloatElement> Store<T, G> for Zero1<T, G> {
    fn layout(&self) -> &ParameterLayout {
        &self.layout
    }

    fn weights(&mut self, unit: usize) -> Result<&[T]> {
        Ok(&self.weights[self.shards.units[unit].clone()])
    }

    fn pass_begins(&mut self, pass: StorePass) {
        self.last = pass.is_last();
    }

    fn weights_and_gradients(&mut self, unit: usize) -> Result<(&[T], &mut [G])> {
        let range = self.shards.units[unit].clone();
        Ok((&self.weights[range.clone()], &mut self.gradients[range]))
    }

    fn backward_done(&mut self, unit: usize) -> Result<()> {
        if self.last {
            self.receive()?;
            let gradients = self.gradients[self.shards.units[unit].clone()].to_vec();
            self.under_way = Some((unit, self.group.start_reduce_scatter(gradients)?));
        }
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
        StoreBytes {
            weights: size_of_val(&*self.weights),
            gradients: size_of_val(&*self.gradients),
            ..StoreBytes::default()
        }
    }
}

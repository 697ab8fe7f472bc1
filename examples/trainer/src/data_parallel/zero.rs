//! ZeRO stages 1 and 2: every rank has all weights, and updates its part of them.
//!
//! Stage 1 divides the optimizer's state:
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
//!
//! In stage 2 each rank keeps the gradients of the parameters that it updates, and no others:
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
use crate::model::store::{ParamShard, Store, StoreBytes, StorePass};
use crate::ranks::group::{PendingCollective, RankGroup};
use crate::tensor::math::{FloatElement, add};
use maypole::Result;

/// Weights and gradients of a rank that updates a part of them.
#[derive(Debug)]
pub struct Zero<T, G = T> {
    layout: ParameterLayout,
    group: RankGroup,
    shards: Shards,
    weights: GatheredWeights<T>,
    /// Stage 1: all gradients, in the order of the layout. Stage 2: the sums of this rank's parts,
    /// concatenated.
    gradients: Vec<G>,
    /// Stage 2: the gradients of the unit that runs.
    making: Vec<G>,
    under_way: Option<(usize, PendingCollective<G>)>,
    /// Whether the stage is 2.
    shards_gradients: bool,
    /// Whether the backward pass is the last one of the step.
    last: bool,
}

impl<T: FloatElement, G: FloatElement> Zero<T, G> {
    /// A store of `weights`, which are equal on all ranks of `group`, of stage 2 if it
    /// `shards_gradients`, and else of stage 1. All ranks call it.
    ///
    /// # Errors
    /// If the ranks cannot make memory that they share.
    ///
    /// # Panics
    /// If the number of weights is not that of the layout.
    pub fn new(
        layout: ParameterLayout,
        weights: &[T],
        group: RankGroup,
        shards_gradients: bool,
    ) -> Result<Self> {
        assert_eq!(weights.len(), layout.len(), "the number of weights is that of the layout");
        let shards = Shards::new(&layout, group.shard());
        let kept = if shards_gradients { shards.len() } else { weights.len() };
        let weights = GatheredWeights::new(weights, &shards, &group)?;
        Ok(Self {
            layout,
            group,
            shards,
            weights,
            gradients: vec![G::zero(); kept],
            making: Vec::new(),
            under_way: None,
            shards_gradients,
            last: false,
        })
    }

    /// Waits for the reduce-scatter in flight, and takes the result of this rank's part.
    fn receive(&mut self) -> Result<()> {
        let Some((unit, sum)) = self.under_way.take() else { return Ok(()) };
        let sum = sum.wait()?;
        let mine = &sum[self.shards.within(unit)];
        if self.shards_gradients {
            add(&mut self.gradients[self.shards.packed(unit)], mine);
        } else {
            self.gradients[self.shards.mine[unit].clone()].copy_from_slice(mine);
        }
        Ok(())
    }
}

impl<T: FloatElement, G: FloatElement> Store<T, G> for Zero<T, G> {
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
        if self.shards_gradients {
            self.making = vec![G::zero(); range.len()];
            return Ok((&self.weights[range], &mut self.making));
        }
        Ok((&self.weights[range.clone()], &mut self.gradients[range]))
    }

    fn gradients(&mut self, unit: usize) -> Result<&mut [G]> {
        if self.shards_gradients {
            return Ok(&mut self.making);
        }
        Ok(&mut self.gradients[self.shards.units[unit].clone()])
    }

    fn backward_done(&mut self, unit: usize) -> Result<()> {
        if self.shards_gradients || self.last {
            self.receive()?;
            let gradients = match self.shards_gradients {
                true => std::mem::take(&mut self.making),
                false => self.gradients[self.shards.units[unit].clone()].to_vec(),
            };
            self.under_way = Some((unit, self.group.start_reduce_scatter(gradients)?));
        }
        Ok(())
    }

    fn finish_grad_sync(&mut self) -> Result<()> {
        self.receive()
    }

    fn local_shards(&mut self) -> Vec<ParamShard<'_, T, G>> {
        self.shards.local(&mut self.weights, &mut self.gradients)
    }

    fn all_gather_params(&mut self) -> Result<()> {
        self.weights.all_gather(&self.shards, &self.group)
    }

    fn publish(&mut self) -> Result<()> {
        self.all_gather_params()?;
        self.gradients.fill(G::zero());
        Ok(())
    }

    fn bytes(&self) -> StoreBytes {
        let weights = size_of_val(&*self.weights);
        let gradients = size_of_val(&*self.gradients);
        StoreBytes { weights, gradients, masters: 0 }
    }
}

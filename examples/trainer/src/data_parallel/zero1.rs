//! ZeRO stage 1: every rank has all weights and gradients, and its part of the optimizer's state.
//!
//! * **Sharded:** the optimizer: with AdamW in f32, 8 of 16 bytes a parameter become 8/n.
//! * **Collectives:** reduce-scatter of each unit's gradients during the last backward pass, after
//!   which each rank has the sums of its part and updates that part; then all-gather of the
//!   weights.
//! * **Cost:** an all-reduce *is* a reduce-scatter and an all-gather, so 2 (n-1)/n numbers a
//!   parameter leave each rank, as in plain data parallelism. The memory is saved without
//!   sending more (Rajbhandari et al. 2020).

use crate::data_parallel::shards::Shards;
use crate::model::layout::ParameterLayout;
use crate::model::store::{FlatStore, OwnedRun, Store, StoreBytes};
use crate::ranks::group::{PendingCollective, RankGroup};
use crate::tensor::math::FloatElement;
use maypole::Result;

/// Weights and gradients of a rank that updates a part of them.
#[derive(Debug)]
pub struct Zero1<T> {
    flat: FlatStore<T>,
    group: RankGroup,
    shards: Shards,
    under_way: Vec<(usize, PendingCollective<T>)>,
    last: bool,
}

impl<T: FloatElement> Zero1<T> {
    /// A store of the weights of `flat`, which are equal on all ranks of `group`.
    pub fn new(flat: FlatStore<T>, group: RankGroup) -> Self {
        let shards = Shards::new(flat.layout(), group.shard());
        Self { flat, group, shards, under_way: Vec::new(), last: false }
    }
}

impl<T: FloatElement> Store<T> for Zero1<T> {
    fn layout(&self) -> &ParameterLayout {
        self.flat.layout()
    }

    fn weights(&mut self, unit: usize) -> Result<&[T]> {
        self.flat.weights(unit)
    }

    fn backward_begins(&mut self, last: bool) {
        self.last = last;
    }

    fn weights_and_gradients(&mut self, unit: usize) -> Result<(&[T], &mut [T])> {
        self.flat.weights_and_gradients(unit)
    }

    fn backward_done(&mut self, unit: usize) -> Result<()> {
        if self.last {
            let gradients = self.flat.gradients[self.flat.range(unit)].to_vec();
            self.under_way.push((unit, self.group.start_reduce_scatter(gradients)?));
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        for (unit, sum) in std::mem::take(&mut self.under_way) {
            let sum = sum.wait()?;
            let mine = self.shards.mine[unit].clone();
            self.flat.gradients[mine].copy_from_slice(&sum[self.shards.within(unit)]);
        }
        Ok(())
    }

    fn owned(&mut self) -> Vec<OwnedRun<'_, T>> {
        self.shards.owned(&mut self.flat.weights, &mut self.flat.gradients)
    }

    fn share(&mut self) -> Result<()> {
        for unit in &self.shards.units {
            self.group.all_gather(&mut self.flat.weights[unit.clone()])?;
        }
        Ok(())
    }

    fn publish(&mut self) -> Result<()> {
        self.share()?;
        self.flat.publish()
    }

    fn bytes(&self) -> StoreBytes {
        self.flat.bytes()
    }
}

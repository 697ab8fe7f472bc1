//! Fully sharded data parallelism, ZeRO stage 3: no rank has the whole model.
//!
//! * **Sharded:** weights, gradients and optimizer: with AdamW in f32, 16/n bytes a parameter.
//!   During a step a rank also holds buffers of up to two unsharded units, and the gradients of up to
//!   two units: of the unit that runs, and of the unit in its reduce-scatter.
//! * **Collectives:** all-gather of a unit's weights before its forward pass, and again before its
//!   backward pass; the buffer of unsharded weights is freed after each pass. Reduce-scatter of its
//!   gradients. No collective after the update: each rank keeps its own shard.
//! * **Cost:** 3 (n-1)/n numbers a parameter leave each rank in a micro-batch. Plain data
//!   parallelism sends 2 (n-1)/n in a step.
//!
//! A rank that waits for a unit is idle. With `prefetch`, a rank starts the all-gather of the *next*
//! unit of a pass before it computes the present one (Zhao et al. 2023).

use crate::data_parallel::shards::Shards;
use crate::model::layout::ParameterLayout;
use crate::model::store::{ParamShard, Store, StoreBytes, StorePass};
use crate::ranks::group::{PendingCollective, RankGroup};
use crate::tensor::math::{FloatElement, add};
use maypole::Result;

/// A rank's part of the weights and of the gradients.
#[derive(Debug)]
pub struct Fsdp<T, G = T> {
    layout: ParameterLayout,
    group: RankGroup,
    shards: Shards,
    weights: Vec<T>,
    gradients: Vec<G>,
    /// All weights of the unit that runs.
    present: Vec<T>,
    /// The all-gather of the next unit's weights.
    next: Option<(usize, PendingCollective<T>)>,
    /// The gradients of the unit that runs.
    making: Vec<G>,
    /// The reduce-scatter of the last unit's gradients.
    sending: Option<(usize, PendingCollective<G>)>,
    /// The pass that runs; none between passes.
    pass: Option<StorePass>,
    prefetch: bool,
}

impl<T: FloatElement, G: FloatElement> Fsdp<T, G> {
    /// A store of this rank's shards of `weights`, which are equal on all ranks of `group`. With
    /// `prefetch` the all-gather of the next unit overlaps with the pass of a unit.
    ///
    /// # Panics
    /// If the number of weights is not that of the layout.
    pub fn new(layout: ParameterLayout, weights: &[T], group: RankGroup, prefetch: bool) -> Self {
        assert_eq!(weights.len(), layout.len(), "the number of weights is that of the layout");
        let shards = Shards::new(&layout, group.shard());
        let weights = shards.pack(weights);
        let gradients = vec![G::zero(); shards.len()];
        Self {
            layout,
            group,
            shards,
            weights,
            gradients,
            present: Vec::new(),
            next: None,
            making: Vec::new(),
            sending: None,
            pass: None,
            prefetch,
        }
    }

    /// Starts the all-gather of a unit's weights.
    fn ask(&self, unit: usize) -> Result<(usize, PendingCollective<T>)> {
        let mut whole = vec![T::zero(); self.shards.units[unit].len()];
        whole[self.shards.within(unit)].copy_from_slice(&self.weights[self.shards.packed(unit)]);
        Ok((unit, self.group.start_all_gather(whole)?))
    }

    /// Waits for the all-gather of `unit`, which it starts if not prefetched. Prefetches the next unit.
    fn gather(&mut self, unit: usize) -> Result<()> {
        let asked = match self.next.take() {
            Some(next) if next.0 == unit => next,
            _ => self.ask(unit)?,
        };
        self.present = asked.1.wait()?;
        let next = self.pass.as_ref().and_then(|pass| pass.after(unit));
        if let Some(next) = next.filter(|_| self.prefetch) {
            self.next = Some(self.ask(next)?);
        }
        Ok(())
    }

    /// Ends the pass with its last unit, so that an all-gather between passes prefetches no other.
    fn pass_leaves(&mut self, unit: usize) {
        self.pass.take_if(|pass| pass.after(unit).is_none());
    }

    /// Waits for the reduce-scatter in flight, and adds its result to this rank's gradients.
    fn receive(&mut self) -> Result<()> {
        if let Some((unit, sum)) = self.sending.take() {
            let sum = sum.wait()?;
            add(&mut self.gradients[self.shards.packed(unit)], &sum[self.shards.within(unit)]);
        }
        Ok(())
    }
}

impl<T: FloatElement, G: FloatElement> Store<T, G> for Fsdp<T, G> {
    fn layout(&self) -> &ParameterLayout {
        &self.layout
    }

    fn weights(&mut self, unit: usize) -> Result<&[T]> {
        self.gather(unit)?;
        Ok(&self.present)
    }

    fn forward_done(&mut self, unit: usize) -> Result<()> {
        self.present = Vec::new();
        self.pass_leaves(unit);
        Ok(())
    }

    fn pass_begins(&mut self, pass: StorePass) {
        self.pass = Some(pass);
    }

    fn weights_and_gradients(&mut self, unit: usize) -> Result<(&[T], &mut [G])> {
        self.gather(unit)?;
        self.making = vec![G::zero(); self.shards.units[unit].len()];
        Ok((&self.present, &mut self.making))
    }

    fn gradients(&mut self, _unit: usize) -> Result<&mut [G]> {
        Ok(&mut self.making)
    }

    fn backward_done(&mut self, unit: usize) -> Result<()> {
        self.present = Vec::new();
        self.receive()?;
        self.sending =
            Some((unit, self.group.start_reduce_scatter(std::mem::take(&mut self.making))?));
        self.pass_leaves(unit);
        Ok(())
    }

    fn finish_grad_sync(&mut self) -> Result<()> {
        self.receive()
    }

    fn local_shards(&mut self) -> Vec<ParamShard<'_, T, G>> {
        self.shards.local(&mut self.weights, &mut self.gradients)
    }

    fn all_gather_params(&mut self) -> Result<()> {
        Ok(())
    }

    fn publish(&mut self) -> Result<()> {
        self.gradients.fill(G::zero());
        Ok(())
    }

    fn bytes(&self) -> StoreBytes {
        let weights = size_of_val(&*self.weights);
        StoreBytes { weights, gradients: size_of_val(&*self.gradients), masters: 0 }
    }
}

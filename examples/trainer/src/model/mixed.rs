//! Weights in 16 bits, and in 32 bits the gradients and the masters that the optimizer updates.
//!
//! * **Sharded:** as in the inner store. Its weights take 2 bytes a parameter and its gradients
//!   4. A rank has `f32` masters of the parameters that it updates, so masters are sharded with the
//!   optimizer.
//! * **Collective:** those of the inner store.
//! * **Cost:** with AdamW 2 + 4 bytes a parameter for weights and gradients, and 12 for masters and
//!   moments. All in `f32` it is 4 + 4 + 8: two bytes less. So memory is saved where masters and
//!   moments are sharded, and weights are not. Messages of weights have half the bytes.
//!
//! In `bf16`, which has 8 bits of precision, a weight of 1 that changes by 0.001 a step would stay
//! 1 forever. So the optimizer updates a *master* in 32 bits, and layers use a rounded copy of it
//! (Micikevicius et al. 2018). Gradients have the same problem: with 64 micro-batches each term is a
//! small part of the sum, and a sum in 16 bits would lose most of its bits. So gradients are added
//! over micro-batches and over ranks in 32 bits, and never rounded.

use crate::model::store::{ParamShard, Store, StoreBytes, forward_store};
use crate::tensor::half_float::HalfFloat;
use crate::tensor::math::take_mut;
use maypole::Result;

/// A store of 16-bit weights, with masters. It is not for local SGD,
/// which averages weights: it would average the rounded copies, and the next update would overwrite
/// the average.
pub struct MixedPrecisionStore<H> {
    inner: Box<dyn Store<H, f32>>,
    /// The 32-bit weights that this rank updates, run after run.
    masters: Vec<f32>,
    /// The 32-bit weights of the unit that runs.
    wide: Vec<f32>,
}

impl<H: HalfFloat> MixedPrecisionStore<H> {
    /// A store around `inner`, whose weights are `weights` rounded to 16 bits.
    ///
    /// # Panics
    /// If the number of weights is not that of the layout.
    pub fn new(mut inner: Box<dyn Store<H, f32>>, weights: &[f32]) -> Self {
        assert_eq!(
            weights.len(),
            inner.layout().len(),
            "the number of weights is that of the layout"
        );
        let mine =
            |run: ParamShard<'_, H, f32>| weights[run.offset..][..run.weights.len()].to_vec();
        let masters = inner.local_shards().into_iter().flat_map(mine).collect();
        Self { inner, masters, wide: Vec::new() }
    }

    /// Rounds this rank's masters into the weights of the inner store.
    fn round(&mut self) {
        let mut masters = &*self.masters;
        for run in self.inner.local_shards() {
            let (here, rest) = masters.split_at(run.weights.len());
            H::narrow(run.weights, here);
            masters = rest;
        }
    }
}

impl<H: HalfFloat> Store<f32> for MixedPrecisionStore<H> {
    forward_store!(f32:
        layout, copies, diverges, forward_done, pass_begins, gradients, backward_done,
        finish_grad_sync,
    );

    fn weights(&mut self, unit: usize) -> Result<&[f32]> {
        widen(&mut self.wide, self.inner.weights(unit)?);
        Ok(&self.wide)
    }

    fn weights_and_gradients(&mut self, unit: usize) -> Result<(&[f32], &mut [f32])> {
        let (weights, gradients) = self.inner.weights_and_gradients(unit)?;
        widen(&mut self.wide, weights);
        Ok((&self.wide, gradients))
    }

    fn local_shards(&mut self) -> Vec<ParamShard<'_, f32>> {
        let mut masters = &mut *self.masters;
        let mut owned = Vec::new();
        for ParamShard { offset, weights, gradients } in self.inner.local_shards() {
            owned.push(ParamShard {
                offset,
                weights: take_mut(&mut masters, weights.len()),
                gradients,
            });
        }
        owned
    }

    fn all_gather_params(&mut self) -> Result<()> {
        self.round();
        self.inner.all_gather_params()
    }

    fn publish(&mut self) -> Result<()> {
        self.round();
        self.inner.publish()
    }

    fn bytes(&self) -> StoreBytes {
        StoreBytes { masters: size_of_val(&*self.masters), ..self.inner.bytes() }
    }
}

fn widen<H: HalfFloat>(wide: &mut Vec<f32>, narrow: &[H]) {
    wide.resize(narrow.len(), 0.0);
    H::widen(wide, narrow);
}

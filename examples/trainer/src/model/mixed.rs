//! Weights and gradients in 16 bits, and the 32-bit masters that the optimizer updates.
//!
//! * **Sharded:** what the inner store shards. Its weights and gradients take 2 bytes a parameter.
//!   A rank has `f32` masters of the parameters that it updates, so masters are sharded with the
//!   optimizer.
//! * **Collective:** those of the inner store.
//! * **Cost:** with AdamW 2 + 2 bytes a parameter for weights and gradients, and 12 for masters and
//!   moments. All in `f32` it is 4 + 4 + 8, the same sum. So memory is saved where masters and
//!   moments are sharded, and weights or gradients are not. Messages of weights and of gradients
//!   have half the bytes.
//!
//! In `bf16`, which has 8 bits of precision, a weight of 1 that changes by 0.001 a step would stay
//! 1 forever. So the optimizer updates a *master* in 32 bits, and layers use a rounded copy of it
//! (Micikevicius et al. 2018). Gradients are rounded once a micro-batch, when a unit's backward
//! pass is done, and summed over ranks as 16-bit numbers.

use crate::model::store::{OwnedRun, Store, StoreBytes, forward_store};
use crate::tensor::half_float::{HalfFloat, PIECE};
use maypole::Result;

/// A store of 16-bit numbers, with masters. It is not for local SGD,
/// which averages weights: it would average the rounded copies, and the next update would overwrite
/// the average.
pub struct MixedPrecisionStore<H> {
    inner: Box<dyn Store<H>>,
    /// The 32-bit weights that this rank updates, run after run.
    masters: Vec<f32>,
    /// The sums of gradients of the same parameters; empty except during an update.
    gradients: Vec<f32>,
    /// The 32-bit weights of the unit that runs.
    wide: Vec<f32>,
    /// The unit whose backward pass runs, and its gradients so far.
    making: Option<(usize, Vec<f32>)>,
    transient: usize,
}

impl<H: HalfFloat> MixedPrecisionStore<H> {
    /// A store around `inner`, whose weights are `weights` rounded to 16 bits.
    ///
    /// # Panics
    /// If the number of weights is not that of the layout.
    pub fn new(mut inner: Box<dyn Store<H>>, weights: &[f32]) -> Self {
        assert_eq!(
            weights.len(),
            inner.layout().len(),
            "the number of weights is that of the layout"
        );
        let mine = |run: OwnedRun<'_, H>| weights[run.offset..][..run.weights.len()].to_vec();
        let masters = inner.owned().into_iter().flat_map(mine).collect();
        Self { inner, masters, gradients: Vec::new(), wide: Vec::new(), making: None, transient: 0 }
    }

    /// Updates the most bytes that were held for a moment.
    fn note(&mut self) {
        let making = self.making.as_ref().map_or(0, |(_, making)| making.len());
        let wide = self.wide.len() + self.gradients.len() + making;
        self.transient = self.transient.max(wide * size_of::<f32>());
    }

    /// Rounds this rank's masters into the weights of the inner store.
    fn round(&mut self) {
        let mut masters = &*self.masters;
        for run in self.inner.owned() {
            let (here, rest) = masters.split_at(run.weights.len());
            H::narrow(run.weights, here);
            masters = rest;
        }
    }
}

impl<H: HalfFloat> Store<f32> for MixedPrecisionStore<H> {
    forward_store!(f32: layout, copies, diverges, forward_done, pass_begins, finish);

    fn weights(&mut self, unit: usize) -> Result<&[f32]> {
        widen(&mut self.wide, self.inner.weights(unit)?);
        self.note();
        Ok(&self.wide)
    }

    fn weights_and_gradients(&mut self, unit: usize) -> Result<(&[f32], &mut [f32])> {
        if self.making.as_ref().is_none_or(|(making, _)| *making != unit) {
            let weights = self.inner.weights_and_gradients(unit)?.0;
            widen(&mut self.wide, weights);
            self.making = Some((unit, vec![0.0; self.wide.len()]));
            self.note();
        }
        let (_, making) = self.making.as_mut().expect("the unit's gradients were just made");
        Ok((&self.wide, making))
    }

    fn backward_done(&mut self, unit: usize) -> Result<()> {
        if let Some((unit, making)) = self.making.take() {
            add(self.inner.gradients(unit)?, &making);
        }
        self.inner.backward_done(unit)
    }

    fn owned(&mut self) -> Vec<OwnedRun<'_, f32>> {
        let runs: Vec<(usize, usize)> =
            self.inner.owned().iter().map(|run| (run.offset, run.weights.len())).collect();
        self.gradients.resize(self.masters.len(), 0.0);
        self.note();
        let mut masters = &mut *self.masters;
        let mut gradients = &mut *self.gradients;
        let mut sums = self.inner.owned().into_iter();
        let wide = |(offset, len): (usize, usize)| {
            let weights = masters.split_off_mut(..len).expect("there is a master for each weight");
            let gradients =
                gradients.split_off_mut(..len).expect("there is a gradient for each weight");
            H::widen(
                gradients,
                sums.next().expect("the inner store has the same runs as before").gradients,
            );
            OwnedRun { offset, weights, gradients }
        };
        runs.into_iter().map(wide).collect()
    }

    fn share(&mut self) -> Result<()> {
        self.round();
        self.inner.share()
    }

    fn publish(&mut self) -> Result<()> {
        self.gradients = Vec::new();
        self.round();
        self.inner.publish()
    }

    fn bytes(&self) -> StoreBytes {
        let bytes = self.inner.bytes();
        StoreBytes {
            masters: size_of_val(&*self.masters),
            transient: bytes.transient + self.transient,
            ..bytes
        }
    }
}

fn widen<H: HalfFloat>(wide: &mut Vec<f32>, narrow: &[H]) {
    wide.resize(narrow.len(), 0.0);
    H::widen(wide, narrow);
}

/// `y += x`, each sum rounded once.
fn add<H: HalfFloat>(y: &mut [H], x: &[f32]) {
    let mut wide = [0.0; PIECE];
    for (y, x) in y.chunks_mut(PIECE).zip(x.chunks(PIECE)) {
        let wide = &mut wide[..y.len()];
        H::widen(wide, y);
        crate::tensor::math::add(wide, x);
        H::narrow(y, wide);
    }
}

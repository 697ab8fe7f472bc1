//! Mixed precision: layers compute in 16 bits, weights are kept and updated in 32.
//!
//! * **Sharded:** nothing; it goes with every sharding, since it is a [`Store`] around another.
//! * **Collective:** one number a rank and step, with `f16`: whether anything overflowed.
//! * **Cost:** rounding. On a device with 16-bit arithmetic it halves the time and the activations; this processor widens
//!   numbers to multiply them, so what is shown here is what it does to the *training*, not its speed.
//!
//! A weight of 1 that moves by 0.001 a step would stay 1 forever in `bf16`, which has 8 bits: that is why the optimizer works
//! on a *master* in `f32`, of which layers see a rounded copy ([`Cast`]). Activations and their gradients are rounded by
//! [`Rounded`], a device.
//!
//! `bf16` has the range of `f32`; `f16` has more bits, but nothing above 65504 or below 6e-8, where many gradients lie. So the
//! loss is multiplied by a [`Scale`] before the backward pass and gradients are divided by it after. The scale grows until
//! something overflows; then that step is skipped, *on all ranks*, and the scale is halved (Micikevicius et al. 2018).

use crate::attention::Heads;
use crate::device::{Cpu, Device};
use crate::layout::Layout;
use crate::norm::Before;
use crate::store::{Bytes, Owned, Store};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use maypole::Result;
use std::fmt::Debug;
use std::marker::PhantomData;

/// A 16-bit float.
pub trait Half: Send + Sync + Debug + 'static {
    /// Every number becomes the nearest that 16 bits hold; beyond the largest is infinity.
    fn round(x: &mut [f32]);
}

impl Half for bf16 {
    fn round(x: &mut [f32]) {
        round::<Self>(x, Self::ZERO, |half, x| half.convert_from_f32_slice(x), |half, x| half.convert_to_f32_slice(x));
    }
}

impl Half for f16 {
    fn round(x: &mut [f32]) {
        round::<Self>(x, Self::ZERO, |half, x| half.convert_from_f32_slice(x), |half, x| half.convert_to_f32_slice(x));
    }
}

fn round<H: Copy>(x: &mut [f32], zero: H, narrow: impl Fn(&mut [H], &[f32]), widen: impl Fn(&[H], &mut [f32])) {
    let mut half = [zero; 1024];
    for chunk in x.chunks_mut(half.len()) {
        let half = &mut half[..chunk.len()];
        narrow(half, chunk);
        widen(half, chunk);
    }
}

/// A processor whose layers give 16-bit numbers.
#[derive(Clone, Copy, Debug)]
pub struct Rounded<H>(PhantomData<H>);

impl<H> Default for Rounded<H> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<H: Half> Device<f32> for Rounded<H> {
    fn linear(&self, y: &mut [f32], x: &[f32], w: &[f32], inputs: usize) {
        Cpu.linear(y, x, w, inputs);
        H::round(y);
    }

    fn linear_backward(&self, dx: &mut [f32], dw: &mut [f32], dy: &[f32], x: &[f32], w: &[f32], inputs: usize) {
        Cpu.linear_backward(dx, dw, dy, x, w, inputs);
        H::round(dx);
    }

    fn bias(&self, y: &mut [f32], b: &[f32]) {
        Cpu.bias(y, b);
        H::round(y);
    }

    fn norm(&self, y: &mut [f32], stats: &mut [f32], x: &[f32], w: &[f32], b: &[f32]) {
        Cpu.norm(y, stats, x, w, b);
        H::round(y);
    }

    fn norm_backward(&self, dx: &mut [f32], dw: &mut [f32], db: &mut [f32], dy: &[f32], before: Before<'_, f32>) {
        Cpu.norm_backward(dx, dw, db, dy, before);
        H::round(dx);
    }

    fn attention(&self, heads: Heads, qkv: &[f32]) -> (Vec<f32>, Vec<f32>) {
        let (mut y, mut probabilities) = Cpu.attention(heads, qkv);
        H::round(&mut y);
        H::round(&mut probabilities);
        (y, probabilities)
    }

    fn attention_backward(&self, heads: Heads, qkv: &[f32], probabilities: &[f32], dy: &[f32]) -> Vec<f32> {
        let mut dqkv = Cpu.attention_backward(heads, qkv, probabilities, dy);
        H::round(&mut dqkv);
        dqkv
    }

    fn gelu(&self, y: &mut [f32], x: &[f32]) {
        Cpu.gelu(y, x);
        H::round(y);
    }

    fn gelu_backward(&self, dx: &mut [f32], x: &[f32]) {
        Cpu.gelu_backward(dx, x);
        H::round(dx);
    }

    fn add(&self, y: &mut [f32], x: &[f32]) {
        Cpu.add(y, x);
        H::round(y);
    }

    /// The loss itself is computed in 32 bits; its gradient is rounded like any other.
    fn cross_entropy(&self, logits: &mut [f32], targets: &[u32], weight: f64) -> f64 {
        let loss = Cpu.cross_entropy(logits, targets, weight);
        H::round(logits);
        loss
    }
}

/// A store whose weights are masters: layers get them rounded, the optimizer as they are.
pub struct Cast<H> {
    masters: Box<dyn Store<f32>>,
    /// The unit at work, rounded.
    rounded: Vec<f32>,
    half: PhantomData<H>,
}

impl<H: Half> Cast<H> {
    /// Around these masters.
    pub fn new(masters: Box<dyn Store<f32>>) -> Self {
        Self { masters, rounded: Vec::new(), half: PhantomData }
    }
}

impl<H: Half> Store<f32> for Cast<H> {
    fn layout(&self) -> &Layout {
        self.masters.layout()
    }

    fn copies(&self) -> usize {
        self.masters.copies()
    }

    fn weights(&mut self, unit: usize) -> Result<&[f32]> {
        self.rounded = self.masters.weights(unit)?.to_vec();
        H::round(&mut self.rounded);
        Ok(&self.rounded)
    }

    fn forward_done(&mut self, unit: usize) -> Result<()> {
        self.masters.forward_done(unit)
    }

    fn backward_begins(&mut self, last: bool) {
        self.masters.backward_begins(last);
    }

    fn weights_and_gradients(&mut self, unit: usize) -> Result<(&[f32], &mut [f32])> {
        let (weights, gradients) = self.masters.weights_and_gradients(unit)?;
        self.rounded = weights.to_vec();
        H::round(&mut self.rounded);
        Ok((&self.rounded, gradients))
    }

    fn backward_done(&mut self, unit: usize) -> Result<()> {
        self.masters.backward_done(unit)
    }

    fn finish(&mut self) -> Result<()> {
        self.masters.finish()
    }

    fn owned(&mut self) -> Vec<Owned<'_, f32>> {
        self.masters.owned()
    }

    fn share(&mut self) -> Result<()> {
        self.masters.share()
    }

    fn publish(&mut self) -> Result<()> {
        self.masters.publish()
    }

    fn bytes(&self) -> Bytes {
        let bytes = self.masters.bytes();
        Bytes { transient: bytes.transient + size_of_val(&*self.rounded), ..bytes }
    }

    fn all_weights(&mut self) -> Result<Vec<f32>> {
        self.masters.all_weights()
    }
}

/// What the loss is multiplied by before the backward pass, so that gradients are neither too large nor too small.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// The factor: a power of two, so that nothing is rounded by it.
    pub factor: f64,
    /// Steps without overflow after which it doubles.
    pub patience: u64,
    /// Steps without overflow so far.
    pub good: u64,
    /// Steps that were skipped.
    pub skipped: u64,
}

impl Default for Scale {
    fn default() -> Self {
        Self { factor: 65_536.0, patience: 2_000, good: 0, skipped: 0 }
    }
}

impl Scale {
    /// What follows from a step whose gradient had this norm, which is the same on all ranks: true if the step is to be
    /// taken.
    pub fn judge(&mut self, norm: f64) -> bool {
        if !norm.is_finite() {
            (self.factor, self.good) = (self.factor / 2.0, 0);
            self.skipped += 1;
            return false;
        }
        self.good += 1;
        if self.good == self.patience {
            (self.factor, self.good) = (self.factor * 2.0, 0);
        }
        true
    }
}

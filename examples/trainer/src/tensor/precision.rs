//! Mixed precision: layers compute in 16 bits, weights are updated in 32.
//!
//! * **Sharded:** nothing more. It works with every sharding: weights then have 16 bits, and
//!   gradients are added in 32 ([`Mixed`]).
//! * **Collective:** those of the sharding, with half the bytes for weights, and the messages of
//!   pipelines with half the bytes.
//! * **Cost:** rounding. On a device with 16-bit arithmetic it halves the time and the activations;
//!   this processor widens numbers to multiply them, and exchanges activations wide within layers,
//!   so it shows what 16 bits do to the *training*, to the memory of weights and
//!   [waiting activations](crate::tensor::packed), and to the bytes that data and pipeline
//!   parallelism send.
//!
//! `bf16` has the range of `f32`. `f16` has more bits of precision, but no numbers above 65504 or
//! below 6e-8, and many gradients are smaller than that. So the loss is multiplied by a
//! [`LossScale`] before the backward pass, and gradients are divided by it afterwards. The scale
//! grows until a number overflows. That step is then skipped *on all ranks*, and the scale is
//! halved, but not below 1 (Micikevicius et al. 2018).
//!
//! [`HalfPrecisionDevice`] rounds activations and their gradients, at the same places on every mesh
//! but for one: of a sum over ranks ([`crate::tensor_parallel::region`]) each term is rounded before
//! the sum, as on devices with 16-bit arithmetic. One process rounds only the sum.
//!
//! [`Mixed`]: crate::model::mixed::MixedPrecisionStore

use crate::tensor::attention::Heads;
use crate::tensor::device::{CpuDevice, Device};
use crate::tensor::half_float::HalfFloat;
use crate::tensor::norm::NormInputs;
use crate::tensor::packed::{self, PackedNumbers};
use crate::tensor::rotary::{Rotation, Turn};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// The number format that layers compute with.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// 32 bits.
    F32,
    /// 16 bits, with the range of `f32`.
    Bf16,
    /// 16 bits of higher precision and a smaller range, with a [`LossScale`].
    F16,
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        })
    }
}

/// A device, with the results of layers rounded to 16-bit numbers. By default the device is this
/// processor.
#[derive(Clone, Debug)]
pub struct HalfPrecisionDevice<H> {
    inner: Arc<dyn Device<f32>>,
    half: PhantomData<H>,
}

impl<H> HalfPrecisionDevice<H> {
    /// A device that rounds the results of `inner`.
    pub fn rounding(inner: Arc<dyn Device<f32>>) -> Self {
        Self { inner, half: PhantomData }
    }
}

impl<H> Default for HalfPrecisionDevice<H> {
    fn default() -> Self {
        Self::rounding(Arc::new(CpuDevice))
    }
}

/// Layers of the inner device, each with those of its arguments that are rounded afterwards.
/// Gradients of weights are none of them: they add up in 32 bits.
macro_rules! rounded {
    ($($layer:ident($($argument:ident: $kind:ty),*) => [$($result:ident),*];)*) => {
        $(fn $layer(&self, $($argument: $kind),*) {
            self.inner.$layer($($argument),*);
            $(H::coarsen($result);)*
        })*
    };
}

impl<H: HalfFloat> Device<f32> for HalfPrecisionDevice<H> {
    rounded! {
        linear(y: &mut [f32], x: &[f32], w: &[f32], inputs: usize) => [y];
        linear_backward(
            dx: &mut [f32], dw: &mut [f32], dy: &[f32], x: &[f32], w: &[f32], inputs: usize
        ) => [dx];
        bias(y: &mut [f32], b: &[f32]) => [y];
        bias_backward(db: &mut [f32], dy: &[f32]) => [];
        norm(y: &mut [f32], stats: &mut [f32], x: &[f32], w: &[f32], b: &[f32]) => [y];
        norm_backward(
            dx: &mut [f32], dw: &mut [f32], db: &mut [f32], dy: &[f32], before: NormInputs<'_, f32>
        ) => [dx];
        rms_norm(y: &mut [f32], stats: &mut [f32], x: &[f32], w: &[f32]) => [y];
        rms_norm_backward(
            dx: &mut [f32], dw: &mut [f32], dy: &[f32], before: NormInputs<'_, f32>
        ) => [dx];
        turn(x: &mut [f32], rotation: &Rotation<'_, f32>, turn: Turn) => [x];
        gelu(y: &mut [f32], x: &[f32]) => [y];
        gelu_backward(dx: &mut [f32], x: &[f32]) => [dx];
        swiglu(y: &mut [f32], gate: &[f32], up: &[f32]) => [y];
        swiglu_backward(
            dgate: &mut [f32], dup: &mut [f32], gate: &[f32], up: &[f32]
        ) => [dgate, dup];
        add(y: &mut [f32], x: &[f32]) => [y];
        embed(x: &mut [f32], table: &[f32], first: usize, ids: &[u32]) => [x];
        embed_backward(dtable: &mut [f32], first: usize, ids: &[u32], dx: &[f32]) => [];
    }

    fn attention(&self, heads: Heads, qkv: &[f32]) -> (Vec<f32>, Vec<f32>) {
        let (mut y, mut probabilities) = self.inner.attention(heads, qkv);
        H::coarsen(&mut y);
        H::coarsen(&mut probabilities);
        (y, probabilities)
    }

    fn attention_backward(
        &self,
        heads: Heads,
        qkv: &[f32],
        probabilities: &[f32],
        dy: &[f32],
    ) -> Vec<f32> {
        let mut dqkv = self.inner.attention_backward(heads, qkv, probabilities, dy);
        H::coarsen(&mut dqkv);
        dqkv
    }

    fn cross_entropy(&self, logits: &mut [f32], targets: &[u32], weight: f64) -> f64 {
        let loss = self.inner.cross_entropy(logits, targets, weight);
        H::coarsen(logits);
        loss
    }

    fn pack(&self, x: Vec<f32>) -> PackedNumbers<f32> {
        packed::pack::<H>(x)
    }

    fn keep(&self, x: &mut [f32]) {
        H::coarsen(x);
    }

    fn failure(&self) -> Option<String> {
        self.inner.failure()
    }
}

/// The factor of the loss before the backward pass. With it gradients are neither too large nor too
/// small for `f16`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct LossScale {
    /// The factor: a power of two, so that multiplication by it is exact.
    pub factor: f64,
    /// The factor doubles after so many steps without overflow.
    pub patience: u64,
    /// Steps without overflow since the factor last changed.
    pub good: u64,
}

impl Default for LossScale {
    fn default() -> Self {
        // With this factor gradients below 15.9 are within the range of `f16`, which ends at 65504.
        // Those of a mean loss are smaller from the first step on.
        Self { factor: 4_096.0, patience: 2_000, good: 0 }
    }
}

impl LossScale {
    /// The lowest factor: one that is lower would not make gradients fit that overflow at it, and
    /// would make all others vanish.
    pub const LOWEST: f64 = 1.0;

    /// Adapts the factor to a step whose gradient had the norm `norm`, which must be equal on all
    /// ranks. Returns true if the factor was lowered, because a number overflowed.
    pub fn update(&mut self, norm: f64) -> bool {
        if !norm.is_finite() {
            let lowered = self.factor > Self::LOWEST;
            self.factor = (self.factor / 2.0).max(Self::LOWEST);
            self.good = 0;
            return lowered;
        }
        self.good += 1;
        if self.good == self.patience {
            self.factor *= 2.0;
            self.good = 0;
        }
        false
    }
}

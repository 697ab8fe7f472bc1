//! The operations that a device provides for a model: one method for each layer, forward and
//! backward.
//!
//! The blocks of the model call a [`Device`] and never a layer's file, so another device is one
//! more `impl`. Buffers are slices: a device with its own memory copies them there and back
//! (`maypole_trainer_gpu`). A layer that several ranks compute together, such as attention in a ring, is in the
//! folder of its axis. It calls [`Device::keep`] on its result, so that the result is rounded as
//! that of a layer of one process.

use crate::tensor::attention::{self, Heads};
use crate::tensor::math::{self, Real};
use crate::tensor::norm::NormInputs;
use crate::tensor::packed::PackedNumbers;
use crate::tensor::rotary::{Rotation, Turn};
use crate::tensor::{embed, gelu, linear, loss, norm, rms_norm, swiglu};
use std::fmt::Debug;

/// Layers, forward and backward. Each method has the shapes of the function of its layer's file.
#[allow(missing_docs, reason = "each method is the function of its layer's file")]
pub trait Device<T: Real>: Send + Sync + Debug {
    fn linear(&self, y: &mut [T], x: &[T], w: &[T], inputs: usize) {
        linear::forward(y, x, w, inputs);
    }

    fn linear_backward(
        &self,
        dx: &mut [T],
        dw: &mut [T],
        dy: &[T],
        x: &[T],
        w: &[T],
        inputs: usize,
    ) {
        linear::backward(dx, dw, dy, x, w, inputs);
    }

    fn bias(&self, y: &mut [T], b: &[T]) {
        linear::bias(y, b);
    }

    fn bias_backward(&self, db: &mut [T], dy: &[T]) {
        linear::bias_backward(db, dy);
    }

    fn norm(&self, y: &mut [T], stats: &mut [T], x: &[T], w: &[T], b: &[T]) {
        norm::forward(y, stats, x, w, b);
    }

    fn norm_backward(
        &self,
        dx: &mut [T],
        dw: &mut [T],
        db: &mut [T],
        dy: &[T],
        before: NormInputs<'_, T>,
    ) {
        norm::backward(dx, dw, db, dy, before);
    }

    fn rms_norm(&self, y: &mut [T], stats: &mut [T], x: &[T], w: &[T]) {
        rms_norm::forward(y, stats, x, w);
    }

    fn rms_norm_backward(&self, dx: &mut [T], dw: &mut [T], dy: &[T], before: NormInputs<'_, T>) {
        rms_norm::backward(dx, dw, dy, before);
    }

    fn turn(&self, x: &mut [T], rotation: &Rotation<'_, T>, turn: Turn) {
        rotation.turn(x, turn);
    }

    fn attention(&self, heads: Heads, qkv: &[T]) -> (Vec<T>, Vec<T>) {
        attention::forward(heads, qkv)
    }

    fn attention_backward(&self, heads: Heads, qkv: &[T], probabilities: &[T], dy: &[T]) -> Vec<T> {
        attention::backward(heads, qkv, probabilities, dy)
    }

    fn gelu(&self, y: &mut [T], x: &[T]) {
        gelu::forward(y, x);
    }

    fn gelu_backward(&self, dx: &mut [T], x: &[T]) {
        gelu::backward(dx, x);
    }

    fn swiglu(&self, y: &mut [T], gate: &[T], up: &[T]) {
        swiglu::forward(y, gate, up);
    }

    fn swiglu_backward(&self, dgate: &mut [T], dup: &mut [T], gate: &[T], up: &[T]) {
        swiglu::backward(dgate, dup, gate, up);
    }

    fn embed(&self, x: &mut [T], table: &[T], first: usize, ids: &[u32]) {
        embed::forward(x, table, first, ids);
    }

    fn embed_backward(&self, dtable: &mut [T], first: usize, ids: &[u32], dx: &[T]) {
        embed::backward(dtable, first, ids, dx);
    }

    fn cross_entropy(&self, logits: &mut [T], targets: &[u32], weight: f64) -> f64 {
        loss::cross_entropy(logits, targets, weight)
    }

    fn add(&self, y: &mut [T], x: &[T]) {
        math::add(y, x);
    }

    /// Returns activations as this device stores them until the backward pass. Unpacked, they are
    /// equal to the bit.
    fn pack(&self, x: Vec<T>) -> PackedNumbers<T> {
        PackedNumbers::Whole(x)
    }

    /// Rounds the result of a layer that ranks compute together to the numbers of this device. A
    /// device that computes in as many bits as `T` has changes nothing.
    fn keep(&self, x: &mut [T]) {
        let _ = x;
    }

    /// Returns what made this device fail, if it has failed. Results that it has given since then are
    /// not those of the layers. This processor does not fail.
    fn failure(&self) -> Option<String> {
        None
    }
}

/// The processor that runs this program: every layer is the function of its file.
#[derive(Clone, Copy, Debug)]
pub struct CpuDevice;

impl<T: Real> Device<T> for CpuDevice {}

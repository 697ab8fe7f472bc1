//! A linear layer whose matrix is cut by outputs: *column parallel*.
//!
//! `y = x w^T + b`, with `w` of shape outputs x inputs. Each rank has some rows of `w`, which are
//! columns of the result: it multiplies the whole input by its rows, and has some of the outputs of
//! every token. What follows must work on each output alone: GELU, or attention on whole heads.
//!
//! ```text
//!                    rank 0        rank 1           d = 64 inputs, 256 outputs, 2 ranks, 512 tokens
//!   w^T           [ 64 x 128 ]  [ 64 x 128 ]        the whole matrix is 64 x 256
//!   b             [ 128 ]       [ 128 ]
//!   x  [512 x 64]  the same on both ranks
//!   y             [512 x 128]   [512 x 128]         columns 0..128 and 128..256 of one process
//! ```
//!
//! # What is sharded
//! The matrix and its bias, by outputs. The result, by columns.
//!
//! # Which collective runs where
//! Forward none: every rank has the input ([`ParallelRegion::enter`]). Backward one all-reduce of
//! the input's gradient, because every rank has a term of it:
//! `dx = dy w = dy0 w0 + dy1 w1` ([`ParallelRegion::enter_backward`]).
//!
//! # Cost
//! `2 (p-1)/p * tokens * inputs` numbers a rank leave it backward: with the numbers above, 32,768.
//!
//! # Source
//! Shoeybi et al., "Megatron-LM" (2019), `ColumnParallelLinear` of its `tensor_parallel/layers.py`.

use crate::tensor::device::Device;
use crate::tensor::math::Real;
use crate::tensor_parallel::region::ParallelRegion;
use maypole::Result;

/// One rank's part of the layer, or of its gradients: `S` is a slice.
#[derive(Clone, Copy, Debug)]
pub struct ColumnParallelLinear<S> {
    /// This rank's rows of the matrix, each of `inputs` numbers.
    pub weight: S,
    /// One number for each of this rank's rows, if the layer has a bias.
    pub bias: Option<S>,
    /// Numbers of a token before the layer, all of which every rank has.
    pub inputs: usize,
}

impl<T: Real> ColumnParallelLinear<&[T]> {
    /// Enters the region and multiplies. Returns the input of all tokens, which the backward pass
    /// needs, and this rank's outputs for these tokens.
    ///
    /// # Errors
    /// As the collective of the region.
    pub fn forward(
        &self,
        device: &dyn Device<T>,
        region: &mut dyn ParallelRegion<T>,
        x: Vec<T>,
    ) -> Result<(Vec<T>, Vec<T>)> {
        let x = region.enter(x)?;
        let y = self.multiply(device, &x);
        Ok((x, y))
    }

    /// Returns this rank's outputs for `x`, which is in the region already: one row for each row of
    /// `x`.
    pub fn multiply(&self, device: &dyn Device<T>, x: &[T]) -> Vec<T> {
        let outputs = self.weight.len() / self.inputs;
        let mut y = vec![T::zero(); x.len() / self.inputs * outputs];
        device.linear(&mut y, x, self.weight, self.inputs);
        if let Some(bias) = self.bias {
            device.bias(&mut y, bias);
        }
        y
    }

    /// Returns the all-reduced gradient of the input from `dy`, the gradient of this rank's
    /// outputs. `x` is the input that [`forward`](Self::forward) returned. The gradients of the
    /// layer are added to `gradients`.
    ///
    /// # Errors
    /// As the collective of the region.
    pub fn backward(
        &self,
        gradients: ColumnParallelLinear<&mut [T]>,
        device: &dyn Device<T>,
        region: &mut dyn ParallelRegion<T>,
        x: &[T],
        dy: &[T],
    ) -> Result<Vec<T>> {
        let dx = self.multiply_backward(gradients, device, x, dy);
        region.enter_backward(dx)
    }

    /// Returns this rank's term of the gradient of the input. The gradients of the layer are added
    /// to `gradients`.
    pub fn multiply_backward(
        &self,
        gradients: ColumnParallelLinear<&mut [T]>,
        device: &dyn Device<T>,
        x: &[T],
        dy: &[T],
    ) -> Vec<T> {
        if let Some(bias) = gradients.bias {
            device.bias_backward(bias, dy);
        }
        let mut dx = vec![T::zero(); x.len()];
        device.linear_backward(&mut dx, gradients.weight, dy, x, self.weight, self.inputs);
        dx
    }
}

//! A linear layer whose matrix is cut by inputs: *row parallel*.
//!
//! `y = x w^T + b`, with `w` of shape outputs x inputs. Each rank has some columns of `w` and the
//! inputs for these columns, which are its outputs of the column-parallel layer before
//! ([`crate::tensor_parallel::column`]). Its product is a term of every output, and an all-reduce
//! gives the output. The bias is added once, after the all-reduce.
//!
//! ```text
//!                    rank 0        rank 1           256 inputs, d = 64 outputs, 2 ranks, 512 tokens
//!   x             [512 x 128]   [512 x 128]         columns 0..128 and 128..256 of one process
//!   w^T           [ 128 x 64 ]  [ 128 x 64 ]        the whole matrix is 256 x 64
//!   x w^T         [512 x 64] +  [512 x 64]          summed over ranks
//!   y  [512 x 64]  the same on both ranks           plus b [64], which every rank has
//! ```
//!
//! # What is sharded
//! The matrix, by inputs. The bias is on every rank, and so is the result.
//!
//! # Which collective runs where
//! Forward one all-reduce of the result ([`ParallelRegion::leave`]). Backward none: every rank has
//! the gradient of the result ([`ParallelRegion::leave_backward`]), and each computes the gradient
//! of its own inputs.
//!
//! # Cost
//! `2 (p-1)/p * tokens * outputs` numbers a rank leave it forward: with the numbers above, 32,768.
//!
//! # Source
//! Shoeybi et al., "Megatron-LM" (2019), `RowParallelLinear` of its `tensor_parallel/layers.py`.

use crate::tensor::device::Device;
use crate::tensor::math::Real;
use crate::tensor_parallel::region::ParallelRegion;
use maypole::Result;

/// One rank's part of the layer, or of its gradients: `S` is a slice.
#[derive(Clone, Copy, Debug)]
pub struct RowParallelLinear<S> {
    /// This rank's columns of the matrix: a row for each output, each of `inputs` numbers.
    pub weight: S,
    /// One number for each output, the same on every rank, if the layer has a bias.
    pub bias: Option<S>,
    /// Numbers of a token before the layer that this rank has.
    pub inputs: usize,
}

impl<T: Real> RowParallelLinear<&[T]> {
    /// Multiplies, leaves the region, and adds the bias. Returns the output of this rank's tokens.
    ///
    /// # Errors
    /// As the collective of the region.
    pub fn forward(
        &self,
        device: &dyn Device<T>,
        region: &mut dyn ParallelRegion<T>,
        x: &[T],
    ) -> Result<Vec<T>> {
        let terms = self.multiply(device, x);
        let mut y = region.leave(terms)?;
        if let Some(bias) = self.bias {
            device.bias(&mut y, bias);
        }
        Ok(y)
    }

    /// Returns this rank's term of every output, without the bias.
    pub fn multiply(&self, device: &dyn Device<T>, x: &[T]) -> Vec<T> {
        let outputs = self.weight.len() / self.inputs;
        let mut y = vec![T::zero(); x.len() / self.inputs * outputs];
        device.linear(&mut y, x, self.weight, self.inputs);
        y
    }

    /// Returns the gradient of this rank's inputs from `dy`, the gradient of the output. `x` is the
    /// input of [`forward`](Self::forward). The gradients of the layer are added to `gradients`.
    ///
    /// # Errors
    /// As the collective of the region.
    pub fn backward(
        &self,
        gradients: RowParallelLinear<&mut [T]>,
        device: &dyn Device<T>,
        region: &mut dyn ParallelRegion<T>,
        x: &[T],
        dy: &[T],
    ) -> Result<Vec<T>> {
        if let Some(bias) = gradients.bias {
            device.bias_backward(bias, dy);
        }
        let dy = region.leave_backward(dy.to_vec())?;
        Ok(self.multiply_backward(gradients.weight, device, x, &dy))
    }

    /// [`backward`](Self::backward) within the region, without the bias. The gradient of the matrix
    /// is added to `gradient`.
    pub fn multiply_backward(
        &self,
        gradient: &mut [T],
        device: &dyn Device<T>,
        x: &[T],
        dy: &[T],
    ) -> Vec<T> {
        let mut dx = vec![T::zero(); x.len()];
        device.linear_backward(&mut dx, gradient, dy, x, self.weight, self.inputs);
        dx
    }
}

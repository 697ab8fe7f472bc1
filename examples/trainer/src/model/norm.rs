//! The norm before each part of a block: layer normalisation, or RMS normalisation where there is
//! no bias.

use crate::tensor::device::Device;
use crate::tensor::math::Real;
use crate::tensor::norm::NormInputs;

/// The tensors of a norm, or their gradients: `S` is a slice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Norm<S> {
    /// One number for each number of a token.
    pub(crate) weight: S,
    /// The same; a norm without it is [RMS normalisation](crate::tensor::rms_norm).
    pub(crate) bias: Option<S>,
}

impl<S> Norm<S> {
    /// Takes the weight, and the bias if it is `biased`, from the `tensors` of a unit.
    pub(crate) fn take(tensors: &mut impl Iterator<Item = S>, biased: bool) -> Self {
        let mut next = || tensors.next().expect("a norm has as many tensors as the layout says");
        Self { weight: next(), bias: biased.then(next) }
    }
}

impl<T: Real> Norm<&[T]> {
    /// The normalised rows, and the statistics of each: mean and `rstd`, or `rstd` alone.
    pub(crate) fn forward(&self, device: &dyn Device<T>, x: &[T]) -> (Vec<T>, Vec<T>) {
        let mut h = vec![T::zero(); x.len()];
        let rows = x.len() / self.weight.len();
        let Some(bias) = self.bias else {
            let mut stats = vec![T::zero(); rows];
            device.rms_norm(&mut h, &mut stats, x, self.weight);
            return (h, stats);
        };
        let mut stats = vec![T::zero(); 2 * rows];
        device.norm(&mut h, &mut stats, x, self.weight, bias);
        (h, stats)
    }

    /// Accumulates the gradients of `dh` in `dx` and `gradients`. `x` and `stats` are the input and
    /// the statistics of the forward pass.
    pub(crate) fn backward(
        &self,
        gradients: Norm<&mut [T]>,
        device: &dyn Device<T>,
        dx: &mut [T],
        dh: &[T],
        (x, stats): (&[T], &[T]),
    ) {
        let before = NormInputs { x, stats, w: self.weight };
        match gradients.bias {
            Some(db) => device.norm_backward(dx, gradients.weight, db, dh, before),
            None => device.rms_norm_backward(dx, gradients.weight, dh, before),
        }
    }
}

//! The traits that an axis of parallelism implements. The collectives of the axis run in their
//! methods.
//!
//! A single process uses [`Axes::single_rank`], which sends nothing. Tensor and sequence
//! parallelism replace the [`ParallelRegion`] and the [`Vocabulary`], context parallelism the
//! [`Attention`], expert parallelism the [`FeedForward`]. The code of block and model is the same
//! for all of them.

use crate::tensor::attention::Heads;
use crate::tensor::device::Device;
use crate::tensor::math::Real;
use crate::tensor_parallel::region::{ParallelRegion, SingleRank};
use crate::tensor_parallel::vocab::Vocabulary;
use maypole::Result;

/// Attention: how each token uses the keys and values of earlier tokens.
pub trait Attention<T: Real> {
    /// Returns the attended vectors of this rank's tokens and heads, rows of `heads.width()`
    /// numbers, and the buffers that the backward pass needs. A row of `qkv` is a token's q of all
    /// heads, then k, then v.
    ///
    /// # Errors
    /// As the collectives in it.
    fn forward(
        &mut self,
        device: &dyn Device<T>,
        heads: Heads,
        qkv: &[T],
    ) -> Result<(Vec<T>, Vec<Vec<T>>)> {
        let (y, probabilities) = device.attention(heads, qkv);
        Ok((y, vec![probabilities]))
    }

    /// Returns the gradient of `qkv` from `dy`, the gradient of the attended vectors. `y` and
    /// `kept` are the attended vectors and the buffers that [`forward`](Self::forward) returned.
    ///
    /// # Errors
    /// As the collectives in it.
    fn backward(
        &mut self,
        device: &dyn Device<T>,
        heads: Heads,
        qkv: &[T],
        (y, kept): (&[T], &[Vec<T>]),
        dy: &[T],
    ) -> Result<Vec<T>> {
        let _ = y;
        Ok(device.attention_backward(heads, qkv, &kept[0], dy))
    }
}

/// The feed-forward part of a block: a function of each token's vector alone.
pub trait FeedForward<T: Real> {
    /// Returns the vectors that are added to the residual stream, and the buffers that the backward
    /// pass needs. `h` are the normalised vectors, `width` numbers each; `p` are the parameters of
    /// this part.
    ///
    /// # Errors
    /// As the collectives in it.
    fn forward(
        &mut self,
        device: &dyn Device<T>,
        region: &mut dyn ParallelRegion<T>,
        p: &[&[T]],
        h: Vec<T>,
    ) -> Result<(Vec<T>, Vec<Vec<T>>)>;

    /// Returns the gradient of `h` from `dy`, the gradient of the result. `weights` are the
    /// parameters of this part and their gradients. The gradients of this pass are added to the
    /// latter. `kept` are the buffers that [`forward`](Self::forward) returned.
    ///
    /// # Errors
    /// As the collectives in it.
    fn backward(
        &mut self,
        device: &dyn Device<T>,
        region: &mut dyn ParallelRegion<T>,
        weights: (&[&[T]], &mut [&mut [T]]),
        kept: &[Vec<T>],
        dy: &[T],
    ) -> Result<Vec<T>>;
}

/// The implementation of each interface on one rank.
#[allow(missing_docs, reason = "each field is named after its trait")]
pub struct Axes<T> {
    pub region: Box<dyn ParallelRegion<T>>,
    pub attention: Box<dyn Attention<T>>,
    pub feed_forward: Box<dyn FeedForward<T>>,
    pub vocabulary: Box<dyn Vocabulary<T>>,
}

impl<T: Real> Attention<T> for SingleRank {}

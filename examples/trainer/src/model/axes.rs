//! The interfaces at which an axis of parallelism enters the model, where its collectives run.
//!
//! A single process has [`Axes::single_rank`], in which nothing happens. Tensor and sequence
//! parallelism bring other [`ParallelRegion`] and another [`Vocabulary`], context parallelism
//! another [`Attention`], expert parallelism another [`FeedForward`]. Block and model are the same
//! code in all of them.

use crate::model::config::Config;
use crate::model::feed_forward;
use crate::tensor::attention::Heads;
use crate::tensor::device::Device;
use crate::tensor::math::Real;
use crate::tensor_parallel::region::{ParallelRegion, SingleRank};
use crate::tensor_parallel::vocab::Vocabulary;
use maypole::Result;

/// Attention: how each token uses the keys and values of earlier tokens.
pub trait Attention<T: Real> {
    /// From q, k and v of this rank's tokens and heads to their attended vectors, and what the
    /// backward pass needs.
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

    /// The gradient of `qkv` from that of the attended vectors, `dy`; `kept` is what forward kept
    /// and `y` what it gave.
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
    /// From the normalised vectors `h` (`width` numbers each) to what is added to the residual
    /// stream, and what the backward pass needs. `p` are the parameters of this part.
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

    /// The gradient of `h` from that of the result, `dy`. `weights` are the parameters of this part
    /// and their gradients, to which is added.
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

impl<T: Real> Axes<T> {
    /// One rank has the whole model of `config`, without experts: nothing is sent.
    pub fn single_rank(config: &Config) -> Self {
        let region = Box::new(SingleRank);
        let attention = Box::new(SingleRank);
        let feed_forward = feed_forward::dense(config);
        let vocabulary = Box::new(SingleRank);
        Self { region, attention, feed_forward, vocabulary }
    }
}

impl<T: Real> Attention<T> for SingleRank {}

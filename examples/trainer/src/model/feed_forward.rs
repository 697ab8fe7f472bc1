//! The feed-forward part of a GPT's block: a matrix to four times the width, GELU, and a matrix back.
//!
//! `y = gelu(h up^T + up_bias) down^T + down_bias`. The first matrix is column parallel and the
//! second row parallel, so a rank of a tensor group has some of the hidden numbers. GELU works on
//! each hidden number alone. The second matrix gives a term of `y`, and terms are summed over
//! ranks.

use crate::model::axes::{Axes, FeedForward};
use crate::model::config::{Architecture, Config};
use crate::model::gated::GatedFeedForward;
use crate::tensor::device::Device;
use crate::tensor::math::Real;
use crate::tensor_parallel::column::ColumnParallelLinear;
use crate::tensor_parallel::region::{ParallelRegion, SingleRank};
use crate::tensor_parallel::row::RowParallelLinear;
use maypole::Result;
use std::ops::Deref;

/// The number of tensors of one feed-forward part.
pub const TENSORS: usize = 4;

/// One feed-forward part that every token goes through.
#[derive(Clone, Copy, Debug)]
pub struct DenseFeedForward;

/// The feed-forward part of a block without experts.
pub fn dense<T: Real>(config: &Config) -> Box<dyn FeedForward<T>> {
    match config.architecture {
        Architecture::Gpt => Box::new(DenseFeedForward),
        Architecture::Llama { .. } => Box::new(GatedFeedForward { width: config.width }),
    }
}

impl<T: Real> Axes<T> {
    /// One rank has the whole model of `config`, without experts: nothing is sent.
    pub fn single_rank(config: &Config) -> Self {
        let region = Box::new(SingleRank);
        let attention = Box::new(SingleRank);
        let feed_forward = dense(config);
        let vocabulary = Box::new(SingleRank);
        Self { region, attention, feed_forward, vocabulary }
    }
}

impl<T: Real> FeedForward<T> for DenseFeedForward {
    fn forward(
        &mut self,
        device: &dyn Device<T>,
        region: &mut dyn ParallelRegion<T>,
        p: &[&[T]],
        h: Vec<T>,
    ) -> Result<(Vec<T>, Vec<Vec<T>>)> {
        let layers = FeedForwardLayers::new(p.iter().copied());
        let (h, before) = layers.up.forward(device, region, h)?;
        let after = gelu(device, &before);
        let y = layers.down.forward(device, region, &after)?;
        Ok((y, vec![h, before, after]))
    }

    fn backward(
        &mut self,
        device: &dyn Device<T>,
        region: &mut dyn ParallelRegion<T>,
        (p, g): (&[&[T]], &mut [&mut [T]]),
        kept: &[Vec<T>],
        dy: &[T],
    ) -> Result<Vec<T>> {
        let [h, before, after] = kept else { unreachable!("forward keeps three") };
        let layers = FeedForwardLayers::new(p.iter().copied());
        let gradients = FeedForwardLayers::new(g.iter_mut().map(|g| &mut **g));
        let mut dhidden = layers.down.backward(gradients.down, device, region, after, dy)?;
        device.gelu_backward(&mut dhidden, before);
        layers.up.backward(gradients.up, device, region, h, &dhidden)
    }
}

/// The two linear layers of a feed-forward part, or their gradients.
#[derive(Debug)]
pub struct FeedForwardLayers<S> {
    /// From the width to the hidden numbers.
    pub up: ColumnParallelLinear<S>,
    /// From the hidden numbers to the width.
    pub down: RowParallelLinear<S>,
}

impl<T, S: Deref<Target = [T]>> FeedForwardLayers<S> {
    /// The layers of these [`TENSORS`] tensors, in the order of the flat buffer, or of their gradients.
    ///
    /// # Panics
    /// If there are fewer tensors.
    pub fn new(tensors: impl IntoIterator<Item = S>) -> Self {
        let mut tensors = tensors.into_iter();
        let mut next = || tensors.next().expect("a feed-forward part has four tensors");
        let (up, up_bias, down, down_bias) = (next(), next(), next(), next());
        let (width, hidden) = (down_bias.len(), up_bias.len());
        Self {
            up: ColumnParallelLinear { weight: up, bias: Some(up_bias), inputs: width },
            down: RowParallelLinear { weight: down, bias: Some(down_bias), inputs: hidden },
        }
    }
}

impl<T: Real> FeedForwardLayers<&[T]> {
    /// Runs both layers, within a region that was entered. Returns this rank's terms of the output,
    /// without the last bias, and the buffers for [`backward`](Self::backward): the input, and the
    /// hidden numbers before and after GELU.
    pub fn forward(&self, device: &dyn Device<T>, h: Vec<T>) -> (Vec<T>, Vec<Vec<T>>) {
        let before = self.up.multiply(device, &h);
        let after = gelu(device, &before);
        let y = self.down.multiply(device, &after);
        (y, vec![h, before, after])
    }

    /// Returns this rank's terms of the gradient of the input. The gradients of all tensors but the
    /// last bias are added to `gradients`.
    pub fn backward(
        &self,
        gradients: FeedForwardLayers<&mut [T]>,
        device: &dyn Device<T>,
        kept: &[Vec<T>],
        dy: &[T],
    ) -> Vec<T> {
        let [h, before, after] = kept else { unreachable!("forward keeps three") };
        let mut dhidden = self.down.multiply_backward(gradients.down.weight, device, after, dy);
        device.gelu_backward(&mut dhidden, before);
        self.up.multiply_backward(gradients.up, device, h, &dhidden)
    }
}

fn gelu<T: Real>(device: &dyn Device<T>, before: &[T]) -> Vec<T> {
    let mut after = vec![T::zero(); before.len()];
    device.gelu(&mut after, before);
    after
}

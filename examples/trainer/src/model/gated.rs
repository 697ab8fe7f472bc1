//! The gated feed-forward part of a Llama's block: `y = (silu(h gate^T) * (h up^T)) down^T`.
//!
//! As in a GPT's part ([`feed_forward`](crate::model::feed_forward)) the matrices before the
//! nonlinearity are column parallel and the one after it is row parallel. A rank of a tensor group
//! has the same hidden numbers of both, `gate` and `up`. There are no biases.

use crate::model::axes::FeedForward;
use crate::tensor::device::Device;
use crate::tensor::math::Real;
use crate::tensor_parallel::column::ColumnParallelLinear;
use crate::tensor_parallel::region::ParallelRegion;
use crate::tensor_parallel::row::RowParallelLinear;
use maypole::Result;
use std::ops::Deref;

/// The gated part, which every token goes through.
#[derive(Clone, Copy, Debug)]
pub struct GatedFeedForward {
    /// Numbers of a token's vector.
    pub width: usize,
}

impl<T: Real> FeedForward<T> for GatedFeedForward {
    fn forward(
        &mut self,
        device: &dyn Device<T>,
        region: &mut dyn ParallelRegion<T>,
        p: &[&[T]],
        h: Vec<T>,
    ) -> Result<(Vec<T>, Vec<Vec<T>>)> {
        let layers = GatedLayers::new(p.iter().copied(), self.width);
        let h = region.enter(h)?;
        let gate = layers.gate.multiply(device, &h);
        let up = layers.up.multiply(device, &h);
        let mut after = vec![T::zero(); gate.len()];
        device.swiglu(&mut after, &gate, &up);
        let y = layers.down.forward(device, region, &after)?;
        Ok((y, vec![h, gate, up, after]))
    }

    fn backward(
        &mut self,
        device: &dyn Device<T>,
        region: &mut dyn ParallelRegion<T>,
        (p, g): (&[&[T]], &mut [&mut [T]]),
        kept: &[Vec<T>],
        dy: &[T],
    ) -> Result<Vec<T>> {
        let [h, gate, up, after] = kept else { unreachable!("forward keeps four") };
        let layers = GatedLayers::new(p.iter().copied(), self.width);
        let gradients = GatedLayers::new(g.iter_mut().map(|g| &mut **g), self.width);
        let mut dup = layers.down.backward(gradients.down, device, region, after, dy)?;
        let mut dgate = vec![T::zero(); dup.len()];
        device.swiglu_backward(&mut dgate, &mut dup, gate, up);
        let mut dh = layers.gate.multiply_backward(gradients.gate, device, h, &dgate);
        let term = layers.up.multiply_backward(gradients.up, device, h, &dup);
        device.add(&mut dh, &term);
        region.enter_backward(dh)
    }
}

/// The three linear layers of the part, or their gradients: `S` is a slice.
struct GatedLayers<S> {
    gate: ColumnParallelLinear<S>,
    up: ColumnParallelLinear<S>,
    down: RowParallelLinear<S>,
}

impl<T, S: Deref<Target = [T]>> GatedLayers<S> {
    /// The layers of these tensors, in the order of the flat buffer, for tokens of `width` numbers.
    fn new(mut tensors: impl Iterator<Item = S>, width: usize) -> Self {
        let mut next = || tensors.next().expect("a gated part has three tensors");
        let gate = ColumnParallelLinear { weight: next(), bias: None, inputs: width };
        let up = ColumnParallelLinear { weight: next(), bias: None, inputs: width };
        let down = next();
        let inputs = down.len() / width;
        Self { gate, up, down: RowParallelLinear { weight: down, bias: None, inputs } }
    }
}

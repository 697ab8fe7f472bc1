//! The way into attention: queries, keys and values of each token.
//!
//! A GPT has one matrix for all three, with a bias. A Llama has a matrix for each: those of keys and
//! values have fewer outputs ([`grouped`]), and queries and keys are turned by their positions
//! ([`rotary`](crate::tensor::rotary)). Either way the result is what attention takes, a row of q of
//! all heads, then k, then v. All matrices are column parallel: a rank of a tensor group has whole
//! heads of each, and the heads of keys that its queries use.

use crate::model::config::Architecture;
use crate::tensor::attention::Heads;
use crate::tensor::device::Device;
use crate::tensor::grouped;
use crate::tensor::math::Real;
use crate::tensor::rotary::{Rotation, Turn};
use crate::tensor_parallel::column::ColumnParallelLinear;
use crate::tensor_parallel::region::ParallelRegion;
use maypole::Result;

/// The parameters of attention in a block, without its tensors.
#[derive(Clone, Copy, Debug)]
pub struct AttentionShape<'a> {
    /// What the block is made of.
    pub architecture: Architecture,
    /// Heads of this rank.
    pub heads: Heads,
    /// The position of each token in its row.
    pub positions: &'a [u32],
}

/// The layers that give queries, keys and values, or their gradients: `S` is a slice.
#[derive(Debug)]
pub(crate) enum Queries<S> {
    /// One matrix of as many queries as keys and values.
    Fused(ColumnParallelLinear<S>),
    /// Those of queries, of keys, and of values, turned by positions.
    Grouped([ColumnParallelLinear<S>; 3]),
}

impl<T: Real> Queries<&[T]> {
    /// Enters the region. Returns the input of all tokens, which the backward pass needs, and q, k
    /// and v of this rank's heads.
    ///
    /// # Errors
    /// As the collective of the region.
    pub(crate) fn forward(
        &self,
        device: &dyn Device<T>,
        region: &mut dyn ParallelRegion<T>,
        shape: AttentionShape<'_>,
        h: Vec<T>,
    ) -> Result<(Vec<T>, Vec<T>)> {
        let layers = match self {
            Self::Fused(layer) => return layer.forward(device, region, h),
            Self::Grouped(layers) => layers,
        };
        let h = region.enter(h)?;
        let [mut q, mut k, v] = layers.map(|layer| layer.multiply(device, &h));
        let rotation = Rotation::new(shape.positions, shape.heads.size);
        device.turn(&mut q, &rotation, Turn::Forth);
        device.turn(&mut k, &rotation, Turn::Forth);
        let qkv = grouped::spread([&q, &k, &v], shape.heads.width(), shape.heads.size);
        Ok((h, qkv))
    }

    /// The gradient of the input from `dqkv`. `h` is the input that [`forward`](Self::forward)
    /// returned; gradients of the layers are added to `gradients`.
    ///
    /// # Errors
    /// As the collective of the region.
    pub(crate) fn backward(
        &self,
        gradients: Queries<&mut [T]>,
        device: &dyn Device<T>,
        region: &mut dyn ParallelRegion<T>,
        shape: AttentionShape<'_>,
        (h, dqkv): (&[T], &[T]),
    ) -> Result<Vec<T>> {
        match (self, gradients) {
            (Self::Fused(layer), Queries::Fused(gradients)) => {
                layer.backward(gradients, device, region, h, dqkv)
            }
            (Self::Grouped(layers), Queries::Grouped(gradients)) => {
                let dparts = unspread(layers, device, shape, dqkv);
                let mut dh = vec![T::zero(); h.len()];
                for ((layer, gradients), dy) in layers.iter().zip(gradients).zip(&dparts) {
                    let term = layer.multiply_backward(gradients, device, h, dy);
                    device.add(&mut dh, &term);
                }
                region.enter_backward(dh)
            }
            _ => unreachable!("gradients have the form of their tensors"),
        }
    }
}

/// The gradients of the outputs of `layers`, from those of q, k and v in attention's layout.
fn unspread<T: Real>(
    layers: &[ColumnParallelLinear<&[T]>; 3],
    device: &dyn Device<T>,
    shape: AttentionShape<'_>,
    dqkv: &[T],
) -> [Vec<T>; 3] {
    let [_, keys, _] = layers;
    let narrow = keys.weight.len() / keys.inputs;
    let size = shape.heads.size;
    let [mut dq, mut dk, mut dv] =
        grouped::spread_backward(dqkv, shape.heads.width(), narrow, size);
    let rotation = Rotation::new(shape.positions, size);
    device.turn(&mut dq, &rotation, Turn::Back);
    device.turn(&mut dk, &rotation, Turn::Back);
    device.keep(&mut dv);
    [dq, dk, dv]
}

//! A block of the model: attention and a feed-forward part, each applied to the normalised residual
//! stream.
//!
//! ```text
//! x ----------------------------------+-----------------------------------------+--> y
//!   \-> norm1 -> [q k v -> attention -> projection] -/ \-> norm2 -> [feed-forward] -/
//! ```
//!
//! Brackets are the region of [`Axes`]. Within them a rank of a tensor group has some of the heads
//! and of the hidden numbers. Outside, all ranks have the same vectors; with sequence parallelism
//! each has those of some tokens. All buffers that are kept for the backward pass are fields of
//! [`BlockActivations`]: this struct *is* the activation memory of a block.

use crate::model::axes::Axes;
use crate::model::config::Architecture;
use crate::model::norm::Norm;
use crate::model::queries::{AttentionShape, Queries};
use crate::tensor::device::Device;
use crate::tensor::math::Real;
use crate::tensor_parallel::column::ColumnParallelLinear;
use crate::tensor_parallel::row::RowParallelLinear;
use maypole::Result;

/// The activations that the backward pass of a block needs from its forward pass.
#[derive(Debug)]
pub struct BlockActivations<T> {
    /// The input, from which the rest can be computed again.
    pub x: Vec<T>,
    stats1: Vec<T>,
    h1: Vec<T>,
    qkv: Vec<T>,
    y: Vec<T>,
    x2: Vec<T>,
    stats2: Vec<T>,
    /// The buffers of the attention.
    pub attention: Vec<Vec<T>>,
    feed_forward: Vec<Vec<T>>,
}

impl<T> BlockActivations<T> {
    /// All buffers, the input first.
    pub fn into_list(self) -> Vec<Vec<T>> {
        let Self { x, stats1, h1, qkv, y, x2, stats2, attention, feed_forward } = self;
        let own = [x, stats1, h1, qkv, y, x2, stats2];
        own.into_iter().chain(attention).chain(feed_forward).collect()
    }

    /// The buffers of [`into_list`](Self::into_list), of which `attention` are those of the attention.
    ///
    /// # Panics
    /// If there are fewer buffers than a block has.
    pub fn of_list(mut list: Vec<Vec<T>>, attention: usize) -> Self {
        let feed_forward = list.split_off(7 + attention);
        let attention = list.split_off(7);
        let own = list.try_into().ok().expect("a block has seven buffers of its own");
        let [x, stats1, h1, qkv, y, x2, stats2] = own;
        Self { x, stats1, h1, qkv, y, x2, stats2, attention, feed_forward }
    }
}

/// The tensors of a block without those of its feed-forward part, or their gradients: `S` is a
/// slice.
struct BlockTensors<S> {
    norm1: Norm<S>,
    queries: Queries<S>,
    projection: RowParallelLinear<S>,
    norm2: Norm<S>,
}

/// Tensors of a block before those of its feed-forward part.
fn before_feed_forward(architecture: Architecture) -> usize {
    match architecture {
        Architecture::Gpt => 8,
        Architecture::Llama { .. } => 6,
    }
}

impl<S> BlockTensors<S> {
    /// The `tensors` of a block, in the order of the flat buffer, for tokens of `width` numbers.
    fn new(mut tensors: impl Iterator<Item = S>, shape: AttentionShape<'_>, width: usize) -> Self {
        let biased = shape.architecture == Architecture::Gpt;
        let norm1 = Norm::take(&mut tensors, biased);
        let mut next = || tensors.next().expect("a block has as many tensors as the layout says");
        let mut column =
            || ColumnParallelLinear { weight: next(), bias: biased.then(&mut next), inputs: width };
        let queries = match biased {
            true => Queries::Fused(column()),
            false => Queries::Grouped([(); 3].map(|()| column())),
        };
        let inputs = shape.heads.width();
        let projection = RowParallelLinear { weight: next(), bias: biased.then(&mut next), inputs };
        Self { norm1, queries, projection, norm2: Norm::take(&mut tensors, biased) }
    }
}

/// Returns the block's result and the activations that its backward pass needs. `x` is the input,
/// rows of `width` numbers; the result has the same shape. `p` are the tensors of the block.
///
/// # Errors
/// As the collectives of `axes`.
pub fn forward<T: Real>(
    device: &dyn Device<T>,
    axes: &mut Axes<T>,
    shape: AttentionShape<'_>,
    p: &[&[T]],
    x: Vec<T>,
) -> Result<(Vec<T>, BlockActivations<T>)> {
    let (own, feed_forward) = p.split_at(before_feed_forward(shape.architecture));
    let w = BlockTensors::new(own.iter().copied(), shape, own[0].len());
    let (h1, stats1) = w.norm1.forward(device, &x);
    let (h1, qkv) = w.queries.forward(device, &mut *axes.region, shape, h1)?;
    let (y, attention) = axes.attention.forward(device, shape.heads, &qkv)?;
    let mut x2 = w.projection.forward(device, &mut *axes.region, &y)?;
    device.add(&mut x2, &x);

    let (h2, stats2) = w.norm2.forward(device, &x2);
    let (mut out, feed_forward) =
        axes.feed_forward.forward(device, &mut *axes.region, feed_forward, h2)?;
    device.add(&mut out, &x2);
    Ok((out, BlockActivations { x, stats1, h1, qkv, y, x2, stats2, attention, feed_forward }))
}

/// Returns the gradient of the block's input from `dx`, the gradient of its result. `p` are the
/// tensors of the block; their gradients are added to `g`.
///
/// # Errors
/// As the collectives of `axes`.
pub fn backward<T: Real>(
    device: &dyn Device<T>,
    axes: &mut Axes<T>,
    shape: AttentionShape<'_>,
    (p, g): (&[&[T]], &mut [&mut [T]]),
    kept: &BlockActivations<T>,
    mut dx: Vec<T>,
) -> Result<Vec<T>> {
    let count = before_feed_forward(shape.architecture);
    let (own, feed_forward) = p.split_at(count);
    let (own_gradients, dfeed_forward) = g.split_at_mut(count);
    let width = own[0].len();
    let w = BlockTensors::new(own.iter().copied(), shape, width);
    let d = BlockTensors::new(own_gradients.iter_mut().map(|g| &mut **g), shape, width);
    let weights = (feed_forward, dfeed_forward);
    let region = &mut *axes.region;
    let dh2 = axes.feed_forward.backward(device, region, weights, &kept.feed_forward, &dx)?;
    w.norm2.backward(d.norm2, device, &mut dx, &dh2, (&kept.x2, &kept.stats2));

    let dy = w.projection.backward(d.projection, device, region, &kept.y, &dx)?;
    let attended = (&*kept.y, &*kept.attention);
    let dqkv = axes.attention.backward(device, shape.heads, &kept.qkv, attended, &dy)?;
    let dh1 = w.queries.backward(d.queries, device, region, shape, (&kept.h1, &dqkv))?;
    w.norm1.backward(d.norm1, device, &mut dx, &dh1, (&kept.x, &kept.stats1));
    Ok(dx)
}

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

/// The activations that the backward pass of a block needs from its forward pass. `V` is a buffer:
/// a vector, or [`PackedNumbers`](crate::tensor::packed::PackedNumbers) until the backward pass.
#[derive(Debug)]
pub struct BlockActivations<V> {
    x: V,
    stats1: V,
    h1: V,
    qkv: V,
    attention: Vec<V>,
    y: V,
    x2: V,
    stats2: V,
    feed_forward: Vec<V>,
}

impl<V> BlockActivations<V> {
    /// Returns the activations with every buffer as `each` makes it.
    pub fn map<W>(self, each: impl Fn(V) -> W) -> BlockActivations<W> {
        let Self { x, stats1, h1, qkv, attention, y, x2, stats2, feed_forward } = self;
        let [x, stats1, h1, qkv, y, x2, stats2] = [x, stats1, h1, qkv, y, x2, stats2].map(&each);
        let list = |all: Vec<V>| all.into_iter().map(&each).collect();
        let [attention, feed_forward] = [attention, feed_forward].map(list);
        BlockActivations { x, stats1, h1, qkv, attention, y, x2, stats2, feed_forward }
    }

    /// The input of the block, from which the rest can be computed again.
    pub fn input(&self) -> &V {
        &self.x
    }

    /// The same without the rest.
    pub fn into_input(self) -> V {
        self.x
    }

    /// All buffers.
    pub fn all(&self) -> impl Iterator<Item = &V> {
        let Self { x, stats1, h1, qkv, attention, y, x2, stats2, feed_forward } = self;
        [x, stats1, h1, qkv, y, x2, stats2].into_iter().chain(attention).chain(feed_forward)
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
) -> Result<(Vec<T>, BlockActivations<Vec<T>>)> {
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
    Ok((out, BlockActivations { x, stats1, h1, qkv, attention, y, x2, stats2, feed_forward }))
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
    kept: &BlockActivations<Vec<T>>,
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

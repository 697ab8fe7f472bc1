//! A block of the model: attention and a feed-forward part, each applied to the normalised residual
//! stream.
//!
//! ```text
//! x ----------------------------------+-----------------------------------------+--> y
//!   \-> norm1 -> [qkv -> attention -> projection] -/ \-> norm2 -> [feed-forward] -/
//! ```
//!
//! Brackets are the region of [`Axes`]. Within them a rank of a tensor group has some of the heads
//! and of the hidden numbers. Outside, all ranks have the same vectors; with sequence parallelism
//! each has those of some tokens. All buffers that are kept for the backward pass are fields of
//! [`BlockActivations`]: this struct *is* the activation memory of a block.

use crate::model::axes::Axes;
use crate::tensor::attention::Heads;
use crate::tensor::device::Device;
use crate::tensor::math::Real;
use crate::tensor::norm::NormInputs;
use crate::tensor::packed::PackedNumbers;
use crate::tensor_parallel::column::ColumnParallelLinear;
use crate::tensor_parallel::row::RowParallelLinear;
use maypole::Result;

/// The activations that the backward pass of a block needs from its forward pass.
#[derive(Debug)]
pub struct BlockActivations<T> {
    x: Vec<T>,
    stats1: Vec<T>,
    h1: Vec<T>,
    qkv: Vec<T>,
    attention: Vec<Vec<T>>,
    y: Vec<T>,
    x2: Vec<T>,
    stats2: Vec<T>,
    feed_forward: Vec<Vec<T>>,
}

/// [`BlockActivations`], as the device stores them until the backward pass.
#[derive(Debug)]
pub struct PackedBlock<T> {
    /// The seven fields of [`BlockActivations`] that are single buffers, in the order of the
    /// fields.
    single: [PackedNumbers<T>; 7],
    attention: Vec<PackedNumbers<T>>,
    feed_forward: Vec<PackedNumbers<T>>,
}

impl<T: Real> PackedBlock<T> {
    /// Returns the activations, equal to the bit to those that were packed.
    pub fn unpack(self) -> BlockActivations<T> {
        let [x, stats1, h1, qkv, y, x2, stats2] = self.single.map(PackedNumbers::unpack);
        let list =
            |all: Vec<PackedNumbers<T>>| all.into_iter().map(PackedNumbers::unpack).collect();
        let [attention, feed_forward] = [self.attention, self.feed_forward].map(list);
        BlockActivations { x, stats1, h1, qkv, attention, y, x2, stats2, feed_forward }
    }

    /// The input of the block.
    pub fn input(&self) -> &PackedNumbers<T> {
        &self.single[0]
    }

    /// The bytes of all activations.
    pub fn bytes(&self) -> usize {
        let all = self.single.iter().chain(&self.attention).chain(&self.feed_forward);
        all.map(PackedNumbers::bytes).sum()
    }
}

impl<T: Real> BlockActivations<T> {
    /// The activations as `device` stores them.
    pub fn pack(self, device: &dyn Device<T>) -> PackedBlock<T> {
        let Self { x, stats1, h1, qkv, attention, y, x2, stats2, feed_forward } = self;
        let pack = |numbers: Vec<T>| device.pack(numbers);
        PackedBlock {
            single: [x, stats1, h1, qkv, y, x2, stats2].map(pack),
            attention: attention.into_iter().map(pack).collect(),
            feed_forward: feed_forward.into_iter().map(pack).collect(),
        }
    }

    /// The block's input alone, from which the rest can be computed again.
    pub fn into_input(self) -> Vec<T> {
        self.x
    }
}

/// The tensors of a block, or their gradients. `F` are the tensors of its feed-forward part.
struct BlockTensors<S, F> {
    norm1: [S; 2],
    qkv: ColumnParallelLinear<S>,
    projection: RowParallelLinear<S>,
    norm2: [S; 2],
    feed_forward: F,
}

impl<'a, 'b, T> BlockTensors<&'a [T], &'b [&'a [T]]> {
    /// The `tensors` of a block of which this rank has `heads`, in the order of the flat buffer.
    fn new(tensors: &'b [&'a [T]], heads: Heads) -> Self {
        let &[w1, b1, qkv, qkv_bias, projection, bias, w2, b2, ref feed_forward @ ..] = tensors
        else {
            unreachable!("a block has eight tensors and those of its feed-forward part")
        };
        let width = w1.len();
        Self {
            norm1: [w1, b1],
            qkv: ColumnParallelLinear { weight: qkv, bias: Some(qkv_bias), inputs: width },
            projection: RowParallelLinear { weight: projection, bias, inputs: heads.width() },
            norm2: [w2, b2],
            feed_forward,
        }
    }
}

impl<'a, 'b, T> BlockTensors<&'b mut [T], &'b mut [&'a mut [T]]> {
    /// [`new`](BlockTensors::new) for gradients, which are written.
    fn of_gradients(tensors: &'b mut [&'a mut [T]], heads: Heads) -> Self {
        let [w1, b1, qkv, qkv_bias, projection, bias, w2, b2, feed_forward @ ..] = tensors else {
            unreachable!("a block has eight tensors and those of its feed-forward part")
        };
        let width = w1.len();
        Self {
            norm1: [w1, b1],
            qkv: ColumnParallelLinear { weight: qkv, bias: Some(qkv_bias), inputs: width },
            projection: RowParallelLinear { weight: projection, bias, inputs: heads.width() },
            norm2: [w2, b2],
            feed_forward,
        }
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
    heads: Heads,
    p: &[&[T]],
    x: Vec<T>,
) -> Result<(Vec<T>, BlockActivations<T>)> {
    let w = BlockTensors::new(p, heads);
    let (h1, stats1) = normalise(device, &x, w.norm1);
    let (h1, qkv) = w.qkv.forward(device, &mut *axes.region, h1)?;
    let (y, attention) = axes.attention.forward(device, heads, &qkv)?;
    let mut x2 = w.projection.forward(device, &mut *axes.region, &y)?;
    device.add(&mut x2, &x);

    let (h2, stats2) = normalise(device, &x2, w.norm2);
    let (mut out, feed_forward) =
        axes.feed_forward.forward(device, &mut *axes.region, w.feed_forward, h2)?;
    device.add(&mut out, &x2);
    Ok((out, BlockActivations { x, stats1, h1, qkv, attention, y, x2, stats2, feed_forward }))
}

/// Returns the normalised rows of `x`, and the mean and `rstd` of each row.
pub(crate) fn normalise<T: Real>(
    device: &dyn Device<T>,
    x: &[T],
    [w, b]: [&[T]; 2],
) -> (Vec<T>, Vec<T>) {
    let mut h = vec![T::zero(); x.len()];
    let mut stats = vec![T::zero(); 2 * x.len() / w.len()];
    device.norm(&mut h, &mut stats, x, w, b);
    (h, stats)
}

/// Returns the gradient of the block's input from `dx`, the gradient of its result. `p` are the
/// tensors of the block; their gradients are added to `g`.
///
/// # Errors
/// As the collectives of `axes`.
pub fn backward<T: Real>(
    device: &dyn Device<T>,
    axes: &mut Axes<T>,
    heads: Heads,
    (p, g): (&[&[T]], &mut [&mut [T]]),
    kept: &BlockActivations<T>,
    mut dx: Vec<T>,
) -> Result<Vec<T>> {
    let w = BlockTensors::new(p, heads);
    let d = BlockTensors::of_gradients(g, heads);
    let feed_forward = (w.feed_forward, d.feed_forward);
    let region = &mut *axes.region;
    let dh2 = axes.feed_forward.backward(device, region, feed_forward, &kept.feed_forward, &dx)?;
    let before = NormInputs { x: &kept.x2, stats: &kept.stats2, w: w.norm2[0] };
    let [dw, db] = d.norm2;
    device.norm_backward(&mut dx, dw, db, &dh2, before);

    let dy = w.projection.backward(d.projection, device, region, &kept.y, &dx)?;
    let dqkv =
        axes.attention.backward(device, heads, &kept.qkv, (&kept.y, &kept.attention), &dy)?;
    let dh1 = w.qkv.backward(d.qkv, device, region, &kept.h1, &dqkv)?;
    let before = NormInputs { x: &kept.x, stats: &kept.stats1, w: w.norm1[0] };
    let [dw, db] = d.norm1;
    device.norm_backward(&mut dx, dw, db, &dh1, before);
    Ok(dx)
}

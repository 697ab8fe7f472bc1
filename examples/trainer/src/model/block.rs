//! A block of the model: attention and a feed-forward part, each on what a norm leaves of the
//! residual stream.
//!
//! ```text
//! x ----------------------------------+-----------------------------------------+--> y
//!   \-> norm1 -> [qkv -> attention -> projection] -/ \-> norm2 -> [feed-forward] -/
//! ```
//!
//! Brackets are the region of [`Axes`]: within them a rank of a tensor group has some heads and
//! some hidden numbers, outside all ranks have the same (or, with sequence parallelism, each some
//! tokens). Everything kept for the backward pass is a field of [`BlockActivations`]: this struct
//! *is* the activation memory of a block.

use crate::model::axes::Axes;
use crate::tensor::attention::Heads;
use crate::tensor::device::Device;
use crate::tensor::math::{Real, take, take_mut};
use crate::tensor::norm::NormInputs;
use maypole::Result;

/// What the backward pass of a block needs of its forward pass.
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

impl<T> BlockActivations<T> {
    /// Bytes of it.
    pub fn bytes(&self) -> usize {
        let single = [&self.x, &self.stats1, &self.h1, &self.qkv, &self.y, &self.x2, &self.stats2];
        let all = single.into_iter().chain(&self.attention).chain(&self.feed_forward);
        all.map(|buffer| size_of_val(&**buffer)).sum()
    }

    /// The block's input alone, from which the rest can be computed again.
    pub fn into_input(self) -> Vec<T> {
        self.x
    }
}

/// The parameters of a block, or their gradients, by name. `inner` numbers of q, of k and of v are
/// here.
struct BlockTensors<S> {
    norm1: [S; 2],
    qkv: [S; 2],
    projection: [S; 2],
    norm2: [S; 2],
    feed_forward: S,
}

/// How many numbers each has, in the order of the flat buffer; the feed-forward part is the rest.
fn lengths(width: usize, inner: usize) -> [usize; 8] {
    [width, width, 3 * inner * width, 3 * inner, inner * width, width, width, width]
}

fn tensors<T>(mut p: &[T], width: usize, inner: usize) -> BlockTensors<&[T]> {
    let [a, b, c, d, e, f, g, h] = lengths(width, inner).map(|len| take(&mut p, len));
    BlockTensors { norm1: [a, b], qkv: [c, d], projection: [e, f], norm2: [g, h], feed_forward: p }
}

fn tensors_mut<T>(mut p: &mut [T], width: usize, inner: usize) -> BlockTensors<&mut [T]> {
    let [a, b, c, d, e, f, g, h] = lengths(width, inner).map(|len| take_mut(&mut p, len));
    BlockTensors { norm1: [a, b], qkv: [c, d], projection: [e, f], norm2: [g, h], feed_forward: p }
}

/// The block's result from its input `x`, rows of `width` numbers, and what the backward pass
/// needs.
///
/// # Errors
/// As the collectives of `axes`.
pub fn forward<T: Real>(
    device: &dyn Device<T>,
    axes: &mut Axes<T>,
    heads: Heads,
    width: usize,
    p: &[T],
    x: Vec<T>,
) -> Result<(Vec<T>, BlockActivations<T>)> {
    let w = tensors(p, width, heads.width());
    let (h1, stats1) = normalise(device, &x, w.norm1);
    let h1 = axes.region.enter(h1)?;
    let mut qkv = vec![T::zero(); h1.len() / width * 3 * heads.width()];
    device.linear(&mut qkv, &h1, w.qkv[0], width);
    device.bias(&mut qkv, w.qkv[1]);
    let (y, attention) = axes.attention.forward(device, heads, &qkv)?;
    let mut x2 = vec![T::zero(); h1.len()];
    device.linear(&mut x2, &y, w.projection[0], heads.width());
    let mut x2 = axes.region.leave(x2)?;
    device.bias(&mut x2, w.projection[1]);
    device.add(&mut x2, &x);

    let (h2, stats2) = normalise(device, &x2, w.norm2);
    let (mut out, feed_forward) =
        axes.feed_forward.forward(device, &mut *axes.region, width, w.feed_forward, h2)?;
    device.add(&mut out, &x2);
    Ok((out, BlockActivations { x, stats1, h1, qkv, attention, y, x2, stats2, feed_forward }))
}

/// The normalised rows, and the mean and `rstd` of each.
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

/// The gradient of the block's input from that of its result, `dx`; gradients of the parameters are
/// added to `g`.
///
/// # Errors
/// As the collectives of `axes`.
pub fn backward<T: Real>(
    device: &dyn Device<T>,
    axes: &mut Axes<T>,
    heads: Heads,
    (p, g): (&[T], &mut [T]),
    kept: &BlockActivations<T>,
    mut dx: Vec<T>,
) -> Result<Vec<T>> {
    let width = kept.x.len() * 2 / kept.stats1.len();
    let w = tensors(p, width, heads.width());
    let d = tensors_mut(g, width, heads.width());
    let feed = (w.feed_forward, d.feed_forward);
    let dh2 = axes.feed_forward.backward(
        device,
        &mut *axes.region,
        width,
        feed,
        &kept.feed_forward,
        &dx,
    )?;
    let [dw, db] = d.norm2;
    device.norm_backward(
        &mut dx,
        dw,
        db,
        &dh2,
        NormInputs { x: &kept.x2, stats: &kept.stats2, w: w.norm2[0] },
    );

    let [dw, db] = d.projection;
    device.bias_backward(db, &dx);
    let dx2 = axes.region.leave_backward(dx.clone())?;
    let mut dy = vec![T::zero(); kept.y.len()];
    device.linear_backward(&mut dy, dw, &dx2, &kept.y, w.projection[0], heads.width());
    let dqkv =
        axes.attention.backward(device, heads, &kept.qkv, (&kept.y, &kept.attention), &dy)?;
    let [dw, db] = d.qkv;
    device.bias_backward(db, &dqkv);
    let mut dh1 = dx2;
    device.linear_backward(&mut dh1, dw, &dqkv, &kept.h1, w.qkv[0], width);
    let dh1 = axes.region.enter_backward(dh1)?;
    let [dw, db] = d.norm1;
    device.norm_backward(
        &mut dx,
        dw,
        db,
        &dh1,
        NormInputs { x: &kept.x, stats: &kept.stats1, w: w.norm1[0] },
    );
    Ok(dx)
}

//! The feed-forward part of a block: up to four times the width, a nonlinearity, and down again.
//!
//! `y = gelu(h up^T + up_bias) down^T + down_bias`. Between the region each rank may have some of
//! the hidden numbers only: the nonlinearity works on each alone, and the second matrix gives a
//! summand of `y`, which the gate sums. So the last bias comes after the gate, once.

use crate::model::axes::FeedForward;
use crate::tensor::device::Device;
use crate::tensor::math::{Real, take, take_mut};
use crate::tensor_parallel::region::ParallelRegion;
use maypole::Result;

/// One feed-forward part that every token goes through.
#[derive(Clone, Copy, Debug)]
pub struct DenseFeedForward;

impl<T: Real> FeedForward<T> for DenseFeedForward {
    fn forward(
        &mut self,
        device: &dyn Device<T>,
        region: &mut dyn ParallelRegion<T>,
        width: usize,
        p: &[T],
        h: Vec<T>,
    ) -> Result<(Vec<T>, Vec<Vec<T>>)> {
        let h = region.enter(h)?;
        let (y, kept) = forward(device, width, p, h);
        let mut y = region.leave(y)?;
        device.bias(&mut y, &p[p.len() - width..]);
        Ok((y, kept))
    }

    fn backward(
        &mut self,
        device: &dyn Device<T>,
        region: &mut dyn ParallelRegion<T>,
        width: usize,
        (p, g): (&[T], &mut [T]),
        kept: &[Vec<T>],
        dy: &[T],
    ) -> Result<Vec<T>> {
        let last = g.len() - width;
        device.bias_backward(&mut g[last..], dy);
        let dy = region.leave_backward(dy.to_vec())?;
        let dh = backward(device, width, (p, g), kept, &dy);
        region.enter_backward(dh)
    }
}

/// Hidden numbers, if a feed-forward part has this many parameters.
fn hidden(parameters: usize, width: usize) -> usize {
    (parameters - width) / (2 * width + 1)
}

/// The two matrices without the last bias, and what [`backward`] needs: the input, and the hidden
/// numbers before and after the nonlinearity.
pub fn forward<T: Real>(
    device: &dyn Device<T>,
    width: usize,
    p: &[T],
    h: Vec<T>,
) -> (Vec<T>, Vec<Vec<T>>) {
    let hidden = hidden(p.len(), width);
    let tokens = h.len() / width;
    let mut rest = p;
    let up = take(&mut rest, hidden * width);
    let up_bias = take(&mut rest, hidden);
    let down = take(&mut rest, hidden * width);
    let mut before = vec![T::zero(); tokens * hidden];
    device.linear(&mut before, &h, up, width);
    device.bias(&mut before, up_bias);
    let mut after = vec![T::zero(); tokens * hidden];
    let mut y = vec![T::zero(); tokens * width];
    device.gelu(&mut after, &before);
    device.linear(&mut y, &after, down, hidden);
    (y, vec![h, before, after])
}

/// The gradient of the input; those of the parameters, but for the last bias, are added to `g`.
pub fn backward<T: Real>(
    device: &dyn Device<T>,
    width: usize,
    (p, g): (&[T], &mut [T]),
    kept: &[Vec<T>],
    dy: &[T],
) -> Vec<T> {
    let [h, before, after] = kept else { unreachable!("forward keeps three") };
    let hidden = hidden(p.len(), width);
    let mut p = p;
    let mut g = g;
    let up = take(&mut p, hidden * width);
    let _ = take(&mut p, hidden);
    let down = take(&mut p, hidden * width);
    let dup = take_mut(&mut g, hidden * width);
    let dup_bias = take_mut(&mut g, hidden);
    let mut dhidden = vec![T::zero(); after.len()];
    device.linear_backward(&mut dhidden, take_mut(&mut g, hidden * width), dy, after, down, hidden);
    device.gelu_backward(&mut dhidden, before);
    device.bias_backward(dup_bias, &dhidden);
    let mut dh = vec![T::zero(); h.len()];
    device.linear_backward(&mut dh, dup, &dhidden, h, up, width);
    dh
}

//! Local SGD: each rank trains alone for H steps, then weights are averaged over ranks.
//!
//! * **Sharded:** the batch, as in data parallelism; but ranks drift apart between averages.
//! * **Collective:** one all-reduce of the *weights* every H steps (Stich 2019); of every step the
//!   loss alone, a number, so that it can be shown.
//! * **Cost:** 2 (n-1)/n numbers a parameter leave each rank every H steps: 1/H of data
//!   parallelism, for links that are slow. It is another algorithm, not another execution of the
//!   same: only with H = 1 and plain SGD are the steps those of data parallelism, because the
//!   average of `w - rate * g` is `w - rate *` the average of g.
//!
//! A rank that trains alone takes the mean over its own rows, so gradients, which are shares of the
//! mean over the rows of all ranks, are multiplied by n first. Their norm is that rank's own, and
//! so is what [clipping](crate::train::clip) makes of it: with clipping even H = 1 is not data
//! parallelism, which clips the mean.

use super::apart::{AveragingRule, mean};
use crate::ranks::group::RankGroup;
use crate::tensor::math::FloatElement;
use maypole::Result;

/// The mean of all ranks' weights becomes the weights of each.
#[derive(Clone, Copy, Debug)]
pub struct LocalSgd;

impl<T: FloatElement> AveragingRule<T> for LocalSgd {
    fn average(&mut self, weights: &mut [T], group: &RankGroup) -> Result<()> {
        mean(weights, group)
    }

    fn makes_equal(&self) -> bool {
        true
    }
}

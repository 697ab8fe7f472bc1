//! Local SGD: each rank trains alone for H steps, then weights are averaged over ranks.
//!
//! * **Sharded:** the batch, as in data parallelism. Between averages the weights differ between
//!   ranks.
//! * **Collective:** one all-reduce of the *weights* every H steps (Stich 2019). In every step
//!   ranks exchange only the loss, a single number.
//! * **Cost:** 2 (n-1)/n numbers a parameter leave each rank every H steps: 1/H of data
//!   parallelism, for slow links. It is another algorithm than data parallelism. Only with H = 1
//!   and plain SGD are the steps equal, because the average of `w - rate * g` is `w` minus `rate`
//!   times the average of `g`.
//!
//! A rank that trains alone needs the mean over its own rows. Gradients are shares of the mean over
//! the rows of all ranks, so they are multiplied by n first. [Clipping](maypole_trainer::train::clip) uses
//! the norm of the rank's own gradients. So with clipping even H = 1 is not data parallelism, which
//! clips the mean of the gradients.

use super::apart::{AveragingRule, mean};
use maypole::Result;
use maypole_trainer::ranks::group::RankGroup;
use maypole_trainer::tensor::math::FloatElement;

/// Each rank replaces its weights by the mean of all ranks' weights.
#[derive(Clone, Copy, Debug)]
pub struct LocalSgd;

impl<T: FloatElement> AveragingRule<T> for LocalSgd {
    fn average(&mut self, weights: &mut [T], group: &RankGroup) -> Result<()> {
        mean(weights, group)
    }
}

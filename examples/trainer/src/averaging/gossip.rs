//! Gossip: every H steps each rank averages its weights with those of one neighbour in a ring.
//!
//! * **Sharded:** the batch. Ranks never have the same weights, but near ones.
//! * **Collective:** none; one message of all weights to the next rank every H steps.
//! * **Cost:** P numbers leave each rank every H steps, whatever the number of ranks, and a rank
//!   waits for its neighbour alone.
//!
//! ```text
//! rank 0 -> rank 1 -> rank 2 -> ... -> rank 0        weights = (own + the previous rank's) / 2
//! ```
//!
//! Each rank's weights go into two averages with a half each, so the mean over all ranks stays what
//! it is. Differences shrink with every round: on a ring of n ranks those that change slowest along
//! it by a factor of `cos(pi / n)` (Lian et al. 2017). The model that comes of a run is the mean.

use super::apart::AveragingRule;
use crate::ranks::exchange::shift;
use crate::ranks::group::RankGroup;
use crate::tensor::math::{FloatElement, number};
use maypole::Result;

/// A rank's weights are drawn towards those of the previous rank.
#[derive(Clone, Copy, Debug)]
pub struct Gossip;

impl<T: FloatElement> AveragingRule<T> for Gossip {
    fn average(&mut self, weights: &mut [T], group: &RankGroup) -> Result<()> {
        if group.world() == 1 {
            return Ok(());
        }
        let previous = shift(group, weights)?;
        let half = number::<T>(0.5);
        let both = weights.iter_mut().zip(previous);
        both.for_each(|(own, previous)| *own = half * (*own + previous));
        Ok(())
    }

    fn makes_equal(&self) -> bool {
        false
    }
}

//! Gossip: every H steps each rank averages its weights with those of one neighbour in a ring.
//!
//! * **Sharded:** the batch. The weights of ranks differ, but only a little.
//! * **Collective:** none; one message of all weights to the next rank every H steps.
//! * **Cost:** P numbers leave each rank every H steps, for P parameters on any number of ranks,
//!   and a rank waits only for its neighbours.
//!
//! ```text
//! rank 0 -> rank 1 -> rank 2 -> ... -> rank 0        weights = (own + the previous rank's) / 2
//! ```
//!
//! Each rank's weights go into two averages with a half each, so the mean over all ranks does not
//! change. Differences between ranks become smaller with every average: on a ring of n ranks at
//! least by a factor of `cos(pi / n)` (Lian et al. 2017). The model that a run gives is the mean.

use super::apart::AveragingRule;
use maypole::Result;
use maypole_trainer::ranks::exchange::shift;
use maypole_trainer::ranks::group::RankGroup;
use maypole_trainer::tensor::math::{FloatElement, number};

/// Each rank averages its weights with those of the previous rank.
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

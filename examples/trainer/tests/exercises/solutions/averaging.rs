//! Local SGD: ranks train apart, and draw their weights together every so many steps.
//!
//! Read `src/averaging/mod.rs` first.

use maypole::Result;
use maypole_trainer::ranks::group::RankGroup;

/// Makes `weights`, which are this rank's own, the mean of those of all ranks.
pub fn average(group: &RankGroup, weights: &mut [f64]) -> Result<()> {
    group.all_reduce(weights)?;
    weights.iter_mut().for_each(|weight| *weight /= group.world() as f64);
    Ok(())
}

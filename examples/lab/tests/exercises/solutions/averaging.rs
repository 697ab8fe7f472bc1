//! Local SGD: ranks train apart, and average their weights every H steps.
//!
//! Read `examples/lab/src/averaging/mod.rs` first.

use maypole::Result;
use maypole_trainer::ranks::group::RankGroup;

/// Replaces `weights`, this rank's own, by the mean of all ranks' weights.
pub fn average(group: &RankGroup, weights: &mut [f64]) -> Result<()> {
    group.all_reduce(weights)?;
    weights.iter_mut().for_each(|weight| *weight /= group.world() as f64);
    Ok(())
}

//! Local SGD: ranks train apart, and average their weights every H steps.
//!
//! Read `examples/lab/src/averaging/mod.rs` first.

use maypole::Result;
use maypole_trainer::ranks::group::RankGroup;

/// Replaces `weights`, this rank's own, by the mean of all ranks' weights.
pub fn average(group: &RankGroup, weights: &mut [f64]) -> Result<()> {
    todo!("see the text above, and tests/exercises/chapters.rs for how it is tested")
}

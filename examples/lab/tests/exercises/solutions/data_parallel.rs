//! Data parallelism: every rank has the whole model, and its own rows.
//!
//! A token's loss is already divided by the tokens of the *whole* batch. Read
//! `examples/trainer/src/data_parallel/mod.rs` first.

use maypole::Result;
use maypole_trainer::ranks::group::RankGroup;

/// Called when the backward passes of a step are done, with the gradients of this rank's rows.
/// Afterwards `gradients` must be the gradients of the whole batch, on every rank.
pub fn sum_gradients(group: &RankGroup, gradients: &mut [f64]) -> Result<()> {
    group.all_reduce(gradients)
}

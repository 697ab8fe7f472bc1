//! ZeRO stage 1: every rank has all weights, and its part of the optimizer's state.
//!
//! Read `examples/trainer/src/data_parallel/zero.rs` first.

use crate::answers::Update;
use maypole::Result;
use maypole_trainer::ranks::group::RankGroup;

/// Updates all `weights` by the sum of all ranks' `gradients`. Each rank calls `update` once, for
/// its own part: with the places of the part, its weights, and the sums of its gradients. The part
/// of a rank is `group.shard().range(weights.len())`. Afterwards all ranks have all new weights. No
/// rank may receive sums of gradients that it does not need.
pub fn update_own_part(
    group: &RankGroup,
    weights: &mut [f64],
    gradients: &mut [f64],
    update: Update<'_>,
) -> Result<()> {
    let own = group.shard().range(weights.len());
    group.reduce_scatter(gradients)?;
    update(own.clone(), &mut weights[own.clone()], &gradients[own]);
    group.all_gather(weights)
}

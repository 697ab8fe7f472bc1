//! Expert parallelism: tokens travel to the ranks of their experts, and back.
//!
//! Read `src/expert_parallel/dispatch.rs` first.

use crate::answers::Expert;
use maypole::Result;
use maypole_trainer::ranks::group::RankGroup;

/// Sends token `t` of this rank, one number, to rank `owner[t]`, where `expert` is applied to it, and
/// returns the results in the order of `tokens`. Ranks do not know beforehand how many tokens the
/// others send them: `group.gather` can tell.
pub fn through_experts(
    group: &RankGroup,
    tokens: &[f64],
    owner: &[usize],
    expert: Expert,
) -> Result<Vec<f64>> {
    todo!("see the text above, and tests/exercises/chapters.rs for how it is tested")
}

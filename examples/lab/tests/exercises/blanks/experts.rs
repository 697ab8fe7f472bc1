//! Expert parallelism: tokens are sent to the ranks of their experts, and results are returned.
//!
//! Read `examples/trainer/src/expert_parallel/dispatch.rs` first.

use crate::answers::Expert;
use maypole::Result;
use maypole_trainer::ranks::group::RankGroup;

/// Sends token `t` of this rank, one number, to rank `owner[t]`. That rank applies `expert` with
/// its own number to the token, and sends the result back. Returns the results in the order of
/// `tokens`. A rank has no count of the tokens that each other rank sends to it: `group.gather` can
/// exchange these numbers.
pub fn through_experts(
    group: &RankGroup,
    tokens: &[f64],
    owner: &[usize],
    expert: Expert,
) -> Result<Vec<f64>> {
    todo!("see the text above, and tests/exercises/chapters.rs for how it is tested")
}

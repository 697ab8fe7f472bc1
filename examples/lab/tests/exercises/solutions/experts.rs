//! Expert parallelism: tokens are sent to the ranks of their experts, and results are returned.
//!
//! Read `examples/trainer/src/expert_parallel/dispatch.rs` first.

use crate::answers::Expert;
use maypole::Result;
use maypole_trainer::ranks::exchange::all_to_all_v;
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
    let me = group.rank();
    let mut order: Vec<usize> = (0..tokens.len()).collect();
    order.sort_by_key(|token| owner[*token]);
    let count = |rank: usize| owner.iter().filter(|owner| **owner == rank).count();
    let to: Vec<usize> = (0..group.world()).map(count).collect();
    let counts = group.gather(&to.iter().map(|count| *count as u64).collect::<Vec<_>>())?;
    let from: Vec<usize> =
        (0..group.world()).map(|rank| counts[rank * group.world() + me] as usize).collect();
    let sorted: Vec<f64> = order.iter().map(|token| tokens[*token]).collect();
    let arrived = all_to_all_v(group, &sorted, &to, &from)?;
    let done: Vec<f64> = arrived.into_iter().map(|token| expert(me, token)).collect();
    let back = all_to_all_v(group, &done, &from, &to)?;
    let mut results = vec![0.0; tokens.len()];
    order.into_iter().zip(back).for_each(|(token, result)| results[token] = result);
    Ok(results)
}

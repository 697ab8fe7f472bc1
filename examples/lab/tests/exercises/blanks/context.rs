//! Context parallelism: a softmax over keys that arrive in blocks, from one rank after the other.
//!
//! Read `examples/trainer/src/context_parallel/ring.rs` first.

use crate::chapters::OnlineSoftmax;

/// Adds a block of keys to the softmax of one query: `scores[k]` is the score of key `k`, and
/// `values[k]` its value. Afterwards `state.greatest` is the greatest score so far, `state.sum` the
/// sum of `exp(score - greatest)` over all keys so far, and `state.output` the sum of
/// `exp(score - greatest) * value`. At first `greatest` is minus infinity, and both sums are 0.
pub fn add_block(state: &mut OnlineSoftmax, scores: &[f64], values: &[f64]) {
    todo!("see the text above, and tests/exercises/chapters.rs for how it is tested")
}

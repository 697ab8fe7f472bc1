//! Context parallelism: a softmax over keys that arrive in blocks, from one rank after the other.
//!
//! Read `examples/trainer/src/context_parallel/ring.rs` first.

use crate::chapters::OnlineSoftmax;

/// Adds a block of keys to the softmax of one query: `scores[k]` is the score of key `k`, and
/// `values[k]` its value. Afterwards `state.greatest` is the greatest score so far, `state.sum` the
/// sum of `exp(score - greatest)` over all keys so far, and `state.output` the sum of
/// `exp(score - greatest) * value`. At first `greatest` is minus infinity, and both sums are 0.
pub fn add_block(state: &mut OnlineSoftmax, scores: &[f64], values: &[f64]) {
    let greatest = scores.iter().copied().fold(state.greatest, f64::max);
    let factor = (state.greatest - greatest).exp();
    state.sum *= factor;
    state.output *= factor;
    for (score, value) in scores.iter().zip(values) {
        let term = (score - greatest).exp();
        state.sum += term;
        state.output += term * value;
    }
    state.greatest = greatest;
}

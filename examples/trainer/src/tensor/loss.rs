//! Cross-entropy: minus the logarithm of the target's probability, and its gradient, in one pass.
//!
//! For a token with logits z and target t the loss is `ln(sum(exp(z))) - z[t]`. Its gradient is
//! `softmax(z) - one(t)`, where `one(t)` is 1 at t and 0 elsewhere. Both are multiplied by
//! `weight`, one over the tokens of the *global* batch. So the gradients of ranks and of
//! micro-batches are summed, and no later code divides.

use crate::tensor::math::{Real, exponentials, greatest, vectorized};

/// Returns the sum of the weighted losses of all tokens, and replaces `logits`, a row for each
/// token, by their gradient.
///
/// # Panics
/// If a target is not less than the length of a row.
pub fn cross_entropy<T: Real>(logits: &mut [T], targets: &[u32], weight: f64) -> f64 {
    let width = logits.len() / targets.len();
    vectorized(|| {
        let rows = logits.chunks_exact_mut(width).zip(targets);
        rows.map(|(row, target)| token(row, *target as usize, weight)).sum::<f64>()
    }) * weight
}

#[inline(always)]
fn token<T: Real>(row: &mut [T], target: usize, weight: f64) -> f64 {
    let most = greatest(row);
    let wanted = row[target];
    let sum = exponentials(row, most);
    let share = T::of(weight) / sum;
    row.iter_mut().for_each(|z| *z *= share);
    row[target] -= T::of(weight);
    sum.wide().ln() + most.wide() - wanted.wide()
}

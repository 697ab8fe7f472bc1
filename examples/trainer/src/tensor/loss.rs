//! Cross-entropy: how surprised the model is by what came, and the gradient of that, in one pass.
//!
//! For a token with logits z and target t the loss is `ln(sum(exp(z))) - z[t]`, its gradient
//! `softmax(z) - one(t)`. Both are multiplied by `weight`, one over the tokens of the *global*
//! batch: then the gradients of ranks and of micro-batches are simply summed, and nobody can forget
//! to divide, or divide twice.

use crate::tensor::math::{Real, exponentials, greatest, vectorized};

/// The weighted loss of all tokens; `logits`, a row a token, become their gradient.
///
/// # Panics
/// If a target is no number of the vocabulary.
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

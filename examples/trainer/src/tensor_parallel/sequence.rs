//! Sequence parallel: between the regions of tensor parallelism, tokens are divided too.
//!
//! What it does: without it every rank of the tensor axis holds and computes the same activations
//! outside of regions (norms, residuals). With it each rank has only its part of the tokens there.
//! An all-reduce is a reduce-scatter followed by an all-gather: the reduce-scatter now ends one
//! region, and the all-gather begins the next. The same bytes are sent, and each rank computes the
//! layers between two regions for its own tokens only.
//!
//! ```text
//!                     forward                         backward
//!   enter a region    all-gather of tokens            reduce-scatter of dx
//!   leave a region    reduce-scatter of the terms     all-gather of dy
//! ```
//!
//! What is sharded: tokens outside of regions, one part for each rank; parameters as in
//! [`crate::tensor_parallel::region`].
//!
//! Which collective runs where: as above, and one more that is easily forgotten. Norms, the biases
//! after the sum and the positions are on every rank, but each rank now applies them to its own
//! tokens. So a rank's gradients of them are partial sums, with one all-reduce over the tensor axis a
//! step. Without that all-reduce the loss still falls, but the training differs from one process.
//!
//! Cost: the bytes of the replaced all-reduces, and one all-reduce of the small parameters a step.
//! Activations outside of regions take `1/p` of the memory.
//!
//! Source: Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models"
//! (2022).

use crate::ranks::group::RankGroup;
use crate::tensor::math::Real;
use maypole::Result;

/// All-gathers the vectors of the tokens of all ranks, in rank order.
///
/// # Errors
/// As the collective.
pub fn gather<T: Real>(tp: &RankGroup, part: &[T]) -> Result<Vec<T>> {
    tp.gather(part)
}

/// Reduce-scatters `terms`: returns the sums of the vectors of this rank's tokens.
///
/// # Errors
/// As the collective.
pub fn sum_and_scatter<T: Real>(tp: &RankGroup, mut terms: Vec<T>) -> Result<Vec<T>> {
    tp.reduce_scatter(&mut terms)?;
    Ok(part(tp, &terms).to_vec())
}

/// Returns the vectors of this rank's tokens from `whole`, those of all tokens. A region in which
/// every rank computes the complete result, not a term of it, ends with this instead of a sum.
pub fn part<'a, T>(tp: &RankGroup, whole: &'a [T]) -> &'a [T] {
    &whole[tp.shard().range(whole.len())]
}

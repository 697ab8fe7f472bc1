//! Sequence parallel: between the regions of tensor parallelism, tokens are divided too.
//!
//! What it does: outside of regions every rank of the tensor axis would hold and compute the same
//! activations (norms, residuals). Instead each has its part of the tokens there. An all-reduce
//! is a reduce-scatter followed by an all-gather: the reduce-scatter now ends one region, and the
//! all-gather begins the next. The same bytes move, and everything between the two regions is
//! computed for a part of the tokens only.
//!
//! ```text
//!                     forward                         backward
//!   enter a region    all-gather of tokens            reduce-scatter of dx
//!   leave a region    reduce-scatter of the terms     all-gather of dy
//! ```
//!
//! What is sharded: tokens outside of regions, in one part a rank; parameters as in
//! [`crate::tensor_parallel::region`].
//!
//! Which collective runs where: as above, and one more that is easily forgotten. Norms, the biases
//! after the sum and the positions are on every rank, but each rank now applies them to its own
//! tokens. So their gradients are terms, which are summed over the tensor axis once a step. Without
//! that sum the loss still falls.
//!
//! Cost: the bytes of the all-reduces it replaces, and one sum of the small parameters a step; in
//! return activations outside of regions take `1/p` of the memory.
//!
//! Source: Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models"
//! (2022).

use crate::ranks::group::RankGroup;
use crate::tensor::math::Real;
use maypole::Result;

/// The tokens of all ranks, in rank order.
///
/// # Errors
/// As the collective.
pub fn gather<T: Real>(tp: &RankGroup, part: &[T]) -> Result<Vec<T>> {
    tp.gather(part)
}

/// This rank's tokens of the sum of all ranks' terms.
///
/// # Errors
/// As the collective.
pub fn sum_and_scatter<T: Real>(tp: &RankGroup, mut terms: Vec<T>) -> Result<Vec<T>> {
    tp.reduce_scatter(&mut terms)?;
    Ok(part(tp, &terms).to_vec())
}

/// This rank's tokens of `whole`, which every rank has already. A region in which every rank
/// computes the complete result, rather than a term of it, ends with this instead of a sum.
pub fn part<'a, T>(tp: &RankGroup, whole: &'a [T]) -> &'a [T] {
    &whole[tp.shard().range(whole.len())]
}

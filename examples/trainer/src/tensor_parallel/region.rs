//! A region: the part of the model between a column-parallel layer and a row-parallel one.
//!
//! What it does: two matrices are cut so that one all-reduce after the second is enough. The first is cut
//! by outputs ([`crate::tensor_parallel::column`]), so each rank has some of the hidden numbers.
//! The function between them works on each hidden number alone (GELU, or attention on whole heads).
//! The second matrix is cut by inputs ([`crate::tensor_parallel::row`]), so each rank has a term of
//! every output, and an all-reduce gives the output. A [`ParallelRegion`] has the collectives at
//! both ends, forward and backward.
//!
//! ```text
//!               x ----+------------------+          forward    backward
//!                     | enter            |          nothing    sum of dx
//!           [ w1 rank 0 | w1 rank 1 ]    |
//!                gelu   |  gelu          |
//!           [ w2 rank 0 | w2 rank 1 ]    |
//!                     | leave            |          sum of y   nothing
//!               y ----+------ + ---------+
//! ```
//!
//! What is sharded: q, k, v and the first matrix of the feed-forward part by outputs, with their
//! biases; the second matrices by inputs; norms and the second biases are on every rank. Attention:
//! whole heads. Vocabulary: [`crate::tensor_parallel::vocab`].
//!
//! Which collective runs where: an all-reduce of `tokens * width` where a region is left forward
//! and one where it is entered backward: two regions a block, so four a block and step.
//! [`crate::tensor_parallel::sequence`] replaces each by a reduce-scatter and an all-gather.
//!
//! Cost: `4 * 2 (p-1)/p * tokens * width` numbers a rank, block and step. None of it overlaps with
//! compute.
//!
//! Source: Shoeybi et al., "Megatron-LM" (2019), whose `f` and `g` are `enter` and `leave`.

use crate::ranks::group::RankGroup;
use crate::tensor::math::Real;
use crate::tensor_parallel::sequence;
use maypole::Result;
use std::ops::Range;

/// The two ends of a region in which each rank has a part of every layer. Each method takes the
/// vectors of this rank's tokens, one after another, and returns the vectors that the next layer
/// needs.
pub trait ParallelRegion<T: Real> {
    /// Begins a region. Returns the input of the first matrix, of all tokens.
    ///
    /// # Errors
    /// As the collective in it.
    fn enter(&mut self, x: Vec<T>) -> Result<Vec<T>> {
        Ok(x)
    }

    /// Ends a region: all-reduces the partial results of the second matrix.
    ///
    /// # Errors
    /// As the collective in it.
    fn leave(&mut self, x: Vec<T>) -> Result<Vec<T>> {
        Ok(x)
    }

    /// The backward pass of [`enter`](Self::enter): all-reduces the partial gradients of the input.
    ///
    /// # Errors
    /// As the collective in it.
    fn enter_backward(&mut self, dx: Vec<T>) -> Result<Vec<T>> {
        Ok(dx)
    }

    /// The backward pass of [`leave`](Self::leave): returns the gradient of the result, of all
    /// tokens.
    ///
    /// # Errors
    /// As the collective in it.
    fn leave_backward(&mut self, dx: Vec<T>) -> Result<Vec<T>> {
        Ok(dx)
    }

    /// Returns which of the batch's `all` tokens this rank has between a [`leave`](Self::leave) and
    /// the next [`enter`](Self::enter).
    fn tokens(&self, all: usize) -> Range<usize> {
        0..all
    }
}

/// The region of a rank that has the whole model: every method returns its argument.
#[derive(Clone, Copy, Debug)]
pub struct SingleRank;

impl<T: Real> ParallelRegion<T> for SingleRank {}

/// A region of layers that are divided over a group of ranks.
#[derive(Clone, Debug)]
pub struct TensorParallelRegion {
    /// The ranks that have the other parts.
    pub group: RankGroup,
    /// True if outside of regions each rank has only its part of the tokens:
    /// [`crate::tensor_parallel::sequence`].
    pub sequence: bool,
}

impl TensorParallelRegion {
    fn sum<T: Real>(&self, mut terms: Vec<T>) -> Result<Vec<T>> {
        if self.sequence {
            return sequence::sum_and_scatter(&self.group, terms);
        }
        self.group.all_reduce(&mut terms)?;
        Ok(terms)
    }

    fn gather<T: Real>(&self, x: Vec<T>) -> Result<Vec<T>> {
        if self.sequence { sequence::gather(&self.group, &x) } else { Ok(x) }
    }
}

impl<T: Real> ParallelRegion<T> for TensorParallelRegion {
    fn enter(&mut self, x: Vec<T>) -> Result<Vec<T>> {
        self.gather(x)
    }

    fn enter_backward(&mut self, dx: Vec<T>) -> Result<Vec<T>> {
        self.sum(dx)
    }

    fn leave(&mut self, y: Vec<T>) -> Result<Vec<T>> {
        self.sum(y)
    }

    fn leave_backward(&mut self, dy: Vec<T>) -> Result<Vec<T>> {
        self.gather(dy)
    }

    fn tokens(&self, all: usize) -> Range<usize> {
        if self.sequence { self.group.shard().range(all) } else { 0..all }
    }
}

//! Causal attention of several heads: two products of matrices, with a softmax between them.
//!
//! A row of `qkv` is a token's q of all heads, then k, then v. A batch of products has a product
//! for each head of each row of tokens.

use super::call::DeviceSlice;
use super::machine::{Float, Launch, Machine};
use super::norm::ROW_THREADS;
use super::product::{Batch, DeviceMatrix, run_batch};
use maypole_kernels::cuda::CudaError;

/// The shape of attention.
#[derive(Clone, Copy, Debug)]
pub struct AttentionShape {
    /// Rows of tokens that do not see each other.
    pub rows: usize,
    /// Tokens of a row.
    pub tokens: usize,
    /// Heads of a token.
    pub heads: usize,
    /// Numbers of a token in one head.
    pub size: usize,
}

impl AttentionShape {
    fn width(self) -> usize {
        self.heads * self.size
    }

    fn batch(self) -> Batch {
        Batch { outer: self.rows, inner: self.heads }
    }

    /// The vectors of a head in a slice that has `of` vectors of all heads a token: the `nth`.
    fn vectors<T>(self, slice: DeviceSlice<T>, nth: usize, of: usize) -> DeviceMatrix<T> {
        let stride = of * self.width();
        DeviceMatrix::strided(slice, nth * self.width(), [self.tokens, self.size], stride)
            .every(self.tokens * stride, self.size)
    }

    /// A matrix of tokens x tokens for each head.
    fn pairs<T>(self, slice: DeviceSlice<T>) -> DeviceMatrix<T> {
        let all = self.tokens * self.tokens;
        DeviceMatrix::strided(slice, 0, [self.tokens; 2], self.tokens).every(self.heads * all, all)
    }

    /// Lines of all matrices of [`pairs`](Self::pairs).
    fn lines(self) -> usize {
        self.rows * self.heads * self.tokens
    }

    fn scale(self) -> f64 {
        1.0 / (self.size as f64).sqrt()
    }
}

/// Computes the attended vectors `y`, a row of `heads * size` numbers for each token, and the
/// probabilities `p`, a matrix of tokens x tokens for each head of each row.
///
/// # Errors
/// As [`Machine::launch`].
///
/// # Panics
/// If the shapes do not fit together.
pub fn forward<T: Float>(
    machine: &mut dyn Machine,
    shape: AttentionShape,
    [y, p]: [DeviceSlice<T>; 2],
    qkv: DeviceSlice<T>,
) -> Result<(), CudaError> {
    assert_eq!(p.len(), shape.lines() * shape.tokens, "probabilities");
    let batch = shape.batch();
    let [q, k, v] = [0, 1, 2].map(|nth| shape.vectors(qkv, nth, 3));
    run_batch(machine, batch, shape.pairs(p), [q, k.t()], (shape.scale(), false))?;
    Launch::new::<T>("causal_softmax", shape.lines(), ROW_THREADS)
        .slice(p)
        .count(shape.tokens)
        .number(T::LEAST)
        .on(machine)?;
    let y = shape.vectors(y, 0, 1);
    run_batch(machine, batch, y, [shape.pairs(p), v], (1.0, false))
}

/// Computes the gradient of `qkv` from `dy`, the gradient of the attended vectors. `dp` is memory
/// as long as the probabilities `p`.
///
/// # Errors
/// As [`Machine::launch`].
///
/// # Panics
/// If the shapes do not fit together.
pub fn backward<T: Float>(
    machine: &mut dyn Machine,
    shape: AttentionShape,
    [dqkv, dp]: [DeviceSlice<T>; 2],
    [qkv, p, dy]: [DeviceSlice<T>; 3],
) -> Result<(), CudaError> {
    let pairs = shape.lines() * shape.tokens;
    assert_eq!([p.len(), dp.len()], [pairs; 2], "probabilities and their gradients");
    let batch = shape.batch();
    let [q, k, v] = [0, 1, 2].map(|nth| shape.vectors(qkv, nth, 3));
    let [dq, dk, dv] = [0, 1, 2].map(|nth| shape.vectors(dqkv, nth, 3));
    let dy = shape.vectors(dy, 0, 1);
    let scores = shape.pairs(dp);
    run_batch(machine, batch, scores, [dy, v.t()], (1.0, false))?;
    run_batch(machine, batch, dv, [shape.pairs(p).t(), dy], (1.0, false))?;
    Launch::new::<T>("softmax_backward", shape.lines(), ROW_THREADS)
        .slice(dp)
        .slice(p)
        .count(shape.tokens)
        .on(machine)?;
    run_batch(machine, batch, dq, [scores, k], (shape.scale(), false))?;
    run_batch(machine, batch, dk, [scores.t(), q], (shape.scale(), false))
}

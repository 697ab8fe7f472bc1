//! Causal attention: in each head a token attends to itself and to the earlier tokens of its row.
//!
//! For one head of one row of the batch, with q, k, v of shape tokens x size:
//! `p = softmax(q k^T / sqrt(size))`, the softmax of line i over columns 0..=i, and `y = p v`.
//!
//! Input is the result of one linear layer: a row of `qkv` is a token's q of all heads, then k,
//! then v. Heads are computed independently, so tensor parallelism gives each rank some heads and
//! uses this file as it is. A rank that computes a head needs all tokens of the row. So context
//! parallelism, which divides the row, has its own attention in place of this file.
//!
//! Cost: `p` is kept for the backward pass, `rows * heads * tokens^2` numbers.

use crate::tensor::math::{Real, exponentials, greatest, sum_of, vectorized};
use crate::tensor::matmul::{MatrixView, matmul};

/// The shape of attention on this rank.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Heads {
    /// Rows of the batch.
    pub rows: usize,
    /// Heads of this rank.
    pub heads: usize,
    /// Numbers of a token's vector in one head.
    pub size: usize,
}

impl Heads {
    /// Numbers of a token's vector over all heads of this rank.
    pub fn width(self) -> usize {
        self.heads * self.size
    }

    /// Tokens of a row, if the buffer of q, k and v has `qkv` elements.
    pub fn tokens(self, qkv: usize) -> usize {
        qkv / (3 * self.width() * self.rows)
    }

    fn scale(self) -> f64 {
        1.0 / (self.size as f64).sqrt()
    }

    /// Returns for each head of each row the index at which its q begins in `qkv`, at which its
    /// vector begins in the result, and at which its probabilities begin.
    fn places(self, tokens: usize) -> impl Iterator<Item = (usize, usize, usize)> {
        let width = self.width();
        (0..self.rows * self.heads).map(move |nth| {
            let row = nth / self.heads;
            let head = nth % self.heads;
            let token = row * tokens * width;
            (3 * token + head * self.size, token + head * self.size, nth * tokens * tokens)
        })
    }
}

/// Returns the attended vectors, a row of `heads.width()` elements for each token, and the
/// probabilities, a matrix of tokens x tokens for each head of each row.
pub fn forward<T: Real>(heads: Heads, qkv: &[T]) -> (Vec<T>, Vec<T>) {
    let tokens = heads.tokens(qkv.len());
    let width = heads.width();
    let size = heads.size;
    let mut y = vec![T::zero(); qkv.len() / 3];
    let mut probabilities = vec![T::zero(); heads.rows * heads.heads * tokens * tokens];
    let part = |at: usize| MatrixView::strided(&qkv[at..], tokens, size, 3 * width);
    for (q, out, p) in heads.places(tokens) {
        let p = &mut probabilities[p..][..tokens * tokens];
        matmul(p, tokens, part(q), part(q + width).t(), heads.scale(), false);
        causal_softmax(p, tokens);
        matmul(&mut y[out..], width, MatrixView::new(p, tokens), part(q + 2 * width), 1.0, false);
    }
    (y, probabilities)
}

/// Replaces line `i` by the softmax of its first `i + 1` numbers, followed by zeros.
fn causal_softmax<T: Real>(p: &mut [T], tokens: usize) {
    vectorized(|| {
        for (i, line) in p.chunks_exact_mut(tokens).enumerate() {
            let (seen, unseen) = line.split_at_mut(i + 1);
            let most = greatest(seen);
            let share = T::one() / exponentials(seen, most);
            seen.iter_mut().for_each(|p| *p *= share);
            unseen.fill(T::zero());
        }
    });
}

/// Returns the gradient of `qkv` from `dy`, the gradient of the attended vectors.
pub fn backward<T: Real>(heads: Heads, qkv: &[T], probabilities: &[T], dy: &[T]) -> Vec<T> {
    let tokens = heads.tokens(qkv.len());
    let width = heads.width();
    let size = heads.size;
    let mut dqkv = vec![T::zero(); qkv.len()];
    let mut dp = vec![T::zero(); tokens * tokens];
    let part = |at: usize| MatrixView::strided(&qkv[at..], tokens, size, 3 * width);
    for (q, out, p) in heads.places(tokens) {
        let p = &probabilities[p..][..tokens * tokens];
        let dy = MatrixView::strided(&dy[out..], tokens, size, width);
        let p_t = MatrixView::new(p, tokens).t();
        matmul(&mut dp, tokens, dy, part(q + 2 * width).t(), 1.0, false);
        matmul(&mut dqkv[q + 2 * width..], 3 * width, p_t, dy, 1.0, false);
        softmax_backward(&mut dp, p, tokens);
        matmul(
            &mut dqkv[q..],
            3 * width,
            MatrixView::new(&dp, tokens),
            part(q + width),
            heads.scale(),
            false,
        );
        matmul(
            &mut dqkv[q + width..],
            3 * width,
            MatrixView::new(&dp, tokens).t(),
            part(q),
            heads.scale(),
            false,
        );
    }
    dqkv
}

/// Replaces `dp`, the gradient of the probabilities, by the gradient of the scores:
/// `p (dp - sum(p dp))`.
fn softmax_backward<T: Real>(dp: &mut [T], p: &[T], tokens: usize) {
    vectorized(|| {
        for (dp, p) in dp.chunks_exact_mut(tokens).zip(p.chunks_exact(tokens)) {
            let mean = sum_of(dp, p, |dp, p| dp * p);
            dp.iter_mut().zip(p).for_each(|(dp, p)| *dp = *p * (*dp - mean));
        }
    });
}

//! Ring attention: positions are divided, and keys and values pass around a ring of ranks.
//!
//! What it does: queries stay on their rank; in `cp` steps every rank gets every block of keys and
//! values once. The softmax over blocks of keys is *online*: a rank keeps the greatest score so
//! far, and the sum of exponentials and the output relative to that score. If a block has a greater
//! score, the sum and the output are first scaled down.
//!
//! ```text
//!            step 0     step 1     step 2          keys, compared with the block of queries:
//!   rank 0   q0 kv0     q0 kv2     q0 kv1            all earlier        all are attended to
//!   rank 1   q1 kv1     q1 kv0     q1 kv2            same positions     the lower triangle
//!   rank 2   q2 kv2     q2 kv1     q2 kv0            all later          skipped
//! ```
//!
//! Backward the blocks pass around again. Probabilities are computed again, from the scores and the
//! kept logarithm of the sum. The gradients of a block of keys and values travel with the block,
//! get a term at every rank, and reach the owner of the block after one more step.
//!
//! What is sharded: positions, by a [`PositionDivision`]; zig-zag makes the work of all ranks equal
//! ([`crate::context_parallel::zigzag`]).
//!
//! Which collective runs where: `cp - 1` shifts of keys and values forward; as many backward, and
//! `cp` of their gradients.
//!
//! Cost: `2 n (cp-1)` numbers a rank and layer forward and `2 n (2 cp - 1)` backward, where `n` is
//! the rank's tokens times the width. A rank waits for each shift before it computes the next step:
//! shifts could overlap with compute on the previous block, which is not implemented here.
//! Scores exist for one pair of pieces at a time, and are not kept for the backward pass. One
//! process keeps `tokens^2` probabilities for each head of a row.
//!
//! Sources: Liu et al., "Ring Attention with Blockwise Transformers" (2023); Milakov and
//! Gimelshein, "Online normalizer calculation for softmax" (2018); Dao et al., "FlashAttention"
//! (2022), for the backward.

use crate::context_parallel::zigzag::{PositionDivision, Visibility};
use crate::model::axes::Attention;
use crate::ranks::exchange::shift;
use crate::ranks::group::RankGroup;
use crate::tensor::attention::Heads;
use crate::tensor::device::Device;
use crate::tensor::math::{Real, exponentials, greatest, sum_of, vectorized};
use crate::tensor::matmul::{MatrixView, matmul};
use maypole::Result;

/// Attention over positions that are divided over a group.
#[derive(Clone, Debug)]
pub struct RingAttention {
    /// The ranks that have the other positions.
    pub group: RankGroup,
    /// The division of positions over ranks.
    pub division: PositionDivision,
    /// The rank whose positions the causal mask uses for the pieces of a rank: the same.
    pub positions_of: fn(usize) -> usize,
    /// What the sum and the output so far are multiplied by when a later block of keys has a greater
    /// score, given the exponential of the difference of the scores: that.
    pub rescale: fn(f64) -> f64,
}

impl RingAttention {
    /// Attention over the positions of the ranks of `group`.
    pub fn new(group: RankGroup, division: PositionDivision) -> Self {
        Self { group, division, positions_of: |rank| rank, rescale: |factor| factor }
    }
}

impl<T: Real> Attention<T> for RingAttention {
    /// Keeps, for each query of each head, the logarithm of its sum of exponentials.
    fn forward(
        &mut self,
        device: &dyn Device<T>,
        heads: Heads,
        qkv: &[T],
    ) -> Result<(Vec<T>, Vec<Vec<T>>)> {
        let (mut y, logs) = RingPass { ring: self, heads }.forward(qkv)?;
        device.keep(&mut y);
        Ok((y, vec![logs]))
    }

    fn backward(
        &mut self,
        device: &dyn Device<T>,
        heads: Heads,
        qkv: &[T],
        (y, kept): (&[T], &[Vec<T>]),
        dy: &[T],
    ) -> Result<Vec<T>> {
        let mut dqkv = RingPass { ring: self, heads }.backward(device, qkv, (y, &kept[0]), dy)?;
        device.keep(&mut dqkv);
        Ok(dqkv)
    }
}

/// The passes of one layer around the ring.
struct RingPass<'a> {
    ring: &'a RingAttention,
    heads: Heads,
}

/// A piece of queries and a piece of keys of one head of one row: the offset of each in its buffer.
#[derive(Clone, Copy, Debug)]
struct BlockPair {
    /// The first query in `qkv`, its output, and its number among all queries of all heads.
    query: usize,
    output: usize,
    line: usize,
    /// The first key in `kv`.
    key: usize,
    /// Positions of a piece.
    length: usize,
    sight: Visibility,
}

impl RingPass<'_> {
    fn forward<T: Real>(&self, qkv: &[T]) -> Result<(Vec<T>, Vec<T>)> {
        let mut y = vec![T::zero(); qkv.len() / 3];
        let lines = qkv.len() / 3 / self.heads.size;
        let mut most = vec![T::min_value(); lines];
        let mut sums = vec![T::zero(); lines];
        let mut kv = self.keys_and_values(qkv);
        for step in 0..self.ring.group.world() {
            if step > 0 {
                kv = shift(&self.ring.group, &kv)?;
            }
            for pair in self.block_pairs(step, qkv.len()) {
                self.attend(pair, qkv, &kv, &mut y, (&mut most, &mut sums));
            }
        }
        self.for_each_output(qkv.len(), |line, output| {
            let share = T::one() / sums[line];
            y[output..output + self.heads.size].iter_mut().for_each(|y| *y *= share);
        });
        most.iter_mut().zip(&sums).for_each(|(most, sum)| *most += sum.ln());
        Ok((y, most))
    }

    fn backward<T: Real>(
        &self,
        device: &dyn Device<T>,
        qkv: &[T],
        (y, logs): (&[T], &[T]),
        dy: &[T],
    ) -> Result<Vec<T>> {
        let mut means = vec![T::zero(); logs.len()];
        let size = self.heads.size;
        self.for_each_output(qkv.len(), |line, output| {
            means[line] =
                sum_of(&dy[output..output + size], &y[output..output + size], |dy, y| dy * y);
        });
        let mut dqkv = vec![T::zero(); qkv.len()];
        let mut kv = self.keys_and_values(qkv);
        let mut dkv = vec![T::zero(); kv.len()];
        for step in 0..self.ring.group.world() {
            if step > 0 {
                kv = shift(&self.ring.group, &kv)?;
                dkv = shift(&self.ring.group, &dkv)?;
            }
            for pair in self.block_pairs(step, qkv.len()) {
                self.attend_backward(
                    device,
                    pair,
                    (qkv, &kv, dy),
                    (logs, &means),
                    (&mut dqkv, &mut dkv),
                );
            }
        }
        let dkv = shift(&self.ring.group, &dkv)?;
        let width = self.heads.width();
        for (token, dkv) in dqkv.chunks_exact_mut(3 * width).zip(dkv.chunks_exact(2 * width)) {
            token[width..].copy_from_slice(dkv);
        }
        Ok(dqkv)
    }

    /// Adds one piece of keys to the output `y` and to the state of the softmax, `most` and `sums`.
    fn attend<T: Real>(
        &self,
        pair: BlockPair,
        qkv: &[T],
        kv: &[T],
        y: &mut [T],
        (most, sums): (&mut [T], &mut [T]),
    ) {
        let width = self.heads.width();
        let size = self.heads.size;
        let BlockPair { output, line, key, length, sight, .. } = pair;
        let mut p = self.scores(pair, qkv, kv);
        vectorized(|| {
            for (i, scores) in p.chunks_exact_mut(length).enumerate() {
                let (seen, unseen) =
                    scores.split_at_mut(if sight == Visibility::Triangle { i + 1 } else { length });
                let before = most[line + i];
                let line = line + i;
                let now = greatest(seen).max(before);
                let kept = T::of((self.ring.rescale)((before - now).quick_exp().wide()));
                sums[line] = sums[line] * kept + exponentials(seen, now);
                most[line] = now;
                y[output + i * width..][..size].iter_mut().for_each(|y| *y *= kept);
                unseen.fill(T::zero());
            }
        });
        let v = MatrixView::strided(&kv[key + width..], length, size, 2 * width);
        matmul(&mut y[output..], width, MatrixView::new(&p, length), v, 1.0, true);
    }

    /// Adds the terms of one pair of pieces to the gradients `dqkv` and `dkv`.
    fn attend_backward<T: Real>(
        &self,
        device: &dyn Device<T>,
        pair: BlockPair,
        (qkv, kv, dy): (&[T], &[T], &[T]),
        (logs, means): (&[T], &[T]),
        (dqkv, dkv): (&mut [T], &mut [T]),
    ) {
        let width = self.heads.width();
        let size = self.heads.size;
        let BlockPair { query, output, line, key, length, sight } = pair;
        let mut p = self.scores(pair, qkv, kv);
        let mut ds = vec![T::zero(); length * length];
        vectorized(|| {
            for (i, p) in p.chunks_exact_mut(length).enumerate() {
                let (seen, unseen) =
                    p.split_at_mut(if sight == Visibility::Triangle { i + 1 } else { length });
                exponentials(seen, logs[line + i]);
                unseen.fill(T::zero());
            }
        });
        device.keep(&mut p);
        let part = |of, stride| MatrixView::strided(of, length, size, stride);
        let dy = part(&dy[output..], width);
        matmul(&mut ds, length, dy, part(&kv[key + width..], 2 * width).t(), 1.0, false);
        vectorized(|| {
            for (i, (p, ds)) in p.chunks_exact(length).zip(ds.chunks_exact_mut(length)).enumerate()
            {
                ds.iter_mut().zip(p).for_each(|(ds, p)| *ds = *p * (*ds - means[line + i]));
            }
        });
        let p = MatrixView::new(&p, length);
        let ds = MatrixView::new(&ds, length);
        let scale = self.scale();
        matmul(&mut dkv[key + width..], 2 * width, p.t(), dy, 1.0, true);
        matmul(&mut dqkv[query..], 3 * width, ds, part(&kv[key..], 2 * width), scale, true);
        matmul(&mut dkv[key..], 2 * width, ds.t(), part(&qkv[query..], 3 * width), scale, true);
    }

    fn scores<T: Real>(&self, pair: BlockPair, qkv: &[T], kv: &[T]) -> Vec<T> {
        let width = self.heads.width();
        let size = self.heads.size;
        let length = pair.length;
        let mut scores = vec![T::zero(); length * length];
        let queries = MatrixView::strided(&qkv[pair.query..], length, size, 3 * width);
        let keys = MatrixView::strided(&kv[pair.key..], length, size, 2 * width);
        matmul(&mut scores, length, queries, keys.t(), self.scale(), false);
        scores
    }

    fn scale(&self) -> f64 {
        1.0 / (self.heads.size as f64).sqrt()
    }

    /// Returns the keys and values of `qkv`, which pass around the ring: a token's k of all heads,
    /// then v.
    fn keys_and_values<T: Real>(&self, qkv: &[T]) -> Vec<T> {
        let width = self.heads.width();
        qkv.chunks_exact(3 * width).flat_map(|token| &token[width..]).copied().collect()
    }

    /// Returns the pairs of pieces of `step`, in which this rank has the keys of the rank `step`
    /// places before it.
    fn block_pairs(&self, step: usize, qkv: usize) -> Vec<BlockPair> {
        let Heads { rows, heads, size } = self.heads;
        let ranks = self.ring.group.world();
        let width = self.heads.width();
        let tokens = self.heads.tokens(qkv);
        let pieces = |rank| {
            let rank = (self.ring.positions_of)(rank);
            self.ring.division.pieces(rank, ranks, tokens * ranks)
        };
        let queries = pieces(self.ring.group.rank());
        let keys = pieces((self.ring.group.rank() + ranks - step) % ranks);
        let length = tokens / queries.len();
        let mut block_pairs = Vec::new();
        for nth in 0..rows * heads {
            let token = nth / heads * tokens;
            let head = nth % heads * size;
            for (i, queries) in queries.iter().enumerate() {
                for (j, keys) in keys.iter().enumerate() {
                    let query = token + i * length;
                    let key = token + j * length;
                    block_pairs.push(BlockPair {
                        query: 3 * query * width + head,
                        output: query * width + head,
                        line: nth * tokens + i * length,
                        key: 2 * key * width + head,
                        length,
                        sight: Visibility::of(queries, keys),
                    });
                }
            }
        }
        block_pairs.retain(|pair| pair.sight != Visibility::Nothing);
        block_pairs
    }

    /// Calls `each` for each query of each head, with its number and the index at which its output
    /// begins.
    fn for_each_output(&self, qkv: usize, mut each: impl FnMut(usize, usize)) {
        let Heads { rows, heads, size } = self.heads;
        let tokens = self.heads.tokens(qkv);
        for line in 0..rows * heads * tokens {
            let nth = line / tokens;
            let position = line % tokens;
            each(line, (nth / heads * tokens + position) * self.heads.width() + nth % heads * size);
        }
    }
}

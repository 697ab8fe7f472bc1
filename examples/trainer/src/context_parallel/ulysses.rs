//! Ulysses: positions are divided, and for attention alone they are exchanged for heads.
//!
//! What it does: all layers but attention compute each position by itself. Before attention an
//! all-to-all gives each rank all positions of some heads. Attention runs as in one process.
//! Another all-to-all restores each rank's positions of all heads.
//!
//! ```text
//!              positions of rank 0 | 1                   positions of both ranks
//!   heads 0 1        A             | B     all-to-all    rank 0: heads 0 1 of A and B
//!   heads 2 3        C             | D    ----------->   rank 1: heads 2 3 of C and D
//! ```
//!
//! What is sharded: positions; heads during attention, so the ranks must divide the heads. One rank
//! computes all positions of a head, and its output is bit for bit that of one process.
//!
//! Which collective runs where: two all-to-alls a layer forward, of `3 n` and of `n`, and the same
//! two backward.
//!
//! Cost: `4 n (cp-1)/cp` numbers a rank and layer forward and as many backward, where `n` is the
//! rank's tokens times the width. A rank of the ring sends `2 n (cp-1)` forward, which grows with
//! the number of ranks; a rank of Ulysses sends less than `4 n` on any number of ranks. The ring
//! works with any number of heads; Ulysses needs a multiple of the ranks. In this trainer
//! neither overlaps with compute: a rank waits for each all-to-all, and for each shift of the ring.
//!
//! Source: Jacobs et al., "DeepSpeed Ulysses" (2023).

use crate::context_parallel::zigzag::PositionDivision;
use crate::model::axes::Attention;
use crate::ranks::exchange::all_to_all;
use crate::ranks::group::RankGroup;
use crate::tensor::attention::Heads;
use crate::tensor::device::Device;
use crate::tensor::math::Real;
use maypole::Result;

/// Attention over positions that are divided over a group.
#[derive(Clone, Debug)]
pub struct UlyssesAttention {
    /// The ranks that have the other positions.
    pub group: RankGroup,
    /// The division of positions over ranks.
    pub division: PositionDivision,
}

impl<T: Real> Attention<T> for UlyssesAttention {
    /// Keeps `qkv` and the probabilities of all positions of some heads.
    ///
    /// # Panics
    /// If the ranks do not divide the heads.
    fn forward(
        &mut self,
        device: &dyn Device<T>,
        heads: Heads,
        qkv: &[T],
    ) -> Result<(Vec<T>, Vec<Vec<T>>)> {
        let exchange = HeadExchange { group: &self.group, heads, division: self.division };
        let qkv = exchange.to_heads(qkv, 3)?;
        let (y, probabilities) = device.attention(exchange.within(), &qkv);
        Ok((exchange.to_positions(&y, 1)?, vec![qkv, probabilities]))
    }

    fn backward(
        &mut self,
        device: &dyn Device<T>,
        heads: Heads,
        _: &[T],
        (_, kept): (&[T], &[Vec<T>]),
        dy: &[T],
    ) -> Result<Vec<T>> {
        let exchange = HeadExchange { group: &self.group, heads, division: self.division };
        let dy = exchange.to_heads(dy, 1)?;
        exchange
            .to_positions(&device.attention_backward(exchange.within(), &kept[0], &kept[1], &dy), 3)
    }
}

/// The exchange of one layer. `heads` is the shape of attention before the exchange: some positions
/// of all heads.
struct HeadExchange<'a> {
    group: &'a RankGroup,
    heads: Heads,
    division: PositionDivision,
}

impl HeadExchange<'_> {
    /// Returns the heads of this rank during attention.
    fn within(&self) -> Heads {
        let heads = self.heads.heads;
        let ranks = self.group.world();
        assert!(heads.is_multiple_of(ranks), "{ranks} ranks do not divide {heads} heads");
        Heads { heads: heads / ranks, ..self.heads }
    }

    /// Exchanges `x`, some positions of all heads, for all positions of some heads. A token has
    /// `vectors` vectors in each head.
    fn to_heads<T: Real>(&self, x: &[T], vectors: usize) -> Result<Vec<T>> {
        self.exchange(x, vectors, |[mine, theirs]| [mine, theirs])
    }

    /// The inverse of [`to_heads`](Self::to_heads), and its transpose.
    fn to_positions<T: Real>(&self, whole: &[T], vectors: usize) -> Result<Vec<T>> {
        self.exchange(whole, vectors, |[mine, theirs]| [theirs, mine])
    }

    /// Sends each run of numbers from the first to the second of the places that `ends` returns.
    fn exchange<T: Real>(
        &self,
        x: &[T],
        vectors: usize,
        ends: fn([usize; 2]) -> [usize; 2],
    ) -> Result<Vec<T>> {
        let mut sent = Vec::with_capacity(x.len());
        self.for_each_run(x.len(), vectors, |_, places, length| {
            sent.extend_from_slice(&x[ends(places)[0]..][..length]);
        });
        let got = all_to_all(self.group, &sent)?;
        let mut exchanged = vec![T::zero(); x.len()];
        self.for_each_run(x.len(), vectors, |nth, places, length| {
            exchanged[ends(places)[1]..][..length].copy_from_slice(&got[nth * length..][..length]);
        });
        Ok(exchanged)
    }

    /// Calls `each` for every run of consecutive numbers of the message, in order. Its arguments
    /// are the run's number, its offset in the buffer by positions (this rank's positions, the
    /// peer's heads), its offset in the buffer by heads (this rank's heads, the peer's positions),
    /// and its length.
    fn for_each_run(
        &self,
        len: usize,
        vectors: usize,
        mut each: impl FnMut(usize, [usize; 2], usize),
    ) {
        let ranks = self.group.world();
        let within = self.within().width();
        let rows = self.heads.rows;
        let tokens = len / (rows * vectors * self.heads.width());
        let mut nth = 0;
        for peer in 0..ranks {
            let positions = self.division.positions(peer, ranks, tokens * ranks);
            for row in 0..rows {
                for (token, position) in positions.iter().enumerate() {
                    for vector in 0..vectors {
                        let mine =
                            (((row * tokens + token) * vectors + vector) * ranks + peer) * within;
                        let theirs =
                            ((row * tokens * ranks + position) * vectors + vector) * within;
                        each(nth, [mine, theirs], within);
                        nth += 1;
                    }
                }
            }
        }
    }
}

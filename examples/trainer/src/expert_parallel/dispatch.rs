//! Dispatch and combine: tokens are sent to the ranks of their experts, and results are returned.
//!
//! What it does: each rank has some of the experts. For each kept choice of a token
//! ([`crate::expert_parallel::router`]) the token's row is sent to the rank of the expert, and the
//! result is returned.
//!
//! ```text
//!   tokens of rank 0  a0 b2 c1 d3        dispatch        experts 0 1 on rank 0: [a0 e0 c1 f1]
//!   tokens of rank 1  e0 f1 g3 h2      ---------->       experts 2 3 on rank 1: [b2 h2 d3 g3]
//!                                      <----------
//!   in the order of the tokens           combine         the experts' results for these rows
//! ```
//!
//! What is sharded: experts, rank r has the r-th part of them; rows of the batch too, so for all other
//! parameters the expert axis is a data axis. An expert's rows are in the order of ranks, then of
//! tokens: the order of one process with the whole batch.
//!
//! Which collective runs where: forward an all-to-all of the numbers of rows, and two of the rows,
//! dispatch and combine; backward the same three, where combine is the transpose of dispatch.
//! Gradients of experts are summed only over `dp` and `cp`, because an expert gets the tokens of
//! all ranks of `ep`.
//!
//! Cost: four times `(p-1)/p * tokens * top * width` numbers a rank and layer if the load is even.
//! If the load is uneven, a step lasts as long as that of the busiest rank;
//! `maypole_lab::rebalance` evens it out.
//!
//! Sources: Shazeer et al., "Outrageously Large Neural Networks" (2017); Lepikhin et al., "GShard"
//! (2020).

use crate::expert_parallel::router::ExpertChoice;
use crate::ranks::exchange::{all_to_all, all_to_all_v};
use crate::ranks::group::RankGroup;
use crate::tensor::math::Real;
use maypole::Result;

/// The rows that a rank exchanges with each other rank in one layer and micro-batch. The forward
/// pass and the backward pass each make them from the router's choices.
#[derive(Clone, Debug)]
pub struct TokenRoutes {
    /// The kept choices in the order in which their rows are sent: by rank, then expert, then
    /// token.
    sent: Vec<usize>,
    /// The number of rows to each rank, and from each rank.
    to: Vec<usize>,
    from: Vec<usize>,
    /// For each row in the order of experts, its place in the order of arrival.
    arrival: Vec<usize>,
    /// The number of rows of each expert of this rank.
    pub load: Vec<usize>,
    /// The number of rows to other ranks, and of rows from other ranks.
    pub abroad: [usize; 2],
    /// For each returned row, the choice that it belongs to. Rows return in the order in which they
    /// were sent.
    pub returned: Vec<usize>,
}

impl TokenRoutes {
    /// Makes the routes of `choices` of `experts` experts. Ranks of `ep` exchange the numbers of
    /// rows.
    ///
    /// # Errors
    /// As the collective.
    ///
    /// # Panics
    /// If the ranks of `ep` do not divide the experts, or there is no such expert.
    pub fn new<T: Real>(
        ep: &RankGroup,
        experts: usize,
        choices: &[ExpertChoice<T>],
    ) -> Result<Self> {
        let ranks = ep.world();
        assert!(experts.is_multiple_of(ranks), "{ranks} ranks do not divide {experts} experts");
        let slots = experts / ranks;
        let mut sent: Vec<usize> = (0..choices.len()).filter(|nth| choices[*nth].kept).collect();
        sent.sort_by_key(|nth| choices[*nth].expert);
        let mut counts = vec![0u64; experts];
        sent.iter().for_each(|nth| counts[choices[*nth].expert] += 1);
        let coming = all_to_all(ep, &counts)?;
        let per_rank = |counts: &[u64]| {
            counts.chunks(slots).map(|of| of.iter().sum::<u64>() as usize).collect()
        };
        let load = (0..slots)
            .map(|slot| coming.iter().skip(slot).step_by(slots).sum::<u64>() as usize)
            .collect();
        let to: Vec<usize> = per_rank(&counts);
        let from: Vec<usize> = per_rank(&coming);
        let abroad = [&to, &from].map(|rows| rows.iter().sum::<usize>() - rows[ep.rank()]);
        let returned = sent.clone();
        Ok(Self { sent, to, from, arrival: arrival(&coming, slots), load, abroad, returned })
    }

    /// Sends `of(choice)`, a row of `width` numbers, for each kept choice. Returns the rows of this
    /// rank's experts, expert by expert.
    ///
    /// # Errors
    /// As the collective.
    pub fn dispatch<'a, T: Real>(
        &self,
        ep: &RankGroup,
        width: usize,
        of: impl Fn(usize) -> &'a [T],
    ) -> Result<Vec<T>> {
        let rows: Vec<T> = self.sent.iter().flat_map(|nth| of(*nth)).copied().collect();
        let arrived = all_to_all_v(ep, &rows, &times(&self.to, width), &times(&self.from, width))?;
        Ok(self.arrival.iter().flat_map(|row| &arrived[row * width..][..width]).copied().collect())
    }

    /// The transpose of [`dispatch`](Self::dispatch): sends `rows`, those of this rank's experts,
    /// back. Returns a row for each of `choices` choices, zeros for dropped choices.
    ///
    /// # Errors
    /// As the collective.
    pub fn combine<T: Real>(
        &self,
        ep: &RankGroup,
        width: usize,
        rows: &[T],
        choices: usize,
    ) -> Result<Vec<T>> {
        let mut arrived = vec![T::zero(); rows.len()];
        for (row, place) in rows.chunks_exact(width).zip(&self.arrival) {
            arrived[place * width..][..width].copy_from_slice(row);
        }
        let back = all_to_all_v(ep, &arrived, &times(&self.from, width), &times(&self.to, width))?;
        let mut combined = vec![T::zero(); choices * width];
        for (row, nth) in back.chunks_exact(width).zip(&self.returned) {
            combined[nth * width..][..width].copy_from_slice(row);
        }
        Ok(combined)
    }
}

/// Returns for each row in the order of experts, then of ranks, its place in the order of arrival,
/// which is of ranks, then of experts. `coming` are the numbers of rows in the order of arrival.
fn arrival(coming: &[u64], slots: usize) -> Vec<usize> {
    let mut starts = Vec::with_capacity(coming.len());
    let total = coming.iter().fold(0, |start, count| {
        starts.push(start);
        start + *count as usize
    });
    let mut order = Vec::with_capacity(total);
    for slot in 0..slots {
        for block in (slot..coming.len()).step_by(slots) {
            order.extend(starts[block]..starts[block] + coming[block] as usize);
        }
    }
    order
}

fn times(rows: &[usize], width: usize) -> Vec<usize> {
    rows.iter().map(|rows| rows * width).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expert_parallel::router::Router;
    use crate::ranks::group::SumOrder;
    use crate::tensor::random::centred;
    use maypole::Communicator;

    const WIDTH: usize = 3;

    /// Sends rows that hold their rank, token and expert to their experts and back.
    fn round_trip(ranks: usize, capacity: Option<f32>) {
        let router = Router { experts: 8, top: 2, group: 16, capacity, balance: 0.0 };
        let received = Communicator::run_local(ranks, |comm| {
            let ep =
                if ranks == 1 { RankGroup::single() } else { RankGroup::new(comm, SumOrder::Fast) };
            let me = ep.rank() as u64;
            let logits: Vec<f32> = (0..32 * 8).map(|i| centred(me, i) as f32).collect();
            let routed = router.route(&logits);
            let row = |nth: usize| {
                let choice = &routed.choices[nth];
                vec![me as f32, choice.token as f32, choice.expert as f32]
            };
            let rows: Vec<Vec<f32>> = (0..routed.choices.len()).map(row).collect();
            let routes = TokenRoutes::new(&ep, 8, &routed.choices).unwrap();
            let mine = routes.dispatch(&ep, WIDTH, |nth| &rows[nth]).unwrap();
            let experts = ep.shard().range(8);
            let owners = experts.zip(&routes.load).flat_map(|(expert, load)| vec![expert; *load]);
            assert!(mine.chunks(WIDTH).zip(owners).all(|(row, expert)| row[2] == expert as f32));
            // The rows of an expert are ordered by rank, then by token, as in one process.
            let mut from = 0;
            for load in &routes.load {
                let rows: Vec<_> = mine[from * WIDTH..][..load * WIDTH]
                    .chunks(WIDTH)
                    .map(|row| (row[0], row[1]))
                    .collect();
                assert!(rows.is_sorted());
                from += load;
            }
            let back = routes.combine(&ep, WIDTH, &mine, rows.len()).unwrap();
            for ((back, row), choice) in back.chunks(WIDTH).zip(&rows).zip(&routed.choices) {
                assert_eq!(
                    back,
                    if choice.kept { row } else { &[0.0; WIDTH][..] },
                    "identity experts return the row"
                );
            }
            (mine.len() / WIDTH, routed.choices.iter().filter(|choice| choice.kept).count())
        });
        let (arrived, kept): (Vec<usize>, Vec<usize>) = received.into_iter().unzip();
        assert_eq!(
            arrived.iter().sum::<usize>(),
            kept.iter().sum::<usize>(),
            "as many rows arrive as are sent"
        );
    }

    #[test]
    fn identity_experts_return_every_row_to_its_place() {
        for ranks in [1, 2, 4] {
            round_trip(ranks, None);
            round_trip(ranks, Some(1.0));
        }
    }
}

//! Collectives whose blocks differ in length from rank to rank.
//!
//! They are the same schedules over another layout. What every rank passes alike (all-gather,
//! reduce-scatter) is compared by the call's fingerprint. What only some know (gather, scatter,
//! all-to-all) is told to all ranks first, by a small all-gather, so that every algorithm serves
//! and lengths that contradict one another are an error on every rank.

use crate::comm::Communicator;
use crate::comm::element::{Element, Loan, ReduceOp, lend};
use crate::comm::engine::call::Call;
use crate::comm::engine::counts::Counts;
use crate::comm::error::{Error, Result};
use crate::schedule::collective::Collective;
use maypole_kernels::{View, ViewMut};

impl Communicator {
    /// Everybody's `input`, in rank order, in everybody's `output`: rank `r` brings `counts[r]`
    /// elements. All ranks pass the same `counts`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is not one count for each rank, or a buffer has another length;
    /// else as every call.
    ///
    /// ```
    /// use maypole::Communicator;
    /// let gathered = Communicator::run_local(3, |mut comm| {
    ///     let mine = vec![comm.rank() as u8; comm.rank()];
    ///     let mut all = [9; 3];
    ///     comm.all_gather_v(&mine, &mut all, &[0, 1, 2]).unwrap();
    ///     all
    /// });
    /// assert_eq!(gathered, [[1, 2, 2]; 3]);
    /// ```
    pub fn all_gather_v<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        counts: &[usize],
    ) -> Result<()> {
        self.check_blocks("all_gather_v", counts, Some(input.len()), Some(output.len()))?;
        self.run_v(
            Collective::AllGather,
            ReduceOp::Sum,
            blocks(counts),
            View::of(input),
            lend(output).view(),
            T::DATA_TYPE,
        )
    }

    /// Everybody's `input` combined; the `counts[r]` elements of block `r` of the result in rank
    /// `r`'s `output`. All ranks pass the same `counts`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is not one count for each rank, or a buffer has another length;
    /// else as every call.
    pub fn reduce_scatter_v<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        counts: &[usize],
        op: ReduceOp,
    ) -> Result<()> {
        self.check_blocks("reduce_scatter_v", counts, Some(output.len()), Some(input.len()))?;
        self.run_v(
            Collective::ReduceScatter,
            op,
            blocks(counts),
            View::of(input),
            lend(output).view(),
            T::DATA_TYPE,
        )
    }

    /// Everybody's `input`, in rank order, in the root's `output`: rank `r` brings `counts[r]`
    /// elements. Only the root's `counts` and `output` matter.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such root, the root's lengths contradict one another, or
    /// (on every rank) some rank brings another number of elements than the root expects; else as
    /// every call.
    pub fn gather_v<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        counts: &[usize],
        root: usize,
    ) -> Result<()> {
        self.check_root("gather_v", root)?;
        let counts = self.told("gather_v", counts, input.len(), output.len(), root)?;
        let mut loan = (self.rank() == root).then(|| lend(output));
        let output = loan.as_mut().map_or(ViewMut::EMPTY, Loan::view);
        self.run_v(
            Collective::Gather { root },
            ReduceOp::Sum,
            blocks(&counts),
            View::of(input),
            output,
            T::DATA_TYPE,
        )
    }

    /// Block `r` of the root's `input`, `counts[r]` elements, in rank `r`'s `output`. Only the
    /// root's `counts` and `input` matter.
    ///
    /// # Errors
    /// As [`gather_v`](Self::gather_v).
    pub fn scatter_v<T: Element>(
        &mut self,
        input: &[T],
        counts: &[usize],
        output: &mut [T],
        root: usize,
    ) -> Result<()> {
        self.check_root("scatter_v", root)?;
        let counts = self.told("scatter_v", counts, output.len(), input.len(), root)?;
        let input = if self.rank() == root { View::of(input) } else { View::EMPTY };
        self.run_v(
            Collective::Scatter { root },
            ReduceOp::Sum,
            blocks(&counts),
            input,
            lend(output).view(),
            T::DATA_TYPE,
        )
    }

    /// The `send_counts[r]` elements of block `r` of this rank's `input` go to rank `r`; block `s`
    /// of `output`, `receive_counts[s]` elements, comes from rank `s`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is not one count for each rank, a buffer has another length, or
    /// (on every rank) what some rank sends is not what its receiver expects; else as every call.
    pub fn all_to_all_v<T: Element>(
        &mut self,
        input: &[T],
        send_counts: &[usize],
        output: &mut [T],
        receive_counts: &[usize],
    ) -> Result<()> {
        let operation = "all_to_all_v";
        self.check_blocks(operation, send_counts, None, Some(input.len()))?;
        self.check_blocks(operation, receive_counts, None, Some(output.len()))?;
        let world = self.world();
        let both: Vec<u64> =
            send_counts.iter().chain(receive_counts).map(|count| *count as u64).collect();
        let all = self.tell(&both)?;
        let sends: Vec<Vec<usize>> =
            all.chunks(2 * world).map(|row| to_counts(&row[..world])).collect();
        let receives: Vec<Vec<usize>> =
            all.chunks(2 * world).map(|row| to_counts(&row[world..])).collect();
        let pairs = (0..world).flat_map(|from| (0..world).map(move |to| (from, to)));
        for (from, to) in pairs {
            let (sent, expected) = (sends[from][to], receives[to][from]);
            if sent != expected {
                let why = format!(
                    "rank {from} sends {sent} elements to rank {to}, which expects {expected}"
                );
                return Err(self.invalid(operation, why));
            }
        }
        let input = View::of(input);
        let mut loan = lend(output);
        let output = loan.view();
        self.run_v(
            Collective::AllToAll,
            ReduceOp::Sum,
            Counts::Pairs(sends),
            input,
            output,
            T::DATA_TYPE,
        )
    }

    pub(crate) fn run_v(
        &mut self,
        collective: Collective,
        op: ReduceOp,
        counts: Counts,
        input: View<'_>,
        output: ViewMut<'_>,
        kind: crate::comm::element::DataType,
    ) -> Result<()> {
        let count = self.engine.name_counts(counts);
        let deterministic = self.engine.deterministic(collective);
        let call = Call { collective, kind, op: op.into(), count, deterministic, in_place: false };
        match op {
            ReduceOp::PreMulSum(factor) => self.engine.call_scaled(call, factor, input, output),
            _ => self.engine.call(call, input, output),
        }
    }

    /// Checks one count for each rank, the length of this rank's block, and that of the whole.
    fn check_blocks(
        &self,
        operation: &'static str,
        counts: &[usize],
        block: Option<usize>,
        whole: Option<usize>,
    ) -> Result<()> {
        if counts.len() != self.world() {
            let why = format!("there are {} counts and {} ranks", counts.len(), self.world());
            return Err(self.invalid(operation, why));
        }
        if let Some(block) = block {
            self.check_len(operation, "buffer of this rank's block", block, counts[self.rank()])?;
        }
        let sum = counts.iter().try_fold(0usize, |sum, count| sum.checked_add(*count));
        match (whole, sum) {
            (Some(whole), Some(sum)) => {
                self.check_len(operation, "buffer of all blocks", whole, sum)
            }
            (_, None) => {
                Err(self.invalid(operation, "the counts are more than there is memory".to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// Everybody's `row`, one after the other. The algorithm that was named is for the blocks, and
    /// may not gather.
    fn tell(&mut self, row: &[u64]) -> Result<Vec<u64>> {
        let mut rows = vec![0; row.len() * self.world()];
        let wanted = self.engine.wanted.take();
        let told = self.all_gather(row, &mut rows);
        self.engine.wanted = wanted;
        told.map(|()| rows)
    }

    /// The root's counts, told to all and compared with what each rank has.
    fn told(
        &mut self,
        operation: &'static str,
        counts: &[usize],
        mine: usize,
        whole: usize,
        root: usize,
    ) -> Result<Vec<usize>> {
        let world = self.world();
        let wrong = if self.rank() == root {
            self.check_blocks(operation, counts, Some(mine), Some(whole)).err()
        } else {
            None
        };
        // One row a rank: whether its own arguments agree, its block, and at the root all counts.
        let mut row = vec![0; world + 2];
        (row[0], row[1]) = (u64::from(wrong.is_some()), mine as u64);
        if self.rank() == root && wrong.is_none() {
            row[2..].iter_mut().zip(counts).for_each(|(told, count)| *told = *count as u64);
        }
        let rows = self.tell(&row)?;
        if let Some(wrong) = wrong {
            return Err(wrong);
        }
        let rows: Vec<&[u64]> = rows.chunks(row.len()).collect();
        if rows[root][0] != 0 {
            return Err(self.invalid(
                operation,
                format!("the arguments of the root, rank {root}, contradict one another"),
            ));
        }
        let counts = to_counts(&rows[root][2..]);
        match (0..world).find(|rank| rows[*rank][1] != counts[*rank] as u64) {
            None => Ok(counts),
            Some(rank) => {
                let (has, expected) = (rows[rank][1], counts[rank]);
                let why = format!(
                    "rank {rank} has {has} elements, and the root, rank {root}, expects {expected}"
                );
                Err(Error::Invalid { rank: self.rank(), operation, why })
            }
        }
    }
}

fn blocks(counts: &[usize]) -> Counts {
    Counts::Blocks(counts.to_vec())
}

fn to_counts(told: &[u64]) -> Vec<usize> {
    told.iter().map(|count| *count as usize).collect()
}

//! Collectives whose blocks differ in length from rank to rank.
//!
//! They run the same schedules as the collectives of equal counts, over another layout. All ranks
//! of an all-gather or a reduce-scatter pass the same counts, which are part of the call's
//! fingerprint. The counts of a gather, a scatter or an all-to-all are known to some ranks only, so
//! a small all-gather sends them to all ranks first. Then every algorithm can run, and lengths that
//! contradict one another are an error on every rank.

use crate::comm::Communicator;
use crate::element::{Element, Loan, ReduceOp, lend};
use crate::engine::calls::call::CollectiveCall;
use crate::engine::calls::counts::RankCounts;
use crate::error::{Error, Result};
use crate::schedule::collective::Collective;
use maypole_kernels::{View, ViewMut};

impl Communicator {
    /// Collects the `input` of all ranks, in rank order, in every rank's `output`. The input of
    /// rank `r` has `counts[r]` elements. All ranks pass the same `counts`.
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

    /// Combines the `input` of all ranks. Block `r` of the result, `counts[r]` elements, goes into
    /// rank `r`'s `output`. All ranks pass the same `counts`.
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

    /// Collects the `input` of all ranks, in rank order, in the root's `output`. The input of rank
    /// `r` has `counts[r]` elements. Only the root's `counts` and `output` are used.
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
        let counts = self.root_counts("gather_v", counts, input.len(), output.len(), root)?;
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

    /// Copies block `r` of the root's `input`, `counts[r]` elements, into rank `r`'s `output`. Only
    /// the root's `counts` and `input` are used.
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
        let counts = self.root_counts("scatter_v", counts, output.len(), input.len(), root)?;
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

    /// Sends block `r` of this rank's `input`, `send_counts[r]` elements, to rank `r`. Block `s` of
    /// `output`, `receive_counts[s]` elements, comes from rank `s`.
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
        let all = self.gather_rows(&both)?;
        let sends: Vec<Vec<usize>> =
            all.chunks(2 * world).map(|row| to_counts(&row[..world])).collect();
        let receives: Vec<Vec<usize>> =
            all.chunks(2 * world).map(|row| to_counts(&row[world..])).collect();
        let pairs = (0..world).flat_map(|from| (0..world).map(move |to| (from, to)));
        for (from, to) in pairs {
            let sent = sends[from][to];
            let expected = receives[to][from];
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
            RankCounts::Pairs(sends),
            input,
            output,
            T::DATA_TYPE,
        )
    }

    pub(crate) fn run_v(
        &mut self,
        collective: Collective,
        op: ReduceOp,
        counts: RankCounts,
        input: View<'_>,
        output: ViewMut<'_>,
        kind: crate::element::DataType,
    ) -> Result<()> {
        let engine = self.engine.get_mut();
        let call = CollectiveCall {
            collective,
            kind,
            op: op.into(),
            count: engine.intern(counts),
            deterministic: engine.settings().is_deterministic_for(collective),
            in_place: false,
        };
        self.run_call(call, op, input, output)
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
            (_, None) => Err(self.invalid(operation, "the sum of the counts overflows".to_owned())),
            _ => Ok(()),
        }
    }

    /// Returns the `row` of every rank, one after the other. The tuner chooses the algorithm,
    /// because the algorithm that the user named may not implement all-gather.
    fn gather_rows(&mut self, row: &[u64]) -> Result<Vec<u64>> {
        let mut rows = vec![0; row.len() * self.world()];
        let plan = self.engine.get_mut().settings_mut().set_plan(None);
        let gathered = self.all_gather(row, &mut rows);
        self.engine.get_mut().settings_mut().set_plan(plan);
        gathered.map(|()| rows)
    }

    /// Tells all ranks the root's counts, and compares them with the length of each rank's block.
    fn root_counts(
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
        // One row for each rank: whether its own arguments agree, the length of its block, and at
        // the root all counts.
        let mut row = vec![0; world + 2];
        row[0] = u64::from(wrong.is_some());
        row[1] = mine as u64;
        if self.rank() == root && wrong.is_none() {
            row[2..].iter_mut().zip(counts).for_each(|(told, count)| *told = *count as u64);
        }
        let rows = self.gather_rows(&row)?;
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
                let has = rows[rank][1];
                let expected = counts[rank];
                let why = format!(
                    "rank {rank} has {has} elements, and the root, rank {root}, expects {expected}"
                );
                Err(Error::Invalid { rank: self.rank(), operation, why })
            }
        }
    }
}

fn blocks(counts: &[usize]) -> RankCounts {
    RankCounts::Blocks(counts.to_vec())
}

fn to_counts(told: &[u64]) -> Vec<usize> {
    told.iter().map(|count| *count as usize).collect()
}

//! Collectives whose blocks differ in length from rank to rank.
//!
//! They run the same schedules as the collectives of equal counts, over another layout. All ranks
//! of an all-gather or a reduce-scatter pass the same counts, which are part of the call's
//! fingerprint. The counts of a gather, a scatter or an all-to-all exist on some ranks only, so a
//! small all-gather sends them to all ranks first. Then every algorithm can run, and lengths that
//! contradict one another are an error on every rank.

use crate::comm::Communicator;
use crate::engine::calls::counts::{BufferLengths, CallCount, RankCounts, check_len};
use crate::error::Result;
use crate::schedule::collective::Collective;

impl Communicator {
    /// The counts of all ranks, given those that this rank passes: of its input's blocks, and of
    /// its output's. Collective if one rank lacks some of them.
    pub(super) fn given_count(
        &mut self,
        collective: Collective,
        lengths: BufferLengths,
        counts: [Option<&[usize]>; 2],
    ) -> Result<CallCount> {
        let operation = collective.name();
        let BufferLengths::Apart { input, output } = lengths else {
            let why = "blocks of unequal lengths need an output apart from the input";
            return Err(self.invalid(operation, why.to_owned()));
        };
        let [sent, received] = counts;
        let sent = sent.or(received).unwrap_or_default();
        let received = received.unwrap_or(sent);
        let counts = match collective {
            Collective::AllGather => {
                self.check_blocks(operation, received, Some(input), output)?;
                RankCounts::Blocks(received.to_vec())
            }
            Collective::ReduceScatter => {
                self.check_blocks(operation, sent, Some(output), input)?;
                RankCounts::Blocks(sent.to_vec())
            }
            Collective::Gather { root } => {
                RankCounts::Blocks(self.root_counts(operation, received, input, output, root)?)
            }
            Collective::Scatter { root } => {
                RankCounts::Blocks(self.root_counts(operation, sent, output, input, root)?)
            }
            Collective::AllToAll => {
                self.check_blocks(operation, sent, None, input)?;
                self.check_blocks(operation, received, None, output)?;
                RankCounts::Pairs(self.pair_counts(operation, sent, received)?)
            }
            _ => {
                let why = "its blocks cannot differ in length";
                return Err(self.invalid(operation, why.to_owned()));
            }
        };
        Ok(self.engine.get_mut().calls.counts.name(counts))
    }

    /// What every rank sends to every rank: one row a sender.
    fn pair_counts(
        &mut self,
        operation: &'static str,
        sent: &[usize],
        received: &[usize],
    ) -> Result<Vec<Vec<usize>>> {
        let world = self.world();
        let both: Vec<u64> = sent.iter().chain(received).map(|count| *count as u64).collect();
        let all = self.gather_rows(&both)?;
        let halves = all.chunks(2 * world).map(|row| row.split_at(world));
        let halves = halves.map(|(sent, received)| (to_counts(sent), to_counts(received)));
        let (sends, receives): (Vec<_>, Vec<_>) = halves.unzip();
        let mut pairs = (0..world).flat_map(|from| (0..world).map(move |to| (from, to)));
        match pairs.find(|(from, to)| sends[*from][*to] != receives[*to][*from]) {
            None => Ok(sends),
            Some((from, to)) => {
                let (sent, expected) = (sends[from][to], receives[to][from]);
                let why = format!(
                    "rank {from} sends {sent} elements to rank {to}, which expects {expected}"
                );
                Err(self.invalid(operation, why))
            }
        }
    }

    /// Checks one count for each rank, the length of this rank's block, and that of the whole.
    fn check_blocks(
        &self,
        operation: &'static str,
        counts: &[usize],
        block: Option<usize>,
        whole: usize,
    ) -> Result<()> {
        if counts.len() != self.world() {
            let why = format!("there are {} counts and {} ranks", counts.len(), self.world());
            return Err(self.invalid(operation, why));
        }
        let sum = counts.iter().try_fold(0usize, |sum, count| sum.checked_add(*count));
        let Some(sum) = sum else {
            return Err(self.invalid(operation, "the sum of the counts overflows".to_owned()));
        };
        let mine = block.map_or(Ok(()), |block| {
            check_len("buffer of this rank's block", block, counts[self.rank()])
        });
        mine.and_then(|()| check_len("buffer of all blocks", whole, sum))
            .map_err(|why| self.invalid(operation, why))
    }

    /// Returns the `row` of every rank, one after the other. The tuner chooses the algorithm,
    /// because the algorithm that the user named may not implement all-gather.
    fn gather_rows(&mut self, row: &[u64]) -> Result<Vec<u64>> {
        let mut rows = vec![0; row.len() * self.world()];
        let plan = self.engine.get_mut().settings.plan.take();
        let gathered = self.all_gather((row, &mut rows));
        self.engine.get_mut().settings.plan = plan;
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
        let check = || self.check_blocks(operation, counts, Some(mine), whole).err();
        let wrong = (self.rank() == root).then(check).flatten();
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
            let why = format!("the arguments of the root, rank {root}, contradict one another");
            return Err(self.invalid(operation, why));
        }
        let counts = to_counts(&rows[root][2..]);
        match (0..world).find(|rank| rows[*rank][1] != counts[*rank] as u64) {
            None => Ok(counts),
            Some(rank) => {
                let (has, expected) = (rows[rank][1], counts[rank]);
                let why = format!(
                    "rank {rank} has {has} elements, and the root, rank {root}, expects {expected}"
                );
                Err(self.invalid(operation, why))
            }
        }
    }
}

fn to_counts(told: &[u64]) -> Vec<usize> {
    told.iter().map(|count| *count as usize).collect()
}

//! Rows by speed: every N steps the rows of a batch are divided anew, by the time that each rank
//! takes for a row.
//!
//! * **Sharded:** the rows of a batch. The rows of a replica are a multiple of the micro-batches of
//!   a step, so its micro-batches have equally many rows.
//! * **Collective:** an all-gather of one number of each rank, every N steps.
//! * **Cost:** that number. A division is kept unless another one is predicted to make a step more
//!   than 5 % shorter, because times are noisy and each new division needs buffers of other
//!   lengths.
//!
//! The time that counts is that of the passes, without the waits for other ranks: with its waits a
//! fast rank would be as slow as the rank that it waits for. It is wall time, not processor time,
//! because another program on the core makes a rank slow too. Of N steps the median counts.
//!
//! Ranks of one replica (along `pp`, `cp` and `tp`) have the same rows, so the slowest of them
//! decides.

use crate::averaging::DataForm;
use crate::unequal::divide::{ShareCost, divide, slowest};
use maypole::Result;
use maypole_trainer::model::batch::TokenBatch;
use maypole_trainer::model::config::Config;
use maypole_trainer::ranks::group::RankGroup;
use maypole_trainer::ranks::mesh::MeshAxis;
use maypole_trainer::tensor::math::Real;
use maypole_trainer::train::parallelism::Parallelism;
use maypole_trainer::train::rows::{RankRows, Rows};
use maypole_trainer::train::text::Text;
use maypole_trainer::train::trainer::Trainer;
use std::ops::Range;

/// Rows are divided anew if a step is predicted to become shorter by more than this share.
const WORTH: f64 = 0.05;
/// The most steps between two divisions whose times are kept. Later steps do not count.
const MOST_TIMES: usize = 1 << 12;

/// The division of a batch's rows over replicas, which are the ranks of `dp` and `ep`.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum RowDivision {
    /// All replicas have equally many rows.
    #[default]
    Equal,
    /// By the speed of each replica.
    BySpeed {
        /// Steps from one division to the next, at least one.
        every: u64,
        /// The source of the times.
        clock: SpeedClock,
    },
}

/// The source of the times by which rows are divided.
#[derive(Clone, Debug, PartialEq)]
pub enum SpeedClock {
    /// The passes of each rank are timed.
    Measured,
    /// The given seconds for a row, one number for each replica, in place of measured times.
    /// Divisions are then the same in each run.
    Pretended(Vec<f64>),
}

impl RowDivision {
    /// Reads `25`, or `25:1,2`: the steps between divisions, and the pretended seconds of a row.
    ///
    /// # Errors
    /// A sentence with the error and a valid form.
    pub fn parse(text: &str) -> std::result::Result<Self, String> {
        let wrong = || {
            format!(
                "'{text}' is no division of rows: give the steps between divisions, as 25, \
                 and perhaps the seconds that each rank of dp is to take for a row, as 25:1,2"
            )
        };
        let (every, seconds) =
            text.split_once(':').map_or((text, None), |(every, rest)| (every, Some(rest)));
        let every = every.parse().ok().filter(|every| *every > 0).ok_or_else(wrong)?;
        let Some(seconds) = seconds else {
            return Ok(Self::BySpeed { every, clock: SpeedClock::Measured });
        };
        let number = |text: &str| text.trim().parse().ok().filter(|it| is_time(*it));
        let seconds: Option<Vec<f64>> = seconds.split(',').map(number).collect();
        Ok(Self::BySpeed { every, clock: SpeedClock::Pretended(seconds.ok_or_else(wrong)?) })
    }

    /// Checks that the ranks of `setup` can divide the rows of a model of `config` in this way.
    ///
    /// # Errors
    /// A sentence that names the two options that do not combine, and a remedy.
    pub fn check(
        &self,
        config: &Config,
        setup: &Parallelism,
        form: DataForm,
    ) -> std::result::Result<(), String> {
        let Self::BySpeed { clock, .. } = self else { return Ok(()) };
        let replicas = setup.mesh.sizes(&[MeshAxis::Dp, MeshAxis::Ep]);
        if let SpeedClock::Pretended(seconds) = clock
            && seconds.len() != replicas
        {
            return Err(format!(
                "--rows-by-speed pretends the speed of {} ranks, and rows are divided over \
                 {replicas}: give {replicas} numbers, or leave them out to measure",
                seconds.len()
            ));
        }
        if form.diverges() {
            let why = "--rows-by-speed sums gradients by their rows, but ranks that train apart \
                       average weights, each as much as the others: give another --sharding";
            return Err(why.to_owned());
        }
        let columns = config.context / setup.mesh.size(MeshAxis::Cp);
        let tp = setup.mesh.size(MeshAxis::Tp);
        if setup.sequence && !columns.is_multiple_of(tp) {
            return Err(format!(
                "--rows-by-speed may leave a rank one row, and --sequence divides its {columns} \
                 tokens over tp={tp}: give --context {}",
                config.context.next_multiple_of(tp * setup.mesh.size(MeshAxis::Cp))
            ));
        }
        Ok(())
    }

    /// From now on the rows of `trainer`, which has done no step, are divided in this way. All ranks
    /// call it.
    pub fn plant<T: Real>(&self, trainer: &mut Trainer<T>) {
        if *self == Self::Equal {
            return;
        }
        let Trainer { parallelism: setup, groups, parts, .. } = trainer;
        let rows = RankRows::new(&parts.model.config, setup, groups);
        let mesh = groups.mesh;
        let replicas = (0..mesh.world()).map(|rank| mesh.rows(mesh.place(rank)).index).collect();
        let balance = RowBalance::new(self.clone(), replicas, rows.replica.index, rows.micros);
        parts.rows = Box::new(RowsBySpeed { rows, balance, world: groups.world.clone() });
    }
}

/// The rows of a rank whose replica may have more or fewer than the others.
#[derive(Debug)]
struct RowsBySpeed {
    rows: RankRows,
    balance: RowBalance,
    world: RankGroup,
}

impl Rows for RowsBySpeed {
    fn microbatches(
        &mut self,
        text: &Text,
        step: (u64, usize),
        scale: f64,
    ) -> Result<Vec<TokenBatch>> {
        let mine = self.balance.range(step.1);
        self.rows.read(text, step, mine, scale)
    }

    fn after(&mut self, steps: u64, work: f64) -> Result<()> {
        if let Some(rows) = self.balance.observe(&self.world, steps, work)? {
            self.balance.adopt(rows);
        }
        Ok(())
    }

    fn each(&self) -> Option<&[usize]> {
        Some(&self.balance.each)
    }
}

/// True if a clock can measure so many seconds: finite and positive.
fn is_time(seconds: f64) -> bool {
    seconds.is_finite() && seconds > 0.0
}

/// The rows of each replica, and the measured times of this rank.
#[derive(Clone, Debug)]
struct RowBalance {
    division: RowDivision,
    /// The replica of each rank of the mesh.
    replicas: Vec<usize>,
    /// The number of this rank's replica.
    own: usize,
    /// The rows of each replica are a multiple of this number.
    unit: usize,
    /// The rows of each replica; empty before the first step.
    each: Vec<usize>,
    /// The seconds for a row in each step since the last division.
    times: Vec<f64>,
}

impl RowBalance {
    /// The balance of a rank of replica `own`. Rank `r` of the mesh belongs to replica
    /// `replicas[r]`, and a step has `micros` micro-batches.
    fn new(division: RowDivision, replicas: Vec<usize>, own: usize, micros: usize) -> Self {
        let (each, times) = (Vec::new(), Vec::new());
        Self { division, replicas, own, unit: micros, each, times }
    }

    /// Returns which of the `rows` rows of a batch this rank's replica has. A batch with another
    /// number of rows than the last one is divided equally.
    fn range(&mut self, rows: usize) -> Range<usize> {
        if self.each.iter().sum::<usize>() != rows {
            let replicas = self.replicas.iter().max().map_or(1, |last| last + 1);
            let equal = vec![ShareCost { fixed: 0.0, each: 1.0 }; replicas];
            self.each = self.divided(rows, &equal);
            self.times.clear();
        }
        let first = self.each[..self.own].iter().sum();
        first..first + self.each[self.own]
    }

    fn divided(&self, rows: usize, costs: &[ShareCost]) -> Vec<usize> {
        let shares = divide(rows / self.unit, costs);
        shares.into_iter().map(|share| share * self.unit).collect()
    }

    /// Notes that the passes of step number `step` took `seconds` without waits. Returns a new
    /// division if one is due and makes steps shorter. It takes effect with [`adopt`](Self::adopt).
    /// All ranks of `world` call this after every step, and all get the same division.
    fn observe(
        &mut self,
        world: &RankGroup,
        step: u64,
        seconds: f64,
    ) -> Result<Option<Vec<usize>>> {
        let RowDivision::BySpeed { every, clock } = &self.division else { return Ok(None) };
        let every = *every;
        let of_a_row = match clock {
            SpeedClock::Measured => seconds / self.each[self.own].max(1) as f64,
            SpeedClock::Pretended(seconds) => seconds[self.own],
        };
        self.note(of_a_row);
        if !step.is_multiple_of(every) {
            return Ok(None);
        }
        let own = median(&mut self.times);
        self.times.clear();
        let all = world.gather(&[own])?;
        Ok(self.better(&all))
    }

    /// Adds the seconds for a row in one more step. The latest [`MOST_TIMES`] steps count.
    fn note(&mut self, of_a_row: f64) {
        if self.times.len() == MOST_TIMES {
            self.times.remove(0);
        }
        self.times.push(of_a_row);
    }

    /// Returns the division for ranks that take these `seconds` for a row, if it makes a step
    /// shorter by more than [`WORTH`].
    fn better(&self, seconds: &[f64]) -> Option<Vec<usize>> {
        if !seconds.iter().all(|seconds| is_time(*seconds)) {
            return None;
        }
        let mut costs = vec![ShareCost::default(); self.each.len()];
        for (replica, seconds) in self.replicas.iter().zip(seconds) {
            costs[*replica].each = costs[*replica].each.max(*seconds);
        }
        let shares = self.divided(self.each.iter().sum(), &costs);
        let gain = 1.0 - slowest(&shares, &costs) / slowest(&self.each, &costs);
        (gain > WORTH).then_some(shares)
    }

    /// Sets the rows of each replica from the next step on.
    fn adopt(&mut self, each: Vec<usize>) {
        self.each = each;
    }
}

/// Returns the median of `times`, which is not empty.
fn median(times: &mut [f64]) -> f64 {
    let middle = times.len() / 2;
    *times.select_nth_unstable_by(middle, f64::total_cmp).1
}

#[cfg(test)]
mod tests {
    use super::*;
    use maypole_trainer::tensor::random::random;

    fn balance(replicas: Vec<usize>, micros: usize) -> RowBalance {
        let division = RowDivision::BySpeed { every: 4, clock: SpeedClock::Measured };
        RowBalance::new(division, replicas, 0, micros)
    }

    #[test]
    fn the_slowest_rank_of_a_replica_decides() {
        let mut it = balance(vec![0, 0, 1, 1], 1);
        assert_eq!(it.range(12), 0..6);
        assert_eq!(it.better(&[1.0, 2.0, 1.0, 1.0]), Some(vec![4, 8]));
    }

    #[test]
    fn rows_stay_multiples_of_the_micro_batches() {
        let mut it = balance(vec![0, 1], 4);
        it.range(32);
        assert_eq!(it.better(&[1.0, 3.0]), Some(vec![24, 8]));
    }

    #[test]
    fn noise_moves_no_rows_and_a_slow_rank_does() {
        let mut it = balance(vec![0, 1, 2, 3], 1);
        it.range(64);
        let noisy = |nth: u64| (random(1, nth) % 1000) as f64 / 1000.0 * 0.04 + 1.0;
        for nth in 0..1000 {
            let seconds: Vec<f64> = (0..4).map(|rank| noisy(4 * nth + rank)).collect();
            assert_eq!(it.better(&seconds), None, "{seconds:?}");
        }
        let slow = it.better(&[1.0, 1.02, 2.0, 0.99]).unwrap();
        assert!(slow[2] < 11 && slow.iter().sum::<usize>() == 64, "{slow:?}");
        // Rows are equal again once the rank is as fast as the others.
        it.adopt(slow);
        assert_eq!(it.better(&[1.0; 4]), Some(vec![16; 4]));
    }

    #[test]
    fn times_that_no_clock_measures_move_nothing() {
        let mut it = balance(vec![0, 1], 1);
        it.range(8);
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(it.better(&[1.0, wrong]), None);
        }
    }

    #[test]
    fn the_median_of_the_steps_counts() {
        let mut it = balance(vec![0], 1);
        it.range(8);
        let group = RankGroup::single();
        for (step, seconds) in [(1, 1.0), (2, 90.0), (3, 1.0), (4, 1.0)] {
            assert_eq!(it.observe(&group, step, seconds).unwrap(), None);
        }
        assert!(it.times.is_empty(), "the next division uses only later steps");
    }

    /// A rank that becomes slow late in a long time between two divisions is seen.
    #[test]
    fn the_latest_steps_count() {
        let mut it = balance(vec![0], 1);
        (0..MOST_TIMES).for_each(|_| it.note(1.0));
        (0..=MOST_TIMES / 2).for_each(|_| it.note(2.0));
        assert_eq!((it.times.len(), median(&mut it.times)), (MOST_TIMES, 2.0));
    }

    #[test]
    fn divisions_are_read() {
        let measured = RowDivision::BySpeed { every: 25, clock: SpeedClock::Measured };
        assert_eq!(RowDivision::parse("25"), Ok(measured));
        let clock = SpeedClock::Pretended(vec![1.0, 2.5]);
        assert_eq!(RowDivision::parse("3:1,2.5"), Ok(RowDivision::BySpeed { every: 3, clock }));
        for wrong in ["", "0", "-1", "x", "3:", "3:1,0", "3:1,-2", "3:nan", "3:inf,1"] {
            assert!(RowDivision::parse(wrong).unwrap_err().contains("25:1,2"), "{wrong}");
        }
    }
}

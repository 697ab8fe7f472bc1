//! Whether a measurement can be trusted: other load as detected by `perf`, and the fit of lines.
//!
//! A table that was measured under other load would make every later job choose badly. So a
//! disturbed measurement is repeated, and if all are disturbed, nothing is saved.

use super::{FitReport, measure};
use crate::output;
use crate::perf::mapping::RankMapping;
use crate::perf::measure::noise::{Noise, NoiseWatch};
use crate::perf::measure::summary::Summary;
use anyhow::{Result, ensure};
use maypole::Communicator;
use maypole::tuner::CostTable;

/// The most attempts to measure.
const ATTEMPTS: u32 = 4;
/// The largest error of a line, relative to the measured time, with which a table is saved.
const TOLERANCE: f64 = 0.6;

/// What a measurement has found, and what speaks against it.
pub(super) struct Attempt {
    pub(super) table: CostTable,
    /// The largest error of a line, relative to the measured time.
    pub(super) error: f64,
    /// What disturbed it, in words.
    pub(super) disturbance: Option<String>,
}

impl Attempt {
    fn of(table: CostTable, report: &FitReport, noise: &Noise) -> Self {
        let spread = Summary::of(&report.relative);
        let disturbance = spread.and_then(|spread| noise.words(&spread));
        Self { table, error: report.error, disturbance }
    }

    /// True if measuring once more may help.
    fn is_to_be_repeated(&self) -> bool {
        self.disturbance.is_some() || self.error > TOLERANCE || self.table.check().is_err()
    }

    /// Refuses a table that was measured under other load, and one that fits badly.
    ///
    /// # Errors
    ///
    /// What speaks against the table, and what to do.
    pub(super) fn judge(&self) -> Result<()> {
        let disturbance = self.disturbance.as_deref().unwrap_or_default();
        ensure!(
            disturbance.is_empty(),
            "each of {ATTEMPTS} measurements was disturbed, the last because {disturbance}; so \
             nothing is saved; repeat when the host is idle, or use --force"
        );
        let percent = (self.error * 100.0).round();
        ensure!(
            self.error <= TOLERANCE,
            "the fitted lines are off by up to {percent} %, so nothing is saved; repeat when the \
             host is idle, or use --force"
        );
        Ok(())
    }
}

/// Measures until nothing speaks against the result, at most [`ATTEMPTS`] times; the last counts. `None` on
/// rank 1 if rank 0 cannot print.
pub(super) fn settled(
    world: &mut Communicator,
    samples: u32,
    has_cores: bool,
) -> Result<Option<Attempt>> {
    let watch = NoiseWatch::new(&RankMapping::exchange(world, has_cores)?);
    let mut attempts = 0;
    loop {
        let before = watch.begin();
        let Some((table, report)) = measure(world, samples)? else { return Ok(None) };
        let noise = watch.end(world, &before)?;
        let attempt = Attempt::of(table, &report, &noise);
        attempts += 1;
        // Rank 0 decides, so that both ranks stop together.
        let mut goes_on = [u8::from(attempt.is_to_be_repeated() && attempts < ATTEMPTS)];
        world.broadcast(&mut goes_on, 0)?;
        if goes_on[0] == 0 {
            return Ok(Some(attempt));
        }
        if world.rank() == 0 {
            let why = attempt.disturbance.as_deref().unwrap_or("the lines fit badly");
            output::complain(format_args!("measuring again, because {why}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing was taken during a second on two cores.
    fn quiet() -> Noise {
        Noise { others: Some(0.0), stolen: Some(0.0), cores: 2.0, involuntary: 0, seconds: 1.0 }
    }

    /// An attempt whose samples lie within `spread` of one another, and whose lines are off by `error`.
    fn attempt(noise: Noise, spread: f64, error: f64) -> Attempt {
        let mut report = FitReport::new(false);
        report.relative = (0..=100).map(|nth| 1.0 + spread * f64::from(nth) / 100.0).collect();
        report.error = error;
        Attempt::of(CostTable::BUILT_IN, &report, &noise)
    }

    #[track_caller]
    fn is_refused(attempt: &Attempt, says: &str) {
        assert!(attempt.is_to_be_repeated());
        let why = attempt.judge().unwrap_err().to_string();
        assert!(why.contains(says) && why.contains("--force"), "{why}");
    }

    #[test]
    fn a_quiet_measurement_is_kept() {
        let quiet = attempt(quiet(), 0.2, 0.1);
        assert!(!quiet.is_to_be_repeated() && quiet.judge().is_ok());
    }

    #[test]
    fn other_programs_stolen_time_and_wild_samples_are_refused() {
        let others = Noise { others: Some(0.5), involuntary: 9, ..quiet() };
        is_refused(&attempt(others, 0.2, 0.1), "other programs took 0.5 of the ranks' 2 cores");
        let stolen = Noise { stolen: Some(0.4), ..quiet() };
        is_refused(&attempt(stolen, 0.2, 0.1), "the hypervisor took 0.4 cores");
        is_refused(&attempt(quiet(), 2.0, 0.1), "the batches spread by");
    }

    #[test]
    fn lines_that_fit_badly_are_refused() {
        is_refused(&attempt(quiet(), 0.2, 0.7), "off by up to 70 %");
    }

    #[test]
    fn what_the_kernel_does_not_count_is_no_disturbance() {
        let unknown = Noise { others: None, stolen: None, ..quiet() };
        assert!(attempt(unknown, 0.2, 0.1).judge().is_ok());
    }
}

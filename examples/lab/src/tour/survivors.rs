//! The tour's row of a rank that dies.
//!
//! What it does: ranks train under ZeRO-1, one of them leaves in the middle, and the others continue. The
//! losses and weights are compared, to the bit, with one process that adds gradients in the order of
//! the ranks of each step. So a lost or outdated number of the optimizer
//! fails the row. The bytes are those of the last step, in which two ranks train.
//! What is sharded, which collective runs where, cost: in [`survivors`](crate::survivors).

use crate::compare::Recipe;
use crate::replicas::SumFirst;
use crate::survivors::keeper::keep_states;
use crate::survivors::kept::RecoveryError;
use crate::survivors::recovery::Survivors;
use crate::tour::TourSettings;
use crate::tour::data_parallel::check;
use crate::tour::meshes::{MeshCheck, RankResult};
use crate::tour::row::TourRow;
use maypole::Communicator;
use maypole_trainer::data_parallel::sharding::Sharding;
use maypole_trainer::train::text::Text;
use maypole_trainer::train::trainer::Trainer;
use std::time::{Duration, Instant};

const FORM: Sharding = Sharding::Zero1;
/// Ranks of the last step.
const LAST: usize = 2;
/// Rows of a batch: two and three ranks divide them evenly.
const ROWS: usize = 6;
/// How long anything here may take.
const PATIENCE: Duration = Duration::from_secs(30);

type Outcome<T> = Result<T, RecoveryError>;

/// A training of which ranks die.
struct MortalRun {
    /// The last step, in which every rank has a copy of its neighbour's part of the optimizer.
    check: MeshCheck,
    /// The steps before the death.
    first: u64,
}

impl MortalRun {
    fn new(axis: &'static str, settings: &TourSettings) -> Self {
        let steps = settings.steps.unwrap_or(10).max(3);
        let mut check = check(axis, LAST, FORM);
        let devices = settings.devices.clone();
        check.recipe = Recipe { devices, rows: ROWS, steps, ..check.recipe };
        (check.plant, check.copies_state) = (settings.plant, true);
        Self { check, first: steps.div_ceil(3) }
    }

    fn trainer(&self, comm: Communicator) -> maypole::Result<Trainer<f32>> {
        let mut trainer = self.check.recipe.trainer(comm, 1, FORM)?;
        self.check.plant.map_or(Ok(()), |plant| plant(&mut trainer))?;
        Ok(trainer)
    }

    fn begin(&self, mut comm: Communicator) -> Outcome<(Survivors, Trainer<f32>)> {
        comm.set_timeout(PATIENCE);
        let survivors = Survivors::new(&mut comm)?;
        let mut trainer = self.trainer(comm)?;
        keep_states(&mut trainer, None)?;
        Ok((survivors, trainer))
    }

    fn go_on(&self, survivors: &mut Survivors, trainer: Trainer<f32>) -> Outcome<Trainer<f32>> {
        Ok(survivors.go_on(trainer, |comm| self.trainer(comm))?.trainer)
    }

    fn train(&self, trainer: &mut Trainer<f32>, end: u64, losses: &mut Vec<f64>) -> Outcome<()> {
        let text = self.check.recipe.text();
        while trainer.step < end {
            losses.push(trainer.step(&text, ROWS)?.report.loss);
        }
        Ok(())
    }

    /// Notices that a rank has gone: a step fails.
    fn notice(&self, trainer: &mut Trainer<f32>, text: &Text) {
        let failed = trainer.step(text, ROWS).is_err();
        assert!(failed, "a step succeeds without a rank that has gone");
    }

    /// Trains to the end, and measures the last step.
    /// Trains to the end; `losses` are those before.
    fn end(&self, mut trainer: Trainer<f32>, losses: Vec<f64>) -> Outcome<RankResult> {
        let mut seen = RankResult::of(&self.check.recipe, &mut trainer)?;
        seen.outcome.losses.splice(0..0, losses);
        Ok(seen)
    }

    /// The row of ranks that have `seen` a training in `worlds`: ranks, and the step until which there
    /// were so many.
    fn row(
        &self,
        worlds: &[(usize, u64)],
        seen: Outcome<Vec<RankResult>>,
        seconds: f64,
    ) -> TourRow {
        let ranks: Vec<String> = worlds.iter().map(|(ranks, _)| ranks.to_string()).collect();
        let row = |first| TourRow {
            mesh: format!("dp={}", ranks.join(", ")),
            ranks: worlds.iter().map(|world| world.0).max().unwrap_or(0),
            criterion: "bitwise".to_owned(),
            ..self.check.row(first, seconds)
        };
        // A rank could not continue: the row does not pass.
        let Ok(seen) = seen else { return row(None) };
        let alone = self.check.recipe.alone_in(worlds, 1, SumFirst::MicroBatches);
        let differences = seen.iter().map(|rank| rank.outcome.difference(&alone));
        let differences: Vec<_> = differences.collect();
        let difference =
            differences.iter().map(|all| all.loss.max(all.weights)).fold(0.0, f64::max);
        let equal = differences.iter().all(|all| all.bitwise) && seen.len() == LAST;
        TourRow { difference, pass: equal && self.check.is_exact(&seen), ..row(seen.first()) }
    }
}

/// One of three ranks dies, and two continue.
pub(crate) fn without_a_rank(axis: &'static str, settings: &TourSettings) -> TourRow {
    let run = MortalRun::new(axis, settings);
    let start = Instant::now();
    let rank = |comm: Communicator| -> Outcome<Option<RankResult>> {
        let dies = comm.rank() == 1;
        let (mut survivors, mut trainer) = run.begin(comm)?;
        let mut losses = Vec::new();
        run.train(&mut trainer, run.first, &mut losses)?;
        if dies {
            return Ok(None);
        }
        run.notice(&mut trainer, &run.check.recipe.text());
        let trainer = run.go_on(&mut survivors, trainer)?;
        run.end(trainer, losses).map(Some)
    };
    let seen = Communicator::run_local(3, rank).into_iter();
    let seen = seen.filter_map(Outcome::transpose).collect();
    let worlds = [(3, run.first), (2, run.check.recipe.steps)];
    run.row(&worlds, seen, start.elapsed().as_secs_f64())
}

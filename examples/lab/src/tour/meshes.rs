//! The tour's checks for the axes that divide the model. Each trains the same model as one process
//! and compares both.
//!
//! What it does: runs every [`MeshCheck`] on threads of this process and makes a [`TourRow`] of it.
//! What is sharded, which collective runs where, cost: in the file of each axis. The bytes
//! of a row are those of rank 0. A row passes only if the bytes of every rank equal the theory of
//! that rank. [`list`](crate::tour::list) has all checks.

use crate::compare::{OutcomeDifference, Recipe, TrainingOutcome, alone};
use crate::overlap::ObservedStore;
use crate::rebalance::ExpertMove;
use crate::replay::gather_trace;
use crate::theory::RankTheory;
use crate::tour::Plant;
use crate::tour::measure::StepMeasure;
use crate::tour::pipeline::PipelineCheck;
use crate::tour::row::TourRow;
use crate::unequal::divide::{ShareCost, divide};
use crate::unequal::rows::{RowDivision, SpeedClock};
use maypole::Result;
use maypole_trainer::expert_parallel::layer::RoutingRecord;
use maypole_trainer::model::config::Config;
use maypole_trainer::pipeline_parallel::trace::PipelineTrace;
use maypole_trainer::ranks::traffic::Traffic;
use maypole_trainer::train::optim::Rule;
use maypole_trainer::train::parallelism::Parallelism;
use maypole_trainer::train::schedule::RateSchedule;
use maypole_trainer::train::text::Text;
use maypole_trainer::train::trainer::Trainer;
use std::time::Instant;

/// Rows of a batch.
pub(crate) const ROWS: usize = 8;
/// Adam with a large epsilon. With a small epsilon a rounding error in a gradient near zero would
/// change the weight by a whole step, and runs could not be compared.
const RULE: Rule = Rule::AdamW { beta1: 0.9, beta2: 0.95, epsilon: 1e-4, decay: 0.1 };

pub(crate) fn recipe() -> Recipe {
    let schedule = RateSchedule::constant(1e-2);
    let text = |config: &Config| Text::invented(config.context, 1);
    Recipe { rule: RULE, schedule, text, rows: ROWS, ..Recipe::default() }
}

/// Compares a check bitwise with another way to compute the same values.
pub type BitwiseCheck = fn(&MeshCheck) -> Result<bool>;

/// The configuration of one row.
#[derive(Clone, Debug)]
pub struct MeshCheck {
    /// The title of the row.
    pub axis: &'static str,
    /// What is trained.
    pub recipe: Recipe,
    /// The mesh, and how the model is divided over it.
    pub setup: Parallelism,
    /// The greatest relative difference of losses and of gradient norms, and the greatest
    /// difference of weights, from one process. 0: bitwise equal.
    pub bound: f64,
    /// A second, bitwise comparison and its name: of the forward pass with one process, or of the
    /// run with a run on another mesh.
    pub also: Option<(&'static str, BitwiseCheck)>,
    /// Changes each rank before its first step.
    pub plant: Option<Plant>,
}

impl MeshCheck {
    /// Trains for `steps` steps on the mesh and in one process.
    ///
    /// # Errors
    /// As every collective.
    ///
    /// # Panics
    /// If the setup does not go with the model.
    pub fn run(&self, steps: u64) -> Result<TourRow> {
        self.setup.check(&self.recipe.config, ROWS).expect("a check of the tour is possible");
        let begun = Instant::now();
        let seen = self.train(&self.setup, steps)?;
        let seconds = begun.elapsed().as_secs_f64();
        let alone = Parallelism { micros: self.setup.micros, ..alone(&self.setup) };
        let right = Self { recipe: self.recipe.right(), plant: None, ..self.clone() };
        let reference = right.train(&alone, steps)?;
        let clips = self.recipe.clip.is_some();
        let difference = greatest_difference(&seen, &reference[0], clips);
        let equal =
            difference <= self.bound && self.also.map_or(Ok(true), |(_, same)| same(self))?;
        let theory: Vec<_> =
            seen.iter().enumerate().map(|(rank, seen)| self.theory(rank, &seen.routing)).collect();
        let mut both = seen.iter().zip(&theory);
        let exact = both.all(|(seen, (theory, sent))| seen.step.fits(theory) && seen.sent == *sent);
        let first = &seen[0];
        let (step, sent) = theory[0];
        let moved =
            self.recipe.rebalance.is_none() || first.outcome.moves.iter().any(ExpertMove::any);
        let pipeline = PipelineCheck::new(&self.setup, &self.recipe.config, &first.traces);
        let mesh = self.setup.mesh;
        Ok(TourRow {
            criterion: self.criterion(),
            bound: self.bound,
            difference,
            pass: equal && exact && moved && pipeline.fits(self.recipe.devices.are_processors()),
            bubble: pipeline.bubble,
            bubble_theory: pipeline.theory,
            pipeline: pipeline.replay,
            ..TourRow::new(
                self.axis,
                mesh.to_string(),
                mesh.world(),
                [first.step, step],
                [first.sent, sent].map(|sent| sent.total()),
                seconds,
            )
        })
    }

    /// The minimum of steps of the row: rows are divided by the times of the first step, and experts move
    /// after theirs.
    pub fn least_steps(&self) -> u64 {
        let divided = if self.recipe.division == RowDivision::Equal { 1 } else { 2 };
        self.recipe.rebalance.unwrap_or(1).max(divided)
    }

    /// The theoretical memory, overlap and traffic of `rank` in a step with `routing`.
    fn theory(&self, rank: usize, routing: &RoutingRecord) -> (StepMeasure, Traffic) {
        let mesh = self.setup.mesh;
        let place = mesh.place(rank);
        let rows = self.rows_like(mesh.rows(place).index);
        let site = RankTheory { rows, ..self.recipe.site(&self.setup, place) };
        let states = (self.setup.sharding.into(), RULE.states());
        let step = StepMeasure::theory(&site, states, false, routing);
        let mut sent = site.traffic(routing);
        if self.recipe.division != RowDivision::Equal {
            // The time of a row takes as many again, after each step.
            sent.world += 8 * (mesh.world() as u64 - 1);
        }
        (step, sent)
    }

    /// The rows of a batch in which every replica has as many rows as replica `replica` gets from
    /// the pretended times.
    fn rows_like(&self, replica: usize) -> usize {
        let RowDivision::BySpeed { clock: SpeedClock::Pretended(seconds), .. } =
            &self.recipe.division
        else {
            return ROWS;
        };
        let costs: Vec<_> =
            seconds.iter().map(|each| ShareCost { fixed: 0.0, each: *each }).collect();
        let micros = self.setup.micros;
        divide(ROWS / micros, &costs)[replica] * micros * seconds.len()
    }

    fn criterion(&self) -> String {
        match (self.bound, self.also) {
            (0.0, _) => "bitwise".to_owned(),
            (bound, None) => format!("loss, weights {bound:.0e}"),
            (bound, Some((what, _))) => format!("{bound:.0e}, {what} bitwise"),
        }
    }

    /// Trains `steps` steps on the mesh of `setup`, and returns the result of each rank.
    pub(crate) fn train(&self, setup: &Parallelism, steps: u64) -> Result<Vec<RankResult>> {
        let recipe = Recipe { steps, ..self.recipe.clone() };
        recipe.on_ranks(setup, |trainer| self.rank(&recipe, trainer))
    }

    fn rank(&self, recipe: &Recipe, mut trainer: Trainer<f32>) -> Result<RankResult> {
        recipe.place(&mut trainer);
        self.plant.map_or(Ok(()), |plant| plant(&mut trainer))?;
        let timeline = trainer.watch.timeline.clone();
        let passes = ObservedStore::wrap(&mut trainer.parts.store, &timeline);
        let mut step = StepMeasure::of(&trainer, passes.get());
        let (mut sent, mut traces) = (Traffic::default(), Vec::new());
        let mut outcome = recipe.follow(&mut trainer, |trainer, outcome, bytes| {
            sent = bytes;
            step = StepMeasure::of(trainer, passes.take());
            traces.push(gather_trace(trainer, &outcome)?);
            Ok(())
        })?;
        let routing = trainer.parts.pipeline.routing.borrow().clone();
        outcome.weights = trainer.parts.store.all_weights()?;
        Ok(RankResult { outcome, step, sent, routing, traces })
    }
}

/// The greatest difference of a loss or a weight from one process, on any rank, and of a norm if that has an
/// effect: its squares are added in another order than in one process.
fn greatest_difference(seen: &[RankResult], reference: &RankResult, clips: bool) -> f64 {
    let of = |rank: &RankResult| {
        let OutcomeDifference { loss, norm, weights, .. } =
            rank.outcome.difference(&reference.outcome);
        weights.max(loss).max(if clips { norm } else { 0.0 })
    };
    seen.iter().map(of).fold(0.0, f64::max)
}

/// What a rank computed, held and sent.
pub(crate) struct RankResult {
    pub(crate) outcome: TrainingOutcome,
    step: StepMeasure,
    sent: Traffic,
    routing: RoutingRecord,
    traces: Vec<PipelineTrace>,
}

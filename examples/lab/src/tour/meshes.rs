//! The harness of the tour: a check trains a model on a mesh and in one process, and compares both.
//!
//! What it does: runs every [`MeshCheck`] on threads of this process and makes a [`TourRow`] of it.
//! What is sharded, which collective runs where, cost: in the file of each axis. The bytes
//! of a row are those of rank 0. A row passes only if the bytes of every rank equal the theory of
//! that rank. [`list`](crate::tour::list) has all checks.

use crate::averaging::DataForm;
use crate::compare::{OutcomeDifference, Recipe, TrainingOutcome, alone, nan_as_infinity};
use crate::memory::{FULL, wire};
use crate::overlap::ObservedStore;
use crate::rebalance::ExpertMove;
use crate::replay::gather_trace;
use crate::replicas::SumFirst;
use crate::theory::RankTheory;
use crate::tour::Plant;
use crate::tour::measure::StepMeasure;
use crate::tour::pipeline::PipelineCheck;
use crate::tour::row::TourRow;
use crate::unequal::divide::{ShareCost, divide};
use crate::unequal::rows::{RowDivision, SpeedClock};
use maypole::Result;
use maypole_trainer::data_parallel::sharding::Sharding;
use maypole_trainer::expert_parallel::layer::RoutingRecord;
use maypole_trainer::model::config::Config;
use maypole_trainer::pipeline_parallel::trace::PipelineTrace;
use maypole_trainer::ranks::group::SumOrder;
use maypole_trainer::ranks::mesh::MeshAxis;
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
    /// difference of weights, from one process. 0: bitwise equal. In 16 bits that of the last losses.
    pub bound: f64,
    /// A second, bitwise comparison and its name: of the forward pass with one process, or of the
    /// run with a run on another mesh.
    pub also: Option<(&'static str, BitwiseCheck)>,
    /// Changes each rank before its first step.
    pub plant: Option<Plant>,
    /// Makes each rank train in 16 bits.
    pub narrow: Option<NarrowTrainer>,
    /// Each rank keeps a copy of its neighbour's part of the optimizer.
    pub copies_state: bool,
}

/// Makes a trainer train in 16 bits.
pub type NarrowTrainer = fn(&Recipe, &mut Trainer<f32>);

/// Steps of a check, unless it needs more.
const STEPS: u64 = 10;
/// The greatest relative difference of the last losses in 16 bits after more than [`STEPS`] steps.
const NARROW: f64 = 1e-2;

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
        let one = self.reference(steps)?;
        let bound = if self.narrow.is_some() && steps > STEPS { NARROW } else { self.bound };
        let differences = seen.iter().map(|rank| self.difference(&rank.outcome, &one));
        let difference = differences.fold(0.0, f64::max);
        let is_bitwise = |rank: &RankResult| rank.outcome.difference(&one).bitwise;
        let equal = difference <= bound
            && (bound > 0.0 || seen.iter().all(is_bitwise))
            && self.also.map_or(Ok(true), |(_, same)| same(self))?;
        let first = &seen[0];
        let moved =
            self.recipe.rebalance.is_none() || first.outcome.moves.iter().any(ExpertMove::any);
        let pipeline = PipelineCheck::new(&self.setup, &self.recipe.config, &first.traces);
        let runs_in_order = pipeline.fits(self.recipe.devices.are_processors());
        Ok(TourRow {
            criterion: self.criterion(bound),
            bound,
            difference,
            pass: equal && self.is_exact(&seen) && moved && runs_in_order,
            bubble: pipeline.bubble,
            bubble_theory: pipeline.theory,
            pipeline: pipeline.replay,
            ..self.row(Some(first), seconds)
        })
    }

    /// The steps of the row, at least as many as `asked`: rows are divided by the times of the first step,
    /// experts move after theirs, late sums arrive, and a round of averaging ends.
    pub fn steps(&self, asked: Option<u64>) -> u64 {
        let divided = if self.recipe.division == RowDivision::Equal { 1 } else { 2 };
        let steps = asked.unwrap_or(STEPS).max(self.recipe.rebalance.unwrap_or(1)).max(divided);
        match self.form() {
            DataForm::Stale { late } => steps.max(2 * late),
            form => steps.next_multiple_of(form.every()),
        }
    }

    fn form(&self) -> DataForm {
        self.recipe.averaging.unwrap_or(self.setup.sharding.into())
    }

    /// One process without mistakes. Where ranks are added in their order, it adds replicas in this order
    /// too; else it is the same trainer on one rank.
    fn reference(&self, steps: u64) -> Result<TrainingOutcome> {
        let recipe = Recipe { steps, ..self.recipe.right() };
        let Parallelism { micros, .. } = self.setup;
        if self.setup.order == SumOrder::Fast {
            let right = Self { recipe, plant: None, ..self.clone() };
            let setup = Parallelism { micros, ..alone(&self.setup) };
            return Ok(right.train(&setup, steps)?.swap_remove(0).outcome);
        }
        let ranks = self.setup.mesh.size(MeshAxis::Dp);
        Ok(match (self.form(), self.setup.sharding) {
            (DataForm::Diloco { every }, _) => recipe.diloco_alone(ranks, every),
            (DataForm::Gossip { every }, _) => recipe.gossip_alone(ranks, every),
            (DataForm::Stale { late }, _) => recipe.stale_alone(ranks, late as usize),
            (_, Sharding::Zero2 | Sharding::Fsdp { .. }) => {
                recipe.alone(ranks, micros, SumFirst::Ranks)
            }
            _ => recipe.alone(ranks, micros, SumFirst::MicroBatches),
        })
    }

    /// The greatest difference of a loss or a weight from one process, and of a norm if that has an
    /// effect: its squares are added in another order than in one process.
    fn difference(&self, rank: &TrainingOutcome, one: &TrainingOutcome) -> f64 {
        let OutcomeDifference { loss, norm, weights, .. } = rank.difference(one);
        if self.narrow.is_some() {
            let last = |of: &TrainingOutcome| of.losses.iter().rev().take(5).sum::<f64>();
            return nan_as_infinity((last(rank) - last(one)).abs() / last(one));
        }
        weights.max(loss).max(if self.recipe.clip.is_some() { norm } else { 0.0 })
    }

    /// True if the memory, overlap and traffic of every rank are those of theory.
    pub(crate) fn is_exact(&self, seen: &[RankResult]) -> bool {
        seen.iter().enumerate().all(|(rank, seen)| {
            let (theory, sent) = self.theory(rank, &seen.routing);
            seen.step.fits(&theory) && seen.sent == sent
        })
    }

    /// The row of the `first` rank, before it is compared; if it could not train, with theory alone.
    pub(crate) fn row(&self, first: Option<&RankResult>, seconds: f64) -> TourRow {
        let routing = first.map_or_else(RoutingRecord::default, |first| first.routing.clone());
        let (step, theory) = self.theory(0, &routing);
        let (own, sent_here) =
            first.map_or((step, Traffic::default()), |first| (first.step, first.sent));
        // Averages of weights are sent in the last step of a round only.
        let sent = |of: Traffic| of.total() - of.copies + of.copies / self.form().every();
        let mesh = self.setup.mesh;
        TourRow::new(
            self.axis,
            mesh.to_string(),
            mesh.world(),
            [own, step],
            [sent_here, theory].map(sent),
            seconds,
        )
    }

    /// The theoretical memory, overlap and traffic of `rank` in a step with `routing`.
    fn theory(&self, rank: usize, routing: &RoutingRecord) -> (StepMeasure, Traffic) {
        let mesh = self.setup.mesh;
        let place = mesh.place(rank);
        let rows = self.rows_like(mesh.rows(place).index);
        let site = RankTheory { rows, ..self.recipe.site(&self.setup, place) };
        let (form, mixed) = (self.form(), self.narrow.is_some());
        let mut step =
            StepMeasure::theory(&site, (form, self.recipe.rule.states()), mixed, routing);
        if matches!(form, DataForm::Diloco { .. } | DataForm::Gossip { .. }) {
            // The change, or the weights that a rank receives, are in a buffer that ends with the step.
            step.units += FULL * site.parameters();
        }
        let mut sent = site.traffic(routing);
        let copies = mesh.sizes(&MeshAxis::COPIES);
        let numbers = wire(form, site.parameters(), copies, self.setup.micros);
        let width = if mixed { 2 } else { FULL };
        let bytes = width as f64 * numbers.weights + FULL as f64 * numbers.gradients;
        sent.copies = (bytes * form.every() as f64).round() as u64;
        let number = 8 * (mesh.world() as u64 - 1);
        if form.diverges() {
            // Each rank has a norm of its own.
            sent.world -= number;
        }
        if self.copies_state {
            // Each unit is read once more, and gradients of the own part go to the rank with the copy.
            step.passes.all += site.layout().units.len() as u64;
            sent.copies += (FULL * (site.parameters() / copies)) as u64;
        }
        if self.recipe.division != RowDivision::Equal {
            // The time of a row takes as many again, after each step.
            sent.world += number;
        }
        (step, sent)
    }

    /// The rows of a batch in which every replica has as many rows as replica `replica` gets from
    /// the pretended times.
    fn rows_like(&self, replica: usize) -> usize {
        let RowDivision::BySpeed { clock: SpeedClock::Pretended(seconds), .. } =
            &self.recipe.division
        else {
            return self.recipe.rows;
        };
        let costs: Vec<_> =
            seconds.iter().map(|each| ShareCost { fixed: 0.0, each: *each }).collect();
        let micros = self.setup.micros;
        divide(ROWS / micros, &costs)[replica] * micros * seconds.len()
    }

    fn criterion(&self, bound: f64) -> String {
        match self.also {
            _ if bound == 0.0 => "bitwise".to_owned(),
            _ if self.narrow.is_some() => format!("last losses {bound:.0e}"),
            None => format!("loss, weights {bound:.0e}"),
            Some((what, _)) => format!("{bound:.0e}, {what} bitwise"),
        }
    }

    /// Trains `steps` steps on the mesh of `setup`, and returns the result of each rank.
    pub(crate) fn train(&self, setup: &Parallelism, steps: u64) -> Result<Vec<RankResult>> {
        let recipe = Recipe { steps, ..self.recipe.clone() };
        recipe.on_ranks(setup, |trainer| self.rank(&recipe, trainer))
    }

    fn rank(&self, recipe: &Recipe, mut trainer: Trainer<f32>) -> Result<RankResult> {
        recipe.place(&mut trainer);
        if let Some(narrow) = self.narrow {
            narrow(recipe, &mut trainer);
        }
        self.plant.map_or(Ok(()), |plant| plant(&mut trainer))?;
        RankResult::of(recipe, &mut trainer)
    }
}

/// What a rank computed, and what it held and sent in the last step.
pub(crate) struct RankResult {
    pub(crate) outcome: TrainingOutcome,
    step: StepMeasure,
    sent: Traffic,
    routing: RoutingRecord,
    traces: Vec<PipelineTrace>,
}

impl RankResult {
    /// Trains to the last step of `recipe`.
    pub(crate) fn of(recipe: &Recipe, trainer: &mut Trainer<f32>) -> Result<Self> {
        let timeline = trainer.watch.timeline.clone();
        let passes = ObservedStore::wrap(&mut trainer.parts.store, &timeline);
        let mut step = StepMeasure::of(trainer, passes.get());
        let (mut sent, mut traces) = (Traffic::default(), Vec::new());
        let mut outcome = recipe.follow(trainer, |trainer, outcome, bytes| {
            sent = bytes;
            step = StepMeasure::of(trainer, passes.take());
            traces.push(gather_trace(trainer, &outcome)?);
            Ok(())
        })?;
        let routing = trainer.parts.pipeline.routing.borrow().clone();
        outcome.weights = trainer.parts.store.all_weights()?;
        Ok(Self { outcome, step, sent, routing, traces })
    }
}

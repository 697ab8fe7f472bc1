//! The tour's checks for the axes that divide the model. Each trains the same model as one process
//! and compares both.
//!
//! What it does: runs every [`MeshCheck`] on threads of this process and makes a [`TourRow`] of it.
//! What is sharded, which collective runs where, what it costs: in the file of each axis. The bytes
//! of a row are those of rank 0. A row passes only if the bytes of every rank equal the theory of
//! that rank. [`list`](crate::tour::list) has all checks.

use crate::memory::{FULL, RankMemory};
use crate::mistakes::Mistake;
use crate::overlap::{ObservedStore, OverlappedPasses};
use crate::rebalance::{ExpertMove, rearrange, rebalance};
use crate::theory::RankTheory;
use crate::tour::Plant;
use crate::tour::measure::StepMeasure;
use crate::tour::pipeline::PipelineCheck;
use crate::tour::row::TourRow;
use crate::verify::nan_as_infinity;
use maypole::{Communicator, Result};
use maypole_trainer::expert_parallel::layer::RoutingRecord;
use maypole_trainer::model::config::Config;
use maypole_trainer::model::layout::ParameterLayout;
use maypole_trainer::pipeline_parallel::trace::PipelineTrace;
use maypole_trainer::ranks::mesh::MeshAxis;
use maypole_trainer::ranks::traffic::Traffic;
use maypole_trainer::tensor::device_choice::RankDevices;
use maypole_trainer::train::optim::Rule;
use maypole_trainer::train::schedule;
use maypole_trainer::train::setup::Setup;
use maypole_trainer::train::text::Text;
use maypole_trainer::train::trainer::Trainer;
use maypole_trainer::unequal_ranks::divide::{ShareCost, divide};
use maypole_trainer::unequal_ranks::rows::{RowDivision, SpeedClock};
use std::time::Instant;

/// Rows of a batch.
pub(crate) const ROWS: usize = 8;
/// The seed of the weights.
const SEED: u64 = 7;
/// Adam with a large epsilon. With a small epsilon a rounding error in a gradient near zero would
/// change the weight by a whole step, and runs could not be compared.
const RULE: Rule = Rule::AdamW { beta1: 0.9, beta2: 0.95, epsilon: 1e-4, decay: 0.1 };

/// Compares a check bitwise with another way to compute the same values.
pub type BitwiseCheck = fn(&MeshCheck) -> Result<bool>;

/// The configuration of one row.
#[derive(Clone, Debug)]
pub struct MeshCheck {
    /// The title of the row.
    pub axis: &'static str,
    /// The model.
    pub config: Config,
    /// The mesh, and how the model is divided over it.
    pub setup: Setup,
    /// Makes the text to train on.
    pub text: fn(&Config) -> Text,
    /// The greatest relative difference of losses and of gradient norms, and the greatest
    /// difference of weights, from one process. 0: bitwise equal.
    pub bound: f64,
    /// A second, bitwise comparison and its name: of the forward pass with one process, or of the
    /// run with a run on another mesh.
    pub also: Option<(&'static str, BitwiseCheck)>,
    /// The step after which experts move, if they move.
    pub rebalance: Option<u64>,
    /// The most that the gradient's norm may be.
    pub clip: Option<f64>,
    /// True if blocks keep only their input.
    pub recompute: bool,
    /// A deliberate mistake of the ranks.
    pub mistake: Option<Mistake>,
    /// Changes each rank before its first step.
    pub plant: Option<Plant>,
    /// What computes the layers of each rank. One process computes on that of rank 0.
    pub devices: RankDevices,
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
        self.setup.check(&self.config, ROWS).expect("a check of the tour is possible");
        let begun = Instant::now();
        let seen = self.train(&self.setup, steps)?;
        let seconds = begun.elapsed().as_secs_f64();
        let alone =
            Setup { micros: self.setup.micros, router: self.setup.router, ..Setup::default() };
        let reference = Self { mistake: None, plant: None, ..self.clone() }.train(&alone, steps)?;
        let difference = difference(&seen, &reference[0]);
        let equal =
            difference <= self.bound && self.also.map_or(Ok(true), |(_, same)| same(self))?;
        let theory: Vec<_> =
            seen.iter().enumerate().map(|(rank, seen)| self.theory(rank, &seen.routing)).collect();
        let mut both = seen.iter().zip(&theory);
        let exact = both.all(|(seen, (theory, sent))| seen.step.fits(theory) && seen.sent == *sent);
        let first = &seen[0];
        let (step, sent) = theory[0];
        let moved = self.rebalance.is_none() || first.moves.iter().any(ExpertMove::any);
        let pipeline = PipelineCheck::new(&self.setup, &self.config, &first.traces);
        let mesh = self.setup.mesh;
        Ok(TourRow {
            criterion: self.criterion(),
            bound: self.bound,
            difference,
            pass: equal && exact && moved && pipeline.fits(self.devices.are_processors()),
            wire_bytes: first.sent.total(),
            wire_bytes_theory: sent.total(),
            bubble: pipeline.bubble,
            bubble_theory: pipeline.theory,
            pipeline: pipeline.replay,
            ..TourRow::new(self.axis, mesh.to_string(), mesh.world(), [first.step, step], seconds)
        })
    }

    /// The fewest steps that show what the row is about: rows are divided by the times of the first step,
    /// and experts move after theirs.
    pub fn least_steps(&self) -> u64 {
        let divided = if self.setup.rows == RowDivision::Equal { 1 } else { 2 };
        self.rebalance.unwrap_or(1).max(divided)
    }

    /// What `rank` should hold and overlap, and what it should send, in a step with `routing`.
    fn theory(&self, rank: usize, routing: &RoutingRecord) -> (StepMeasure, Traffic) {
        let Setup { sharding, micros, mesh, .. } = self.setup;
        let site = RankTheory {
            config: &self.config,
            setup: &self.setup,
            place: mesh.place(rank),
            rows: self.rows_like(mesh.rows(mesh.place(rank)).index),
            element: FULL,
            recompute: self.recompute,
        };
        let copies = mesh.sizes(&[MeshAxis::Dp, MeshAxis::Cp]);
        let layout = site.layout();
        let memory = RankMemory::theory(sharding, layout.len(), copies, RULE.states(), FULL);
        let passes = OverlappedPasses::theory(&layout, (sharding, copies), micros, FULL);
        let activations = site.activations(routing);
        let step = StepMeasure { memory, activations, units: site.units(false), passes };
        let mut sent = site.traffic(routing);
        if self.clip.is_some() {
            // The norm takes as many bytes as the loss.
            sent.world *= 2;
        }
        if self.setup.rows != RowDivision::Equal {
            // The time of a row takes as many again, after each step.
            sent.world += 8 * (mesh.world() as u64 - 1);
        }
        (step, sent)
    }

    /// The rows of a batch in which every replica has as many rows as replica `replica` gets from
    /// the pretended times.
    fn rows_like(&self, replica: usize) -> usize {
        let RowDivision::BySpeed { clock: SpeedClock::Pretended(seconds), .. } = &self.setup.rows
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
    pub(crate) fn train(&self, setup: &Setup, steps: u64) -> Result<Vec<RankResult>> {
        let text = (self.text)(&self.config);
        let rank = |comm| self.rank(comm, setup, steps, &text);
        Communicator::run_local(setup.mesh.world(), rank).into_iter().collect()
    }

    /// [`train`](Self::train) on one rank.
    fn rank(
        &self,
        comm: Communicator,
        setup: &Setup,
        steps: u64,
        text: &Text,
    ) -> Result<RankResult> {
        let rule = (RULE, schedule::RateSchedule::constant(1e-2));
        let mut trainer = Trainer::<f32>::new(comm, &self.config, setup.clone(), SEED, rule)?;
        trainer.parts.model.device = self.devices.of(trainer.groups.world.rank());
        trainer.parts.model.recompute = self.recompute;
        trainer.parts.clip.limit = self.clip;
        self.mistake.map_or(Ok(()), |mistake| mistake.plant(&mut trainer, SEED))?;
        self.plant.map_or(Ok(()), |plant| plant(&mut trainer))?;
        let timeline = trainer.watch.timeline.clone();
        let passes = ObservedStore::wrap(&mut trainer.parts.store, &timeline);
        let mut seen = RankResult::new(StepMeasure::of(&trainer, passes.get()));
        for _ in 0..steps {
            passes.take();
            let before = trainer.sent();
            let outcome = trainer.step(text, ROWS)?;
            seen.sent = trainer.sent().since(before);
            seen.step = StepMeasure::of(&trainer, passes.get());
            seen.traces.push(trainer.gather_trace(&outcome)?);
            seen.losses.push(outcome.report.loss);
            seen.norms.extend(outcome.report.norm);
            if self.rebalance == Some(trainer.step) {
                seen.moves = rebalance(&mut trainer, Mistake::moves(self.mistake))?;
            }
        }
        seen.routing = trainer.parts.pipeline.routing.borrow().clone();
        // Move the experts back to their initial places, as in one process, to compare weights.
        let back: Vec<_> = seen.moves.iter().map(ExpertMove::back).collect();
        rearrange(&mut trainer, Mistake::moves(self.mistake), &back)?;
        let store = &mut trainer.parts.store;
        seen.weights = store.all_weights()?;
        seen.layout = store.layout().clone();
        Ok(seen)
    }
}

/// The greatest relative difference of a loss or of a norm, or difference of a weight, on any rank.
fn difference(seen: &[RankResult], reference: &RankResult) -> f64 {
    let relative = |a: &[f64], b: &[f64]| -> f64 {
        let both = a.iter().zip(b).map(|(a, b)| nan_as_infinity((a - b).abs() / b.abs()));
        both.fold(if a.len() == b.len() { 0.0 } else { f64::INFINITY }, f64::max)
    };
    let of = |rank: &RankResult| {
        let own = rank.layout.gather_from(&reference.weights);
        let weights = rank.weights.iter().zip(&own).map(|(a, b)| f64::from((a - b).abs()));
        let weights = weights.map(nan_as_infinity).fold(0.0, f64::max);
        let losses = relative(&rank.losses, &reference.losses);
        weights.max(losses).max(relative(&rank.norms, &reference.norms))
    };
    seen.iter().map(of).fold(0.0, f64::max)
}

/// What a rank computed, held and sent.
pub(crate) struct RankResult {
    pub(crate) losses: Vec<f64>,
    pub(crate) weights: Vec<f32>,
    pub(crate) layout: ParameterLayout,
    norms: Vec<f64>,
    step: StepMeasure,
    sent: Traffic,
    routing: RoutingRecord,
    traces: Vec<PipelineTrace>,
    moves: Vec<ExpertMove>,
}

impl RankResult {
    fn new(step: StepMeasure) -> Self {
        Self {
            losses: Vec::new(),
            weights: Vec::new(),
            layout: ParameterLayout::none(),
            norms: Vec::new(),
            step,
            sent: Traffic::default(),
            routing: RoutingRecord::default(),
            traces: Vec::new(),
            moves: Vec::new(),
        }
    }
}

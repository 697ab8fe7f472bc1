//! One way to train a model on ranks and in one process, and to compare both.
//!
//! A [`Recipe`] contains everything that a result may depend on. [`Recipe::on_ranks`] trains it on
//! any mesh, on ranks that are threads, and [`Recipe::follow`] does the steps of one of them;
//! [`alone`] is the same setup in one process. [`replicas`](crate::replicas) has what data parallelism
//! alone has.

use crate::averaging::DataForm;
use crate::mistakes::{Mistake, plant_overflow};
use crate::rebalance::{ExpertMove, move_experts, rearrange, rebalance};
use crate::unequal::rows::RowDivision;
use maypole::{Communicator, Result};
use maypole_trainer::model::config::Config;
use maypole_trainer::model::layout::ParameterLayout;
use maypole_trainer::ranks::traffic::Traffic;
use maypole_trainer::tensor::math::Real;
use maypole_trainer::tensor::precision::LossScale;
use maypole_trainer::train::checkpoint::load::Progress;
use maypole_trainer::train::optim::{Optimizer, Rule};
use maypole_trainer::train::parallelism::Parallelism;
use maypole_trainer::train::schedule::RateSchedule;
use maypole_trainer::train::text::Text;
use maypole_trainer::train::trainer::Trainer;
use maypole_trainer::train::watch::StepOutcome;
use maypole_trainer_gpu::choice::RankDevices;

/// The model, its data, its optimizer, the number of steps, and the interventions on ranks.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// The model.
    pub config: Config,
    /// Makes the text from which rows are drawn.
    pub text: fn(&Config) -> Text,
    /// The seed of the initial weights.
    pub seed: u64,
    /// The optimizer.
    pub rule: Rule,
    /// The learning rate of each step.
    pub schedule: RateSchedule,
    /// The greatest norm of a gradient. Longer gradients are clipped to it.
    pub clip: Option<f64>,
    /// True if the loss is scaled, as for narrow numbers.
    pub scale: bool,
    /// True if blocks keep only their input.
    pub recompute: bool,
    /// The number of steps.
    pub steps: u64,
    /// Rows of a global batch.
    pub rows: usize,
    /// What computes the layers of each rank. One process computes on that of rank 0.
    pub devices: RankDevices,
    /// The averaging of weights that replaces the sum of gradients of the setup.
    pub averaging: Option<DataForm>,
    /// The division of rows over replicas.
    pub division: RowDivision,
    /// Steps between moves of experts, if they move.
    pub rebalance: Option<u64>,
    /// The step, from 0, in which a gradient of the last rank overflows.
    pub overflow: Option<u64>,
    /// The step after which all ranks save and restore their state, as a resumed run does.
    pub resumed: Option<u64>,
    /// A deliberate mistake of the ranks.
    pub mistake: Option<Mistake>,
}

impl Default for Recipe {
    /// 20 steps of gradient descent on 8 rows.
    fn default() -> Self {
        Self {
            config: Config::default(),
            text: |config| Text::invented(config.context, 7),
            seed: 7,
            rule: Rule::Sgd,
            schedule: RateSchedule::constant(0.1),
            clip: None,
            scale: false,
            recompute: false,
            steps: 20,
            rows: 8,
            devices: RankDevices::default(),
            averaging: None,
            division: RowDivision::Equal,
            rebalance: None,
            overflow: None,
            resumed: None,
            mistake: None,
        }
    }
}

/// The result of training a recipe, on one rank or in one process.
#[derive(Clone, Debug)]
pub struct TrainingOutcome<T = f32> {
    /// The loss of each step.
    pub losses: Vec<f64>,
    /// The norm of each step's gradient.
    pub norms: Vec<f64>,
    /// The part of the model that the weights are of.
    pub layout: ParameterLayout,
    /// The weights after the last step, each expert at its initial place.
    pub weights: Vec<T>,
    /// All moves of experts.
    pub moves: Vec<ExpertMove>,
}

/// The differences between two outcomes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OutcomeDifference {
    /// The greatest relative difference of losses.
    pub loss: f64,
    /// The greatest relative difference of norms.
    pub norm: f64,
    /// The greatest difference of weights.
    pub weights: f64,
    /// True if losses and weights are equal to the last bit.
    pub bitwise: bool,
}

impl<T: Real> TrainingOutcome<T> {
    /// An outcome without norms and moves.
    pub fn new(layout: ParameterLayout, losses: Vec<f64>, weights: Vec<T>) -> Self {
        Self { losses, norms: Vec::new(), layout, weights, moves: Vec::new() }
    }

    /// Compares this outcome with `other`, which has all weights of the model.
    ///
    /// # Panics
    /// If `other` has fewer weights.
    pub fn difference(&self, other: &Self) -> OutcomeDifference {
        let expected = self.layout.gather_from(&other.weights);
        let far = |(a, b): (&T, &T)| nan_as_infinity((a.wide() - b.wide()).abs());
        let bits = |(a, b): (&T, &T)| a.wide().to_bits() == b.wide().to_bits();
        let both = || self.weights.iter().zip(&expected);
        OutcomeDifference {
            loss: relative(&self.losses, &other.losses),
            norm: relative(&self.norms, &other.norms),
            weights: both().map(far).fold(0.0, f64::max),
            bitwise: self.losses == other.losses && both().all(bits),
        }
    }
}

/// The greatest relative difference; infinite if there are not equally many numbers.
fn relative(numbers: &[f64], expected: &[f64]) -> f64 {
    let both = numbers.iter().zip(expected);
    let far = both.map(|(a, b)| nan_as_infinity((a - b).abs() / b.abs()));
    far.fold(if numbers.len() == expected.len() { 0.0 } else { f64::INFINITY }, f64::max)
}

/// The choices of `setup` that a single process has too.
pub fn alone(setup: &Parallelism) -> Parallelism {
    Parallelism { router: setup.router, order: setup.order, ..Parallelism::default() }
}

/// The median of some numbers; of an even count, the upper of the two in the middle.
///
/// # Panics
/// If there are none.
pub fn median(numbers: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = numbers.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// Returns infinity for NaN, so that NaN fails every comparison.
pub(crate) fn nan_as_infinity(difference: f64) -> f64 {
    if difference.is_nan() { f64::INFINITY } else { difference }
}

impl Recipe {
    /// The text from which rows are drawn.
    pub fn text(&self) -> Text {
        (self.text)(&self.config)
    }

    /// The same recipe for one process, without the interventions on ranks.
    #[must_use]
    pub fn right(&self) -> Self {
        let division = RowDivision::Equal;
        Self { division, rebalance: None, mistake: None, ..self.clone() }
    }

    /// A trainer of this recipe on a rank of the mesh of `setup`. Collective.
    ///
    /// # Errors
    /// As [`Trainer::new`].
    pub fn rank<T: Real>(&self, comm: Communicator, setup: &Parallelism) -> Result<Trainer<T>> {
        let optimizer = (self.rule, self.schedule);
        let mut trainer = Trainer::new(comm, &self.config, setup.clone(), self.seed, optimizer)?;
        trainer.parts.model.recompute = self.recompute;
        trainer.parts.clip.limit = self.clip;
        trainer.parts.clip.scale = self.scale.then(LossScale::default);
        self.averaging.map_or(Ok(()), |form| form.plant(&mut trainer, self.seed))?;
        self.division.plant(&mut trainer);
        if let Some(step) = self.overflow {
            plant_overflow(&mut trainer, step);
        }
        self.mistake.map_or(Ok(()), |mistake| mistake.plant(&mut trainer, self.seed))?;
        Ok(trainer)
    }

    /// Saves and restores the state of `trainer` at the due step. All ranks call it.
    ///
    /// # Errors
    /// As [`Trainer::go_on_from`].
    pub fn resume<T: Real>(&self, trainer: &mut Trainer<T>) -> Result<()> {
        if self.resumed != Some(trainer.step) {
            return Ok(());
        }
        let owned = trainer.parts.store.local_shards();
        let weights = owned.iter().flat_map(|run| run.weights.to_vec()).collect();
        let Optimizer { steps, first, second, .. } = trainer.optimizer().clone();
        let progress = Progress { step: trainer.step, updates: steps };
        trainer.go_on_from(progress, [weights, first, second])?;
        if let Some(mistake) = self.mistake {
            mistake.plant_resumed(trainer);
        }
        Ok(())
    }

    /// Runs `rank` with the trainer of each rank of the mesh of `setup`, on threads of this process,
    /// and returns the results by rank.
    ///
    /// # Errors
    /// As the collectives in it, and as `rank`.
    pub fn on_ranks<T: Real, R: Send>(
        &self,
        setup: &Parallelism,
        rank: impl Fn(Trainer<T>) -> Result<R> + Sync,
    ) -> Result<Vec<R>> {
        let run = |comm| rank(self.rank(comm, setup)?);
        Communicator::run_local(setup.mesh.world(), run).into_iter().collect()
    }

    /// Trains from the trainer's current step to the last step of this recipe. After each step `each`
    /// sees the trainer, the outcome of the step and the bytes that the step sent. The outcome has no
    /// weights. All ranks call it.
    ///
    /// # Errors
    /// As the collectives in it, and as `each`.
    pub fn follow<T: Real>(
        &self,
        trainer: &mut Trainer<T>,
        mut each: impl FnMut(&mut Trainer<T>, StepOutcome, Traffic) -> Result<()>,
    ) -> Result<TrainingOutcome<T>> {
        let text = self.text();
        let layout = trainer.parts.store.layout().clone();
        let mut seen = TrainingOutcome::new(layout, Vec::new(), Vec::new());
        let mut moves = Vec::new();
        while trainer.step < self.steps {
            let before = trainer.sent();
            let outcome = trainer.step(&text, self.rows)?;
            let sent = trainer.sent().since(before);
            seen.losses.push(outcome.report.loss);
            seen.norms.push(outcome.report.norm);
            each(trainer, outcome, sent)?;
            self.resume(trainer)?;
            if self.rebalance.is_some_and(|every| trainer.step.is_multiple_of(every)) {
                moves.push(rebalance(trainer, Mistake::moves(self.mistake))?);
            }
        }
        // To compare weights, experts go back to their initial places, as in one process.
        for moved in moves.iter().rev() {
            let back: Vec<_> = moved.iter().map(ExpertMove::back).collect();
            rearrange(trainer, move_experts, &back)?;
        }
        seen.moves = moves.concat();
        Ok(seen)
    }

    /// Lets the device of its rank compute the layers of `trainer`.
    pub(crate) fn place(&self, trainer: &mut Trainer<f32>) {
        trainer.parts.model.device = self.devices.of(trainer.groups.world.rank());
    }
}

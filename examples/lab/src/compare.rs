//! One way to train a model on ranks and in one process, and to compare both.
//!
//! A [`Recipe`] contains everything that a result may depend on. [`Recipe::on_ranks`] trains it on
//! any mesh, on ranks that are threads, and [`Recipe::follow`] does the steps of one of them;
//! [`alone`] is the same setup in one process. For data parallelism [`Recipe::alone`] adds gradients
//! in the order of ranks. Where the library also adds in rank order, both results must be bitwise
//! equal.

use crate::averaging::DataForm;
use crate::mistakes::Mistake;
use crate::rebalance::{ExpertMove, move_experts, rearrange, rebalance};
use crate::unequal::rows::RowDivision;
use maypole::{Communicator, Result};
use maypole_trainer::model::axes::Axes;
use maypole_trainer::model::batch::TokenBatch;
use maypole_trainer::model::config::Config;
use maypole_trainer::model::layout::ParameterLayout;
use maypole_trainer::model::store::{FlatStore, Store};
use maypole_trainer::model::transformer::Transformer;
use maypole_trainer::ranks::group::SumOrder;
use maypole_trainer::ranks::mesh::Mesh;
use maypole_trainer::ranks::traffic::Traffic;
use maypole_trainer::tensor::device_choice::RankDevices;
use maypole_trainer::tensor::half_float::HalfFloat;
use maypole_trainer::tensor::math::{Real, add};
use maypole_trainer::tensor::precision::LossScale;
use maypole_trainer::train::optim::{Optimizer, Rule};
use maypole_trainer::train::parallelism::Parallelism;
use maypole_trainer::train::schedule::RateSchedule;
use maypole_trainer::train::text::Text;
use maypole_trainer::train::trainer::Trainer;
use maypole_trainer::train::watch::StepOutcome;

/// The model, its data, its optimizer, the number of steps, and what is done to ranks.
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
    /// How ranks average, if they do not sum gradients as their setup says.
    pub averaging: Option<DataForm>,
    /// The division of rows over replicas.
    pub division: RowDivision,
    /// Steps between moves of experts, if they move.
    pub rebalance: Option<u64>,
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
            mistake: None,
        }
    }
}

/// The order of the sums, when each rank has several micro-batches.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SumFirst {
    /// Each rank adds the gradients of its micro-batches; then the ranks' sums are added.
    MicroBatches,
    /// The gradients of all ranks are added for each micro-batch; then the micro-batches' sums are
    /// added.
    Ranks,
}

/// The result of training a recipe, on one rank or in one process.
#[derive(Clone, Debug)]
pub struct TrainingOutcome<T = f32> {
    /// The loss of each step.
    pub losses: Vec<f64>,
    /// The norm of each step's gradient; empty if the norms were not computed.
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
    /// The greatest relative difference of norms; infinite if only one outcome has norms.
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

    /// The same recipe for one process: without what is done to ranks.
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
        self.mistake.map_or(Ok(()), |mistake| mistake.plant(&mut trainer, self.seed))?;
        Ok(trainer)
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
            seen.norms.extend(outcome.report.norm);
            each(trainer, outcome, sent)?;
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

    /// This recipe and the setup of a data-parallel group that learns in this form, each rank with
    /// `micros` micro-batches a step.
    fn data(
        &self,
        (ranks, micros): (usize, usize),
        form: impl Into<DataForm>,
    ) -> (Self, Parallelism) {
        let form = form.into();
        let (sharding, order) = (form.sharding(), SumOrder::Ranks);
        let setup =
            Parallelism { sharding, micros, order, ..Parallelism::of(Mesh::replicas(ranks)) };
        (Self { averaging: Some(form), ..self.clone() }, setup)
    }

    /// Trains in one process: computes the gradients of all `micro` micro-batches of all `ranks`
    /// ranks, and adds them in the order that `first` names.
    pub fn alone(&self, ranks: usize, micro: usize, first: SumFirst) -> TrainingOutcome {
        self.alone_in(&[(ranks, self.steps)], micro, first)
    }

    /// As [`alone`](Self::alone), where the number of ranks changes: `worlds` has each number of ranks
    /// and the step until which there are so many.
    ///
    /// # Panics
    /// If the last world ends before the last step.
    pub fn alone_in(
        &self,
        worlds: &[(usize, u64)],
        micro: usize,
        first: SumFirst,
    ) -> TrainingOutcome {
        let layout = ParameterLayout::whole(&self.config);
        let text = self.text();
        let mut gpt = Transformer::new(&layout, Axes::single_rank(&layout.config));
        gpt.device = self.devices.of(0);
        let mut store = FlatStore::new(layout.clone(), layout.initial(self.seed));
        let mut outcome = TrainingOutcome::new(layout, Vec::new(), Vec::new());
        let mut optimizer = Optimizer::new(self.rule);
        for step in 0..self.steps {
            let world = worlds.iter().find(|(_, until)| step < *until);
            let (ranks, _) = *world.expect("there are ranks until the last step");
            let batches = text.step(step, self.rows, ranks * micro);
            let (loss, gradients) = add_up(&mut gpt, &mut store, &batches, (ranks, micro), first);
            store.gradients = gradients;
            let norm = self
                .clip
                .map(|_| maypole_trainer::tensor::math::sum_of_squares(&store.gradients).sqrt());
            outcome.norms.extend(norm);
            let factor =
                norm.map_or(1.0, |norm| maypole_trainer::train::clip::factor(norm, self.clip));
            optimizer.step(&mut store.owned(), self.schedule.rate(step), factor);
            store.gradients.fill(0.0);
            outcome.losses.push(loss);
        }
        outcome.weights = store.weights;
        outcome
    }

    /// Trains on `ranks` threads of this process in one data-parallel group, each with `micro`
    /// micro-batches a step.
    pub fn ranks(&self, ranks: usize, micro: usize, form: impl Into<DataForm>) -> TrainingOutcome {
        self.each_rank((ranks, micro), form, |_| (), |_| ()).0
    }

    /// Trains as [`ranks`](Self::ranks) does. Calls `prepare` on each rank's trainer before the
    /// first step and `look` after the last step, and returns the results of `look` by rank.
    ///
    /// # Panics
    /// If a collective fails, or ranks end with different weights.
    pub fn each_rank<R: Send>(
        &self,
        ranks: (usize, usize),
        form: impl Into<DataForm>,
        prepare: impl Fn(&mut Trainer<f32>) + Sync,
        look: impl Fn(&mut Trainer<f32>) -> R + Sync,
    ) -> (TrainingOutcome, Vec<R>) {
        let (outcomes, seen) = self.watched(ranks, form, prepare, |trainer, ()| look(trainer));
        for (rank, outcome) in outcomes.iter().enumerate() {
            assert!(
                outcome.difference(&outcomes[0]).bitwise,
                "the outcome of rank {rank} differs from that of rank 0"
            );
        }
        (outcomes.into_iter().next().expect("there is a rank"), seen)
    }

    /// [`each_rank`](Self::each_rank), where `look` gets what `prepare` returned, and the outcomes
    /// of ranks may differ.
    ///
    /// # Panics
    /// If a collective fails.
    pub fn watched<P, R: Send>(
        &self,
        ranks: (usize, usize),
        form: impl Into<DataForm>,
        prepare: impl Fn(&mut Trainer<f32>) -> P + Sync,
        look: impl Fn(&mut Trainer<f32>, P) -> R + Sync,
    ) -> (Vec<TrainingOutcome>, Vec<R>) {
        let (recipe, setup) = self.data(ranks, form);
        let run = |mut trainer: Trainer<f32>| {
            recipe.place(&mut trainer);
            let prepared = prepare(&mut trainer);
            let mut outcome = recipe.follow(&mut trainer, |_, _, _| Ok(()))?;
            let seen = look(&mut trainer, prepared);
            outcome.weights = trainer.parts.store.all_weights()?;
            Ok((outcome, seen))
        };
        let outcomes = recipe.on_ranks(&setup, run).expect("all ranks call the same");
        outcomes.into_iter().unzip()
    }

    /// A trainer of this recipe on a rank of a data-parallel group. Collective.
    ///
    /// # Errors
    /// As [`Trainer::new`].
    pub fn trainer(
        &self,
        comm: Communicator,
        micros: usize,
        form: impl Into<DataForm>,
    ) -> Result<Trainer<f32>> {
        let (recipe, setup) = self.data((comm.world(), micros), form);
        let mut trainer = recipe.rank(comm, &setup)?;
        self.place(&mut trainer);
        Ok(trainer)
    }

    /// Lets the device of its rank compute the layers of `trainer`.
    pub(crate) fn place(&self, trainer: &mut Trainer<f32>) {
        trainer.parts.model.device = self.devices.of(trainer.groups.world.rank());
    }

    /// A trainer in a world of its own.
    ///
    /// # Panics
    /// Never: one rank calls no collective.
    pub fn alone_on(&self, form: impl Into<DataForm>) -> Trainer<f32> {
        let comm = Communicator::local(1).remove(0);
        self.trainer(comm, 1, form).expect("a single rank calls no collective")
    }

    /// Switches `trainer` to 16 bits. It must not have stepped yet. All ranks call it.
    ///
    /// # Panics
    /// If another rank does not.
    pub fn narrow<H: HalfFloat>(&self, trainer: &mut Trainer<f32>) {
        trainer.narrow::<H>(self.seed).expect("all ranks call the same");
    }
}

/// The loss and the gradients of all batches, which are ordered by rank and then by micro-batch.
pub(crate) fn add_up(
    gpt: &mut Transformer<f32>,
    store: &mut FlatStore<f32>,
    batches: &[TokenBatch],
    (ranks, micro): (usize, usize),
    first: SumFirst,
) -> (f64, Vec<f32>) {
    let mut loss = vec![0.0; ranks];
    let mut sum = vec![0.0; store.weights.len()];
    let mut gradients = |of: &[usize]| {
        store.gradients.fill(0.0);
        for nth in of {
            loss[nth / micro] +=
                gpt.train(store, &batches[*nth], true).expect("a single rank calls no collective");
        }
        store.gradients.clone()
    };
    match first {
        SumFirst::MicroBatches => {
            for rank in 0..ranks {
                let own: Vec<usize> = (rank * micro..(rank + 1) * micro).collect();
                add(&mut sum, &gradients(&own));
            }
        }
        SumFirst::Ranks => {
            for nth in 0..micro {
                let mut ranks_sum = vec![0.0; sum.len()];
                (0..ranks).for_each(|rank| add(&mut ranks_sum, &gradients(&[rank * micro + nth])));
                add(&mut sum, &ranks_sum);
            }
        }
    }
    (loss.into_iter().sum(), sum)
}

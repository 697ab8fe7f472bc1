//! Compares a data-parallel run with the same training in one process.
//!
//! A [`Recipe`] contains everything that a result may depend on. [`Recipe::alone`] trains it in one
//! process, and adds gradients in the order of ranks. Where the library also adds in rank order,
//! both results must be bitwise equal. [`Recipe::ranks`] trains it on ranks that are threads.

use maypole::{Communicator, Result};
use maypole_trainer::data_parallel::sharding::Sharding;
use maypole_trainer::model::axes::Axes;
use maypole_trainer::model::batch::TokenBatch;
use maypole_trainer::model::config::Config;
use maypole_trainer::model::gpt::Gpt;
use maypole_trainer::model::layout::ParameterLayout;
use maypole_trainer::model::store::{FlatStore, Store};
use maypole_trainer::ranks::group::SumOrder;
use maypole_trainer::ranks::mesh::Mesh;
use maypole_trainer::tensor::device_choice::RankDevices;
use maypole_trainer::tensor::half_float::HalfFloat;
use maypole_trainer::tensor::math::add;
use maypole_trainer::train::optim::{Optimizer, Rule};
use maypole_trainer::train::schedule::RateSchedule;
use maypole_trainer::train::setup::Setup;
use maypole_trainer::train::text::Text;
use maypole_trainer::train::trainer::Trainer;
use maypole_trainer::train::watch::StepReport;

/// The model, its data, its optimizer, and the number of steps.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// The model.
    pub config: Config,
    /// The seed of the initial weights and of the rows.
    pub seed: u64,
    /// The optimizer.
    pub rule: Rule,
    /// The learning rate of each step.
    pub schedule: RateSchedule,
    /// The greatest norm of a gradient. Longer gradients are clipped to it.
    pub clip: Option<f64>,
    /// The number of steps.
    pub steps: u64,
    /// Rows of a global batch.
    pub rows: usize,
    /// What computes the layers of each rank. One process computes on that of rank 0.
    pub devices: RankDevices,
}

impl Default for Recipe {
    fn default() -> Self {
        let schedule = RateSchedule::constant(0.1);
        Self {
            config: Config::default(),
            seed: 7,
            rule: Rule::Sgd,
            schedule,
            clip: None,
            steps: 20,
            rows: 8,
            devices: RankDevices::default(),
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

/// The result of training a recipe.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainingOutcome {
    /// The loss of each step.
    pub losses: Vec<f64>,
    /// The norm of each step's gradient; empty if the norms were not computed.
    pub norms: Vec<f64>,
    /// The weights of the whole model after the last step.
    pub weights: Vec<f32>,
}

/// The differences between two outcomes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OutcomeDifference {
    /// The greatest relative difference of losses.
    pub loss: f64,
    /// The greatest difference of weights.
    pub weights: f64,
    /// True if losses and weights are equal to the last bit.
    pub bitwise: bool,
}

impl TrainingOutcome {
    /// Compares this outcome with `other`.
    ///
    /// # Panics
    /// If the outcomes have different numbers of steps or weights.
    pub fn difference(&self, other: &Self) -> OutcomeDifference {
        assert_eq!(self.losses.len(), other.losses.len());
        assert_eq!(self.weights.len(), other.weights.len());
        let losses = self.losses.iter().zip(&other.losses);
        let weights = self.weights.iter().zip(&other.weights);
        OutcomeDifference {
            loss: losses.map(|(a, b)| nan_as_infinity((a - b).abs() / b.abs())).fold(0.0, f64::max),
            weights: weights
                .map(|(a, b)| nan_as_infinity(f64::from((a - b).abs())))
                .fold(0.0, f64::max),
            bitwise: bits(&self.weights) == bits(&other.weights) && self.losses == other.losses,
        }
    }
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

fn bits(weights: &[f32]) -> Vec<u32> {
    weights.iter().map(|weight| weight.to_bits()).collect()
}

impl Recipe {
    /// The text from which rows are drawn.
    pub fn text(&self) -> Text {
        Text::invented(self.config.context, self.seed)
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
        let mut gpt = Gpt::new(&layout, Axes::single_rank(&layout.config));
        gpt.device = self.devices.of(0);
        let mut store = FlatStore::new(layout.clone(), layout.initial::<f32>(self.seed));
        let mut outcome =
            TrainingOutcome { losses: Vec::new(), norms: Vec::new(), weights: Vec::new() };
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
    pub fn ranks(&self, ranks: usize, micro: usize, sharding: Sharding) -> TrainingOutcome {
        self.each_rank((ranks, micro), sharding, |_| (), |_| ()).0
    }

    /// Trains as [`ranks`](Self::ranks) does. Calls `prepare` on each rank's trainer before the
    /// first step and `look` after the last step, and returns the results of `look` by rank.
    ///
    /// # Panics
    /// If a collective fails, or ranks end with different weights.
    pub fn each_rank<R: Send>(
        &self,
        ranks: (usize, usize),
        sharding: Sharding,
        prepare: impl Fn(&mut Trainer<f32>) + Sync,
        look: impl Fn(&mut Trainer<f32>) -> R + Sync,
    ) -> (TrainingOutcome, Vec<R>) {
        let (outcomes, seen) = self.watched(ranks, sharding, prepare, |trainer, ()| look(trainer));
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
        (ranks, micro): (usize, usize),
        sharding: Sharding,
        prepare: impl Fn(&mut Trainer<f32>) -> P + Sync,
        look: impl Fn(&mut Trainer<f32>, P) -> R + Sync,
    ) -> (Vec<TrainingOutcome>, Vec<R>) {
        let run = |comm: Communicator| -> Result<(TrainingOutcome, R)> {
            let mut trainer = self.trainer(comm, micro, sharding)?;
            let prepared = prepare(&mut trainer);
            let mut outcome = self.follow(&mut trainer)?;
            let seen = look(&mut trainer, prepared);
            outcome.weights = trainer.parts.store.all_weights()?;
            Ok((outcome, seen))
        };
        let outcomes =
            Communicator::run_local(ranks, |comm| run(comm).expect("all ranks call the same"));
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
        sharding: Sharding,
    ) -> Result<Trainer<f32>> {
        let mesh = Mesh::replicas(comm.world());
        let setup = Setup { sharding, micros, order: SumOrder::Ranks, ..Setup::of(mesh) };
        let optimizer = (self.rule, self.schedule);
        let mut trainer = Trainer::new(comm, &self.config, setup, self.seed, optimizer)?;
        trainer.parts.model.device = self.devices.of(trainer.groups.world.rank());
        trainer.parts.clip.limit = self.clip;
        Ok(trainer)
    }

    /// The same in a world of its own.
    ///
    /// # Panics
    /// Never: one rank calls no collective.
    pub fn alone_on(&self, sharding: Sharding) -> Trainer<f32> {
        let comm = Communicator::local(1).remove(0);
        self.trainer(comm, 1, sharding).expect("a single rank calls no collective")
    }

    /// Switches `trainer` to 16 bits. It must not have stepped yet. All ranks call it.
    ///
    /// # Panics
    /// If another rank does not.
    pub fn narrow<H: HalfFloat>(&self, trainer: &mut Trainer<f32>) {
        trainer.narrow::<H>(self.seed).expect("all ranks call the same");
    }

    /// Trains from the trainer's current step to the last step of this recipe. The outcome has no
    /// weights.
    ///
    /// # Errors
    /// As the collectives in it.
    pub fn follow(&self, trainer: &mut Trainer<f32>) -> Result<TrainingOutcome> {
        let text = self.text();
        let mut reports = Vec::<StepReport>::new();
        while trainer.step < self.steps {
            reports.push(trainer.step(&text, self.rows)?.report);
        }
        let losses = reports.iter().map(|report| report.loss).collect();
        let norms = reports.iter().filter_map(|report| report.norm).collect();
        Ok(TrainingOutcome { losses, norms, weights: Vec::new() })
    }
}

/// The loss and the gradients of all batches, which are ordered by rank and then by micro-batch.
pub(crate) fn add_up(
    gpt: &mut Gpt<f32>,
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

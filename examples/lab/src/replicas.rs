//! A recipe trained on the ranks of one data-parallel group, and in one process in the same order.
//!
//! [`Recipe::alone`] adds gradients in the order of ranks. Where the library also adds in rank order,
//! its result and that of [`Recipe::ranks`] must be bitwise equal.

use crate::averaging::DataForm;
use crate::compare::{Recipe, TrainingOutcome};
use crate::memory::FULL;
use crate::theory::RankTheory;
use maypole::{Communicator, Result};
use maypole_trainer::model::axes::Axes;
use maypole_trainer::model::batch::TokenBatch;
use maypole_trainer::model::layout::ParameterLayout;
use maypole_trainer::model::store::{FlatStore, Store};
use maypole_trainer::model::transformer::Transformer;
use maypole_trainer::ranks::group::SumOrder;
use maypole_trainer::ranks::mesh::{Mesh, MeshCoordinates};
use maypole_trainer::tensor::half_float::HalfFloat;
use maypole_trainer::tensor::math::{add, sum_of_squares};
use maypole_trainer::train::clip::factor;
use maypole_trainer::train::optim::Optimizer;
use maypole_trainer::train::parallelism::Parallelism;
use maypole_trainer::train::trainer::Trainer;
use std::collections::VecDeque;

/// The order of the sums, when each rank has several micro-batches.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SumFirst {
    /// Each rank adds the gradients of its micro-batches; then the ranks' sums are added.
    MicroBatches,
    /// The gradients of all ranks are added for each micro-batch; then the micro-batches' sums are
    /// added.
    Ranks,
}

impl Recipe {
    /// The theory of the rank at `place` of `setup`, which trains by this recipe.
    pub(crate) fn site<'a>(
        &'a self,
        setup: &'a Parallelism,
        place: MeshCoordinates,
    ) -> RankTheory<'a> {
        let Self { config, rows, recompute, .. } = self;
        RankTheory { config, setup, place, rows: *rows, element: FULL, recompute: *recompute }
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
        self.alone_late(worlds, micro, first, 0)
    }

    /// The same with gradients that update the weights `late` steps later. Before the first of them
    /// come zeros.
    pub(crate) fn alone_late(
        &self,
        worlds: &[(usize, u64)],
        micro: usize,
        first: SumFirst,
        late: usize,
    ) -> TrainingOutcome {
        let layout = ParameterLayout::whole(&self.config);
        let text = self.text();
        let mut gpt = model(self, &layout);
        let mut store = FlatStore::new(layout.clone(), layout.initial(self.seed));
        let mut waiting = VecDeque::from(vec![vec![0.0; layout.len()]; late]);
        let mut outcome = TrainingOutcome::new(layout, Vec::new(), Vec::new());
        let mut optimizer = Optimizer::new(self.rule);
        for step in 0..self.steps {
            let world = worlds.iter().find(|(_, until)| step < *until);
            let (ranks, _) = *world.expect("there are ranks until the last step");
            let batches = text.step(step, self.rows, ranks * micro);
            let (loss, gradients) = add_up(&mut gpt, &mut store, &batches, (ranks, micro), first);
            waiting.push_back(gradients);
            store.gradients = waiting.pop_front().expect("one was added just now");
            let norm = sum_of_squares(&store.gradients).sqrt();
            outcome.norms.push(norm);
            let factor = factor(norm, self.clip);
            optimizer.step(&mut store.local_shards(), self.schedule.rate(step), factor);
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
        let (recipe, setup) = self.data(ranks, form);
        let run = |mut trainer: Trainer<f32>| {
            recipe.place(&mut trainer);
            prepare(&mut trainer);
            let mut outcome = recipe.follow(&mut trainer, |_, _, _| Ok(()))?;
            let seen = look(&mut trainer);
            outcome.weights = trainer.parts.store.all_weights()?;
            Ok((outcome, seen))
        };
        let all = recipe.on_ranks(&setup, run).expect("all ranks call the same");
        let (outcomes, seen): (Vec<_>, Vec<_>) = all.into_iter().unzip();
        for (rank, outcome) in outcomes.iter().enumerate() {
            assert!(
                outcome.difference(&outcomes[0]).bitwise,
                "the outcome of rank {rank} differs from that of rank 0"
            );
        }
        (outcomes.into_iter().next().expect("there is a rank"), seen)
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

/// The model of `recipe` on one rank that computes on the device of rank 0.
pub(crate) fn model(recipe: &Recipe, layout: &ParameterLayout) -> Transformer<f32> {
    let mut gpt = Transformer::new(layout, Axes::single_rank(&layout.config));
    gpt.device = recipe.devices.of(0);
    gpt
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

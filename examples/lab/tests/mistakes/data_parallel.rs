//! Known mistakes of data parallelism, made on purpose: the comparison with one process must find
//! every one of them.
//!
//! With nearly all of these mistakes the loss still falls, so the tests compare weights.

use maypole::{Communicator, Result};
use maypole_lab::compare::{OutcomeDifference, Recipe};
use maypole_lab::replicas::SumFirst;
use maypole_trainer::data_parallel::sharding::Sharding;
use maypole_trainer::model::batch::TokenBatch;
use maypole_trainer::model::store::{Store, StorePass, forward_store};
use maypole_trainer::ranks::group::RankGroup;
use maypole_trainer::train::optim::Rule;
use maypole_trainer::train::rows::{RankRows, Rows};
use maypole_trainer::train::schedule::RateSchedule;
use maypole_trainer::train::text::Text;
use maypole_trainer::train::trainer::Trainer;

const DATA: Sharding = Sharding::Replicated { bucket: Some(100_000), overlap: true };

/// A mistake in a training step.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mistake {
    /// No mistake: the store of this test must not change a bit.
    None,
    /// Gradients are not summed at all.
    NoSum,
    OneBucketUnsummed,
    /// Gradients are averaged where they should be summed.
    AverageForSum,
    /// Gradients are not set to zero, so those of the step before are added.
    NeverZeroed,
    /// Gradients are summed over ranks before the last micro-batch, whose own gradients are not
    /// summed.
    SummedTooEarly,
}

/// A store around `inner` that makes a mistake.
struct Mistaken {
    inner: Box<dyn Store<f32>>,
    group: RankGroup,
    mistake: Mistake,
    /// This rank's own gradients, as they were before any sum.
    own: Vec<f32>,
    /// The gradients of the step before.
    before: Vec<f32>,
    last: bool,
}

impl Mistaken {
    fn gradients(&mut self) -> Vec<f32> {
        self.inner.local_shards().into_iter().flat_map(|run| run.gradients.to_vec()).collect()
    }

    fn change(&mut self, change: impl Fn(usize, &mut f32)) {
        let mut owned = self.inner.local_shards();
        let all = owned.iter_mut().flat_map(|run| run.gradients.iter_mut());
        all.enumerate().for_each(|(i, g)| change(i, g));
    }
}

impl Store<f32> for Mistaken {
    forward_store!(f32:
        layout, copies, diverges, weights, forward_done, weights_and_gradients, local_shards,
        all_gather_params, publish, bytes,
    );

    fn pass_begins(&mut self, pass: StorePass) {
        let StorePass::Backward { units, last } = pass else { return };
        self.last = last;
        let sums = if self.mistake == Mistake::SummedTooEarly { !last } else { last };
        self.inner.pass_begins(StorePass::Backward { units, last: sums });
    }

    fn backward_done(&mut self, unit: usize) -> Result<()> {
        let mine = self.inner.gradients(unit)?.to_vec();
        let ends = unit + 1 == self.layout().units.len();
        let later = if ends { Vec::new() } else { std::mem::take(&mut self.own) };
        self.own = [mine, later].concat();
        self.inner.backward_done(unit)?;
        let sums = self.mistake == Mistake::SummedTooEarly;
        if unit == 0 && sums && !self.last { self.inner.finish_grad_sync() } else { Ok(()) }
    }

    fn finish_grad_sync(&mut self) -> Result<()> {
        if self.mistake != Mistake::SummedTooEarly {
            self.inner.finish_grad_sync()?;
        }
        let own = self.own.clone();
        let before = self.before.clone();
        let world = self.group.world() as f32;
        match self.mistake {
            Mistake::NoSum => self.change(|i, g| *g = own[i]),
            Mistake::OneBucketUnsummed => {
                self.change(|i, g| *g = if i < 25_000 { own[i] } else { *g })
            }
            Mistake::AverageForSum => self.change(|_, g| *g /= world),
            Mistake::NeverZeroed if !before.is_empty() => self.change(|i, g| *g += before[i]),
            _ => {}
        }
        self.before = self.gradients();
        Ok(())
    }
}

/// Trains on two ranks, each with two micro-batches, with `mistake`. Returns the difference of rank
/// 0 from one process.
fn made(mistake: Mistake) -> OutcomeDifference {
    let recipe = Recipe { steps: 3, ..Recipe::default() };
    let prepare = |trainer: &mut Trainer<f32>| {
        let layout = trainer.parts.store.layout().clone();
        let group = trainer.groups.copies.clone();
        let weights = layout.initial(recipe.seed);
        let inner = DATA.store(layout, weights, group.clone()).unwrap();
        let own = Vec::new();
        let before = Vec::new();
        trainer.parts.store =
            Box::new(Mistaken { inner, group, mistake, own, before, last: false });
    };
    on_rank_0(&recipe, prepare)
}

/// Trains on two ranks, each with two micro-batches, after `prepare` has changed their trainers.
/// Returns the difference of rank 0 from one process.
fn on_rank_0(recipe: &Recipe, prepare: impl Fn(&mut Trainer<f32>) + Sync) -> OutcomeDifference {
    let outcomes = Communicator::run_local(2, |comm| {
        let mut trainer = recipe.trainer(comm, 2, DATA).unwrap();
        prepare(&mut trainer);
        let mut outcome = recipe.follow(&mut trainer, |_, _, _| Ok(())).unwrap();
        outcome.weights = trainer.parts.store.all_weights().unwrap();
        outcome
    });
    outcomes[0].difference(&recipe.alone(2, 2, SumFirst::MicroBatches))
}

/// Rows whose tokens count by those of their micro-batch.
struct LocalTokens(RankRows);

impl Rows for LocalTokens {
    fn microbatches(
        &mut self,
        text: &Text,
        step: (u64, usize),
        scale: f64,
    ) -> Result<Vec<TokenBatch>> {
        let local =
            |batch: TokenBatch| TokenBatch { weight: 1.0 / batch.tokens.len() as f64, ..batch };
        Ok(self.0.microbatches(text, step, scale)?.into_iter().map(local).collect())
    }
}

fn caught(mistake: Mistake) {
    let difference = made(mistake);
    assert!(
        !difference.bitwise && difference.weights > 1e-5,
        "{mistake:?} is not found: {difference:?}"
    );
}

#[test]
fn without_a_mistake_every_bit_is_right() {
    assert!(made(Mistake::None).bitwise);
}

#[test]
fn gradients_that_are_not_summed_are_caught() {
    caught(Mistake::NoSum);
}

#[test]
fn one_bucket_that_is_not_summed_is_caught() {
    caught(Mistake::OneBucketUnsummed);
}

#[test]
fn an_average_where_a_sum_is_due_is_caught() {
    caught(Mistake::AverageForSum);
}

#[test]
fn gradients_that_are_never_zeroed_are_caught() {
    caught(Mistake::NeverZeroed);
}

#[test]
fn sums_before_the_last_micro_batch_are_caught() {
    caught(Mistake::SummedTooEarly);
}

#[test]
fn a_weight_by_local_instead_of_global_tokens_is_caught() {
    let recipe = Recipe { steps: 3, ..Recipe::default() };
    // The rows of a rank are half of them, in two micro-batches.
    let local = |trainer: &mut Trainer<f32>| {
        let right = RankRows::new(&recipe.config, &trainer.parallelism, &trainer.groups);
        trainer.parts.rows = Box::new(LocalTokens(right));
    };
    let difference = on_rank_0(&recipe, local);
    assert!(difference.weights > 1e-5 && difference.loss > 1e-3, "{difference:?}");
}

#[test]
fn weights_drawn_by_rank_are_caught() {
    let recipe = Recipe { steps: 3, ..Recipe::default() };
    let prepare = |trainer: &mut Trainer<f32>| {
        let layout = trainer.parts.store.layout().clone();
        let group = trainer.groups.copies.clone();
        let weights = layout.initial(recipe.seed + group.rank() as u64);
        trainer.parts.store = DATA.store(layout, weights, group).unwrap();
    };
    let difference = on_rank_0(&recipe, prepare);
    assert!(
        difference.weights > 1e-5,
        "weights are as near as without the mistake: {difference:?}"
    );
}

#[test]
fn a_group_of_the_wrong_ranks_is_caught() {
    let recipe = Recipe { steps: 3, ..Recipe::default() };
    let prepare = |trainer: &mut Trainer<f32>| {
        let layout = trainer.parts.store.layout().clone();
        let group = &trainer.groups.copies;
        let wrong = group.split(group.rank(), 0).unwrap();
        trainer.parts.store =
            DATA.store(layout.clone(), layout.initial(recipe.seed), wrong).unwrap();
    };
    assert!(on_rank_0(&recipe, prepare).weights > 1e-5);
}

#[test]
fn decay_of_the_wrong_size_is_caught_under_adam() {
    let rule = Rule::ADAMW;
    let recipe =
        Recipe { steps: 3, rule, schedule: RateSchedule::constant(1e-3), ..Recipe::default() };
    let prepare = |trainer: &mut Trainer<f32>| {
        let Rule::AdamW { beta1, beta2, epsilon, .. } = rule else { unreachable!() };
        let decay = 0.1 * trainer.groups.world.world() as f64;
        trainer.optimizer_mut().rule = Rule::AdamW { beta1, beta2, epsilon, decay };
    };
    assert!(!on_rank_0(&recipe, prepare).bitwise);
}

//! Asynchronous updates and averaging: each compared with data parallelism where both are equal,
//! and otherwise with a simulation in one process.

use maypole_lab::averaging::DataForm;
use maypole_lab::averaging::apart::AveragedStore;
use maypole_lab::averaging::diloco::{Diloco, OuterStep};
use maypole_lab::compare::Recipe;
use maypole_trainer::data_parallel::sharding::Sharding;
use maypole_trainer::model::axes::Axes;
use maypole_trainer::model::config::Config;
use maypole_trainer::model::layout::ParameterLayout;
use maypole_trainer::model::store::{FlatStore, Store};
use maypole_trainer::model::transformer::Transformer;
use maypole_trainer::train::optim::{Optimizer, Rule};
use maypole_trainer::train::schedule::RateSchedule;
use maypole_trainer::train::trainer::Trainer;

fn recipe(steps: u64) -> Recipe {
    let config = Config {
        vocab: 123,
        context: 16,
        width: 16,
        heads: 2,
        layers: 2,
        experts: 0,
        ..Config::default()
    };
    let schedule = RateSchedule::constant(1e-3);
    Recipe { config, rule: Rule::ADAMW, schedule, steps, ..Recipe::default() }
}

fn diloco(recipe: &Recipe, ranks: usize, every: u64, outer: OuterStep) -> (Vec<f64>, Vec<f32>) {
    let prepare = |trainer: &mut Trainer<f32>| {
        let layout = trainer.parts.store.layout().clone();
        let flat = FlatStore::new(layout.clone(), layout.initial(recipe.seed));
        let rule = Diloco::new(&flat.weights, outer);
        let group = trainer.groups.copies.clone();
        trainer.parts.store = Box::new(AveragedStore::new(flat, group, every, rule));
    };
    let sharding = DataForm::Diloco { every };
    let (outcome, _) = recipe.each_rank((ranks, 1), sharding, prepare, |_| ());
    (outcome.losses, outcome.weights)
}

/// All ranks in one process: each has a store and an optimizer, and they take turns with one model.
struct Simulation {
    ranks: Vec<(FlatStore<f32>, Optimizer<f32>)>,
    gpt: Transformer<f32>,
}

impl Simulation {
    fn new(recipe: &Recipe, ranks: usize) -> Self {
        let layout = ParameterLayout::whole(&recipe.config);
        let rank = |_| {
            let flat = FlatStore::new(layout.clone(), layout.initial(recipe.seed));
            (flat, Optimizer::new(recipe.rule))
        };
        let gpt = Transformer::new(&layout, Axes::single_rank(&layout.config));
        Self { ranks: (0..ranks).map(rank).collect(), gpt }
    }

    /// One inner step of each rank on its own rows.
    fn inner_step(&mut self, recipe: &Recipe, step: u64) {
        let count = self.ranks.len();
        let batches = recipe.text().step(step, recipe.rows, count);
        for ((store, optimizer), batch) in self.ranks.iter_mut().zip(batches) {
            self.gpt.train(store, &batch, true).unwrap();
            store.gradients.iter_mut().for_each(|g| *g *= count as f32);
            optimizer.step(&mut store.local_shards(), recipe.schedule.rate(step), 1.0);
            store.publish().unwrap();
        }
    }
}

#[test]
fn outer_steps_are_bitwise_their_simulation() {
    let recipe = recipe(6);
    let outer = OuterStep { rate: 0.5, momentum: 0.75 };
    let (_, weights) = diloco(&recipe, 2, 3, outer);
    let mut all = Simulation::new(&recipe, 2);
    let mut anchor = all.ranks[0].0.weights.clone();
    let mut velocity = vec![0.0f32; anchor.len()];
    for step in 0..6 {
        all.inner_step(&recipe, step);
        if step % 3 != 2 {
            continue;
        }
        let both = all.ranks[0].0.weights.iter().zip(&all.ranks[1].0.weights);
        let state = anchor.iter_mut().zip(&mut velocity).zip(both);
        for ((anchor, velocity), (first, second)) in state {
            let mean = ((*anchor - first) + (*anchor - second)) * 0.5;
            *velocity = 0.75 * *velocity + mean;
            *anchor -= 0.5 * (mean + 0.75 * *velocity);
        }
        all.ranks.iter_mut().for_each(|(store, _)| store.weights.copy_from_slice(&anchor));
    }
    assert!(weights == anchor, "the outer optimizer is Nesterov's");
}

#[test]
fn an_outer_rate_of_one_without_momentum_is_local_sgd() {
    // AdamW would make whole steps of what rounding leaves of a gradient of nearly zero.
    let recipe = Recipe { rule: Rule::Sgd, schedule: RateSchedule::constant(0.1), ..recipe(6) };
    let plain = OuterStep { rate: 1.0, momentum: 0.0 };
    let (losses, weights) = diloco(&recipe, 4, 3, plain);
    let local = recipe.ranks(4, 1, DataForm::Local { every: 3 });
    let far = weights.iter().zip(&local.weights).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(far < 1e-5, "{far:e}");
    let near = losses.iter().zip(&local.losses).all(|(a, b)| (a - b).abs() < 1e-5 * b);
    assert!(near, "{losses:?} {:?}", local.losses);
}

/// With four outer steps only, the loss still falls, and a fiftieth of the bytes is sent.
#[test]
fn outer_steps_send_a_fiftieth_and_learn() {
    crate::skip::takes_turns!(4);
    let schedule = RateSchedule::constant(3e-3);
    let recipe = Recipe { rows: 16, schedule, ..recipe(200) };
    let run = |sharding: DataForm| {
        let look = |trainer: &mut Trainer<f32>| trainer.sent().copies;
        let (outcome, sent) = recipe.each_rank((2, 1), sharding, |_| (), look);
        let last = outcome.losses.iter().rev().take(20).sum::<f64>() / 20.0;
        (last, sent[0], outcome.losses[0])
    };
    let (together, all, first) = run(DataForm::from(Sharding::default()));
    let (apart, few, _) = run(DataForm::Diloco { every: 50 });
    println!("loss {first:.3} to {together:.4} by dp, {apart:.4} by DiLoCo; bytes {all} and {few}");
    assert!(few * 40 <= all, "{few} bytes of {all}");
    assert!(together < 0.15 * first && apart < 1.5 * together, "{apart} and {together}");
}

#[test]
fn gossip_is_bitwise_its_simulation_and_keeps_the_mean() {
    let recipe = Recipe { rows: 9, ..recipe(4) };
    let look = |trainer: &mut Trainer<f32>| trainer.parts.store.local_shards()[0].weights.to_vec();
    let (outcome, own) = recipe.each_rank((3, 1), DataForm::Gossip { every: 2 }, |_| (), look);
    let mut all = Simulation::new(&recipe, 3);
    for step in 0..4 {
        all.inner_step(&recipe, step);
        if step % 2 == 1 {
            let before: Vec<Vec<f32>> =
                all.ranks.iter().map(|(store, _)| store.weights.clone()).collect();
            for (rank, (store, _)) in all.ranks.iter_mut().enumerate() {
                let previous = &before[(rank + 2) % 3];
                let both = store.weights.iter_mut().zip(previous);
                both.for_each(|(own, previous)| *own = 0.5 * (*own + *previous));
            }
        }
    }
    for (rank, (store, _)) in all.ranks.iter().enumerate() {
        assert!(own[rank] == store.weights, "rank {rank}");
    }
    assert_ne!(own[0], own[1], "ranks have weights of their own");
    let mean = |at: usize| (own[0][at] + own[1][at] + own[2][at]) / 3.0;
    let far = outcome.weights.iter().enumerate().map(|(at, weight)| (weight - mean(at)).abs());
    assert!(far.fold(0.0, f32::max) < 1e-6, "the model of the run is the mean");
}

/// On a ring of four, differences along the ring shrink by cos(pi / 4) a round at least.
#[test]
fn rounds_of_gossip_draw_ranks_together() {
    let spread = |rounds: u64| {
        let recipe = Recipe { schedule: RateSchedule::constant(0.0), ..recipe(rounds) };
        let prepare = |trainer: &mut Trainer<f32>| {
            let rank = trainer.groups.world.rank() as f32;
            let weights = trainer.parts.store.local_shards().remove(0).weights;
            weights.iter_mut().for_each(|weight| *weight += rank);
        };
        let look = |trainer: &mut Trainer<f32>| trainer.parts.store.local_shards()[0].weights[0];
        let sharding = DataForm::Gossip { every: 1 };
        let (_, firsts) = recipe.each_rank((4, 1), sharding, prepare, look);
        let mean = firsts.iter().sum::<f32>() / 4.0;
        firsts.iter().map(|first| (first - mean).powi(2)).sum::<f32>().sqrt()
    };
    let [early, late] = [spread(1), spread(5)];
    let bound = (std::f32::consts::PI / 4.0).cos().powi(4);
    assert!(early > 0.1 && late <= 1.01 * bound * early, "{early} and {late}");
}

#[test]
fn sums_that_are_not_late_are_data_parallelism_bit_for_bit() {
    for rule in [Rule::Sgd, Rule::ADAMW] {
        let recipe = Recipe { rule, clip: Some(0.5), ..recipe(6) };
        let stale = recipe.ranks(2, 2, DataForm::Stale { late: 0 });
        let together = recipe.ranks(2, 2, Sharding::default());
        assert!(stale.difference(&together).bitwise, "{rule:?}");
    }
}

#[test]
fn late_sums_are_bitwise_gradients_of_earlier_weights() {
    let late = 2;
    let recipe = Recipe { rule: Rule::Sgd, schedule: RateSchedule::constant(0.1), ..recipe(6) };
    let outcome = recipe.ranks(2, 1, DataForm::Stale { late });
    let layout = ParameterLayout::whole(&recipe.config);
    let mut gpt = Transformer::new(&layout, Axes::single_rank(&layout.config));
    let mut store = FlatStore::new(layout.clone(), layout.initial(recipe.seed));
    let mut sums: Vec<Vec<f32>> = Vec::new();
    for step in 0..recipe.steps {
        let mut sum = vec![0.0f32; layout.len()];
        for batch in recipe.text().step(step, recipe.rows, 2) {
            store.gradients.fill(0.0);
            gpt.train(&mut store, &batch, true).unwrap();
            sum.iter_mut().zip(&store.gradients).for_each(|(sum, own)| *sum += *own);
        }
        sums.push(sum);
        let due = step.checked_sub(late).map(|from| sums[from as usize].clone());
        store.gradients = due.unwrap_or_else(|| vec![0.0; layout.len()]);
        Optimizer::new(Rule::Sgd).step(&mut store.local_shards(), 0.1, 1.0);
    }
    assert!(outcome.weights == store.weights, "each sum came two steps later");
    assert!(outcome.weights != recipe.ranks(2, 1, DataForm::Stale { late: 1 }).weights);
}

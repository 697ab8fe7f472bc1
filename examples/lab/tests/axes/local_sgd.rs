//! Weights averaged now and then: local SGD against data parallelism and against a simulation in
//! one process.

use maypole_lab::averaging::DataForm;
use maypole_lab::compare::Recipe;
use maypole_lab::replicas::SumFirst;
use maypole_trainer::model::axes::Axes;
use maypole_trainer::model::layout::ParameterLayout;
use maypole_trainer::model::store::{FlatStore, Store};
use maypole_trainer::model::transformer::Transformer;
use maypole_trainer::ranks::group::RankGroup;
use maypole_trainer::train::clip::{GradientNorm, factor};
use maypole_trainer::train::optim::{Optimizer, Rule};
use maypole_trainer::train::schedule::RateSchedule;

#[test]
fn averaging_after_every_step_of_sgd_is_data_parallelism() {
    crate::skip::takes_turns!(4);
    let recipe = Recipe::default();
    let outcome = recipe.ranks(2, 1, DataForm::Local { every: 1 });
    let difference = outcome.difference(&recipe.alone(2, 1, SumFirst::MicroBatches));
    assert!(difference.loss < 1e-6 && difference.weights < 1e-6, "{difference:?}");
}

#[test]
fn averaging_now_and_then_is_bitwise_its_simulation() {
    crate::skip::takes_turns!(4);
    for clip in [None, Some(0.5)] {
        compare_with_its_simulation(clip);
    }
}

/// Each rank clips by the norm of its own gradient.
fn compare_with_its_simulation(clip: Option<f64>) {
    let ranks = 4;
    let every = 3;
    let rule = if clip.is_some() { Rule::Sgd } else { Rule::ADAMW };
    let recipe = Recipe {
        rule,
        schedule: RateSchedule::constant(1e-3),
        steps: 6,
        clip,
        ..Recipe::default()
    };
    let outcome = recipe.ranks(ranks, 1, DataForm::Local { every });

    let layout = ParameterLayout::whole(&recipe.config);
    let text = recipe.text();
    let mut gpt = Transformer::new(&layout, Axes::single_rank(&layout.config));
    let mut all: Vec<(FlatStore<f32>, Optimizer<f32>)> = (0..ranks)
        .map(|_| {
            (
                FlatStore::new(layout.clone(), layout.initial(recipe.seed)),
                Optimizer::new(recipe.rule),
            )
        })
        .collect();
    let mut losses = Vec::new();
    let own = GradientNorm::new(&layout, RankGroup::single(), |_| 1);
    for step in 0..recipe.steps {
        let mut loss = 0.0;
        for ((store, optimizer), batch) in all.iter_mut().zip(text.step(step, recipe.rows, ranks)) {
            loss += gpt.train(store, &batch, true).unwrap();
            store.gradients.iter_mut().for_each(|g| *g *= ranks as f32);
            let norm = own.of(&store.local_shards()).unwrap();
            assert!(norm > 0.5, "there is nothing to clip");
            optimizer.step(&mut store.local_shards(), 1e-3, factor(norm, clip));
            store.publish().unwrap();
        }
        losses.push(loss);
        if (step + 1).is_multiple_of(every) {
            let mean = |i: usize| {
                all[1..].iter().fold(all[0].0.weights[i], |sum, it| sum + it.0.weights[i]) / 4.0
            };
            let mean: Vec<f32> = (0..layout.len()).map(mean).collect();
            all.iter_mut().for_each(|it| it.0.weights.copy_from_slice(&mean));
        }
    }
    assert_eq!(outcome.losses, losses);
    assert_eq!(outcome.weights, all[0].0.weights);
    let often = recipe.ranks(ranks, 1, DataForm::Local { every: 1 });
    assert_ne!(often.weights, outcome.weights, "how often matters");
}

/// Between two averages ranks have different weights, but the run ends with one model: their mean.
#[test]
fn a_run_that_ends_between_averages_ends_with_their_mean() {
    let recipe = Recipe { steps: 2, ..Recipe::default() };
    let (outcome, own) = recipe.each_rank(
        (2, 1),
        DataForm::Local { every: 3 },
        |_| (),
        |trainer| trainer.parts.store.local_shards()[0].weights.to_vec(),
    );
    assert_ne!(own[0], own[1]);
    let mean: Vec<f32> = own[0].iter().zip(&own[1]).map(|(a, b)| (a + b) / 2.0).collect();
    assert_eq!(outcome.weights, mean);
}

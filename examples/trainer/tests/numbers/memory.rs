//! Bytes a rank, measured on its buffers, beside the formulas.

use half::bf16;
use maypole_trainer::check::memory::{FULL, RankMemory};
use maypole_trainer::check::verify::Recipe;
use maypole_trainer::data_parallel::sharding::Sharding;
use maypole_trainer::model::layout::ParameterLayout;
use maypole_trainer::ranks::group::RankGroup;
use maypole_trainer::train::optim::Rule;
use maypole_trainer::train::schedule::RateSchedule;
use maypole_trainer::train::session::TrainingSession;

const FSDP: Sharding = Sharding::Fsdp { prefetch: true };

#[test]
fn every_sharding_holds_what_theory_says() {
    let recipe = Recipe {
        rule: Rule::ADAMW,
        schedule: RateSchedule::constant(1e-3),
        steps: 1,
        ..Recipe::default()
    };
    let parameters = recipe.config.parameters();
    for sharding in [
        Sharding::default(),
        Sharding::Zero1,
        Sharding::Zero2,
        Sharding::Fsdp { prefetch: true },
        Sharding::Local { every: 1 },
    ] {
        for ranks in [1, 2, 4] {
            let (_, seen) = recipe.each_rank(
                (ranks, 1),
                sharding,
                |_, _| (),
                |session, _| RankMemory::of(session),
            );
            let theory = RankMemory::theory(sharding, parameters, ranks, 2, FULL);
            for memory in &seen {
                assert_eq!(*memory, theory, "{sharding:?} on {ranks}");
            }
        }
    }
}

#[test]
fn sixteen_bits_take_half_of_weights_and_gradients_and_add_masters() {
    let recipe = Recipe {
        rule: Rule::ADAMW,
        schedule: RateSchedule::constant(1e-3),
        steps: 1,
        ..Recipe::default()
    };
    let parameters = recipe.config.parameters();
    let per_parameter =
        |sharding| RankMemory::theory(sharding, 100, 2, 2, 2).total() as f64 / 100.0;
    let [all, zero1, zero2, fsdp] =
        [Sharding::default(), Sharding::Zero1, Sharding::Zero2, FSDP].map(per_parameter);
    // 2 + 2 + 12, of which the 12, the 2 and the other 2 are sharded one after another.
    assert_eq!([all, zero1, zero2, fsdp], [16.0, 10.0, 9.0, 8.0]);
    for sharding in [Sharding::default(), Sharding::Zero1, Sharding::Zero2, FSDP] {
        for ranks in [1, 2, 4] {
            let narrow = |session: &mut TrainingSession<f32>, group: &RankGroup| {
                recipe.narrow::<bf16>(session, sharding, group)
            };
            let (_, seen) = recipe
                .each_rank((ranks, 1), sharding, narrow, |session, _| RankMemory::of(session));
            let theory = RankMemory::theory(sharding, parameters, ranks, 2, 2);
            for memory in &seen {
                assert_eq!(*memory, theory, "{sharding:?} on {ranks}");
            }
        }
    }
}

#[test]
fn fully_sharded_ranks_gather_two_units_at_most() {
    let recipe = Recipe { steps: 2, ..Recipe::default() };
    let units: Vec<usize> = ParameterLayout::whole(&recipe.config)
        .units
        .iter()
        .map(|unit| unit.range.len() * size_of::<f32>())
        .collect();
    let one = *units.iter().max().unwrap();
    let two = units.windows(2).map(|pair| pair[0] + pair[1]).max().unwrap();
    for micros in [1, 2] {
        let peak = |prefetch| {
            let look = |session: &mut TrainingSession<f32>, _: &RankGroup| session.store.bytes();
            recipe.each_rank((2, micros), Sharding::Fsdp { prefetch }, |_, _| (), look).1
        };
        for (early, late) in peak(true).into_iter().zip(peak(false)) {
            assert_eq!(
                (early.gathered, late.gathered),
                (two, one),
                "the unit at work, and the next one if it is asked for"
            );
            // Besides weights: one unit's gradients are made while those of another are sent.
            assert_eq!((early.transient, late.transient), (two + 2 * one, one + 2 * one));
        }
    }
}

#[test]
fn activations_are_what_the_formula_says_and_less_if_they_are_recomputed() {
    let recipe = Recipe { steps: 1, ..Recipe::default() };
    let config = &recipe.config;
    let look = |_: &mut _, _: &_| ();
    recipe.each_rank((1, 1), Sharding::default(), look, |session, _| {
        let batch = recipe.text().step(0, recipe.rows, 1).remove(0);
        let mut bytes = |recompute| {
            session.gpt.recompute = recompute;
            session
                .gpt
                .forward(0..session.gpt.units(), &mut *session.store, &batch, Vec::new())
                .unwrap()
                .1
                .bytes()
        };
        assert_eq!(
            bytes(false),
            config.layers * config.activation_bytes(recipe.rows, config.context, 4)
        );
        assert_eq!(bytes(true), config.layers * recipe.rows * config.context * config.width * 4);
    });
}

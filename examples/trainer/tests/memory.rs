//! Bytes a rank, measured on its buffers, beside the formulas.

use half::bf16;
use maypole_trainer::group::Group;
use maypole_trainer::memory::{FULL, Memory};
use maypole_trainer::optim::Rule;
use maypole_trainer::schedule::Schedule;
use maypole_trainer::session::Session;
use maypole_trainer::sharding::Sharding;
use maypole_trainer::verify::Recipe;

const FSDP: Sharding = Sharding::Fsdp { prefetch: true };

#[test]
fn every_sharding_holds_what_theory_says() {
    let recipe = Recipe { rule: Rule::ADAMW, schedule: Schedule::constant(1e-3), steps: 1, ..Recipe::default() };
    let parameters = recipe.config.parameters();
    for sharding in [
        Sharding::default(),
        Sharding::Zero1,
        Sharding::Zero2,
        Sharding::Fsdp { prefetch: true },
        Sharding::Local { every: 1 },
    ] {
        for ranks in [1, 2, 4] {
            let (_, seen) = recipe.each_rank((ranks, 1), sharding, |_, _| (), |session, _| Memory::of(session));
            let theory = Memory::theory(sharding, parameters, ranks, 2, FULL);
            for memory in &seen {
                assert_eq!(*memory, theory, "{sharding:?} on {ranks}");
            }
        }
    }
}

#[test]
fn sixteen_bits_take_half_of_weights_and_gradients_and_add_masters() {
    let recipe = Recipe { rule: Rule::ADAMW, schedule: Schedule::constant(1e-3), steps: 1, ..Recipe::default() };
    let parameters = recipe.config.parameters();
    let per_parameter = |sharding| Memory::theory(sharding, 100, 2, 2, 2).total() as f64 / 100.0;
    let [all, zero1, zero2, fsdp] = [Sharding::default(), Sharding::Zero1, Sharding::Zero2, FSDP].map(per_parameter);
    // 2 + 2 + 12, of which the 12, the 2 and the other 2 are sharded one after another.
    assert_eq!([all, zero1, zero2, fsdp], [16.0, 10.0, 9.0, 8.0]);
    for sharding in [Sharding::default(), Sharding::Zero1, Sharding::Zero2, FSDP] {
        for ranks in [1, 2, 4] {
            let narrow = |session: &mut Session<f32>, group: &Group| recipe.narrow::<bf16>(session, sharding, group);
            let (_, seen) = recipe.each_rank((ranks, 1), sharding, narrow, |session, _| Memory::of(session));
            let theory = Memory::theory(sharding, parameters, ranks, 2, 2);
            for memory in &seen {
                assert_eq!(*memory, theory, "{sharding:?} on {ranks}");
            }
        }
    }
}

#[test]
fn fully_sharded_ranks_gather_two_units_at_most() {
    let recipe = Recipe { steps: 1, ..Recipe::default() };
    let largest = recipe.config.parameters().div_ceil(4) * 4;
    let peak = |prefetch| {
        let look = |session: &mut maypole_trainer::session::Session<f32>, _: &_| {
            let units = session.store.layout().units.iter().map(|unit| unit.range.len()).max().unwrap();
            (session.store.bytes().transient, 4 * units)
        };
        recipe.each_rank((2, 1), Sharding::Fsdp { prefetch }, |_, _| (), look).1[0]
    };
    let ((early, unit), (late, _)) = (peak(true), peak(false));
    // Besides two units' weights, one unit's gradients are made while another's are sent.
    assert!(early <= 4 * unit, "{early} bytes are more than four units of {unit}");
    assert!(late < early && late <= 3 * unit, "without prefetching {late}, with it {early}");
    assert!(unit < largest);
}

#[test]
fn activations_are_what_the_formula_says_and_less_if_they_are_recomputed() {
    let recipe = Recipe { steps: 1, ..Recipe::default() };
    let (config, look) = (&recipe.config, |_: &mut _, _: &_| ());
    recipe.each_rank((1, 1), Sharding::default(), look, |session, _| {
        let batch = recipe.text().step(0, recipe.rows, 1).remove(0);
        let mut bytes = |recompute| {
            session.gpt.recompute = recompute;
            session.gpt.forward(0..session.gpt.units(), &mut *session.store, &batch, Vec::new()).unwrap().1.bytes()
        };
        assert_eq!(bytes(false), config.layers * config.activation_bytes(recipe.rows, config.context, 4));
        assert_eq!(bytes(true), config.layers * recipe.rows * config.context * config.width * 4);
    });
}

//! The gradient's norm, and clipping by it, under every sharding.

use maypole_lab::compare::Recipe;
use maypole_lab::replicas::SumFirst;
use maypole_trainer::data_parallel::sharding::Sharding;
use maypole_trainer::train::clip::GradientNorm;
use maypole_trainer::train::trainer::Trainer;

const DATA: Sharding = Sharding::Replicated { bucket: Some(25 << 20), overlap: true };

#[test]
fn every_sharding_clips_by_the_norm_of_the_whole() {
    let recipe = Recipe { clip: Some(0.5), steps: 5, rows: 6, ..Recipe::default() };
    let alone = recipe.alone(1, 1, SumFirst::MicroBatches);
    assert!(
        alone.norms.iter().all(|norm| *norm > 0.5),
        "the limit has to matter: {:?}",
        alone.norms
    );
    for (ranks, sharding) in [
        (2, DATA),
        (3, DATA),
        (2, Sharding::Zero1),
        (3, Sharding::Zero2),
        (2, Sharding::Fsdp { prefetch: true }),
        (3, Sharding::Fsdp { prefetch: false }),
    ] {
        let outcome = recipe.ranks(ranks, 1, sharding);
        for (norm, expected) in outcome.norms.iter().zip(&alone.norms) {
            assert!(
                (norm - expected).abs() < 1e-6 * expected,
                "{ranks} ranks, {sharding:?}: {norm}, not {expected}"
            );
        }
        let difference = outcome.difference(&alone);
        assert!(
            difference.loss < 1e-6 && difference.weights < 1e-6,
            "{ranks} ranks, {sharding:?}: {difference:?}"
        );
    }
}

#[test]
fn a_norm_that_counts_copies_or_parts_wrongly_is_detected() {
    let recipe = Recipe { clip: Some(0.5), steps: 3, ..Recipe::default() };
    let alone = recipe.alone(1, 1, SumFirst::MicroBatches);
    for (sharding, copies) in [(DATA, 1), (Sharding::Zero2, 2)] {
        let wrong = |trainer: &mut Trainer<f32>| {
            let world = trainer.groups.world.clone();
            let layout = trainer.parts.store.layout();
            trainer.parts.clip.norm = GradientNorm::new(layout, world, |_| copies);
        };
        let (outcome, _) = recipe.each_rank((2, 1), sharding, wrong, |_| ());
        assert!((outcome.norms[0] - alone.norms[0]).abs() > 0.2 * alone.norms[0], "{sharding:?}");
        assert!(outcome.difference(&alone).weights > 1e-6, "{sharding:?}");
    }
}

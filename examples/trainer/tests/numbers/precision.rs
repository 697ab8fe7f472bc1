//! Mixed precision: it trains, masters are 32-bit, and an overflow anywhere skips the step
//! everywhere.

use half::{bf16, f16};
use maypole_trainer::check::verify::{Recipe, SumFirst};
use maypole_trainer::data_parallel::sharding::Sharding;
use maypole_trainer::model::store::OwnedRun;
use maypole_trainer::ranks::group::RankGroup;
use maypole_trainer::tensor::device::{CpuDevice, Device};
use maypole_trainer::tensor::half_float::HalfFloat;
use maypole_trainer::tensor::precision::{HalfPrecisionDevice, LossScale};
use maypole_trainer::train::optim::{Optimizer, Rule};
use maypole_trainer::train::schedule::RateSchedule;
use maypole_trainer::train::session::TrainingSession;
use std::sync::Arc;
use std::time::Instant;

const DATA: Sharding = Sharding::Replicated { bucket: Some(25 << 20), overlap: true };

fn recipe(steps: u64) -> Recipe {
    Recipe { rule: Rule::ADAMW, schedule: RateSchedule::constant(1e-3), steps, ..Recipe::default() }
}

#[test]
fn sixteen_bits_train_as_well_within_one_part_in_a_hundred() {
    let recipe = recipe(40);
    let wide = recipe.alone(1, 1, SumFirst::MicroBatches);
    let last = |outcome: &maypole_trainer::check::verify::TrainingOutcome| {
        outcome.losses[35..].iter().sum::<f64>() / 5.0
    };
    assert!(last(&wide) < 0.7 * wide.losses[0], "it learns: {:?}", wide.losses);
    let (brain, _) =
        recipe.each_rank((2, 1), DATA, |s, group| recipe.narrow::<bf16>(s, DATA, group), |_, _| ());
    let scaled = |session: &mut TrainingSession<f32>, group: &RankGroup| {
        recipe.narrow::<f16>(session, Sharding::Zero2, group);
        session.scale = Some(LossScale::default());
    };
    let (half, _) = recipe.each_rank((2, 1), Sharding::Zero2, scaled, |_, _| ());
    for narrow in [brain, half] {
        assert!(
            (last(&narrow) - last(&wide)).abs() < 0.01 * last(&wide),
            "{} and {}",
            last(&narrow),
            last(&wide)
        );
        assert!(narrow.difference(&wide).weights > 1e-6, "16 bits are not 32");
    }
}

#[test]
fn sixteen_bits_are_the_same_bits_in_every_sharding() {
    let recipe = recipe(5);
    let train = |sharding| {
        recipe.each_rank(
            (2, 1),
            sharding,
            |s, group| recipe.narrow::<bf16>(s, sharding, group),
            |_, group| group.payload(),
        )
    };
    let (all, sent) = train(DATA);
    for sharding in [Sharding::Zero1, Sharding::Zero2, Sharding::Fsdp { prefetch: true }] {
        let (outcome, _) = train(sharding);
        assert!(outcome.difference(&all).bitwise, "{sharding:?}");
    }
    let wide = recipe.each_rank((2, 1), DATA, |_, _| (), |_, group| group.payload()).1;
    // Each step sums gradients and the loss (8 bytes); it gathers no weights.
    let losses = 8 * recipe.steps;
    assert_eq!((sent[0] - losses) * 2, wide[0] - losses, "half as many bytes leave");
}

#[test]
fn masters_are_updated_as_in_32_bits() {
    let recipe = recipe(1);
    let mut session = recipe.session(&RankGroup::single(), DATA);
    recipe.narrow::<bf16>(&mut session, DATA, &RankGroup::single());
    let batch = recipe.text().step(0, recipe.rows, 1).remove(0);
    let loss = session.gpt.train(&mut *session.store, &batch, true).unwrap();
    let copy = |owned: &OwnedRun<'_, f32>| (owned.weights.to_vec(), owned.gradients.to_vec());
    let (mut weights, mut gradients) = copy(&session.store.owned()[0]);
    session.update(loss).unwrap();
    let owned = OwnedRun { offset: 0, weights: &mut weights, gradients: &mut gradients };
    Optimizer::new(recipe.rule).step(&mut [owned], 1e-3, 1.0);
    assert_eq!(session.store.owned()[0].weights, weights);
    let mut rounded = weights.clone();
    bf16::coarsen(&mut rounded);
    assert_ne!(rounded, weights, "masters have more bits than layers see");
}

/// Makes one element of a gradient infinite, as an overflow of 16 bits does.
#[derive(Debug)]
struct Overflowing;

impl Device<f32> for Overflowing {
    fn bias_backward(&self, db: &mut [f32], dy: &[f32]) {
        CpuDevice.bias_backward(db, dy);
        db[5] = f32::INFINITY;
    }
}

/// Marks the gradients that it computes.
#[derive(Debug)]
struct Marking;

impl Device<f32> for Marking {
    fn bias_backward(&self, db: &mut [f32], _: &[f32]) {
        db[0] = 1.0;
    }

    fn embed_backward(&self, dtable: &mut [f32], _: usize, _: &[u32], _: &[f32]) {
        dtable[0] = 2.0;
    }
}

#[test]
fn gradients_of_parameters_are_computed_by_the_device_that_is_rounded() {
    let device = HalfPrecisionDevice::<bf16>::rounding(Arc::new(Marking));
    let mut bias = [0.0; 2];
    device.bias_backward(&mut bias, &[5.0; 4]);
    let mut table = [0.0; 2];
    device.embed_backward(&mut table, 0, &[0], &[5.0; 2]);
    assert_eq!((bias, table), ([1.0, 0.0], [2.0, 0.0]));
}

#[test]
fn an_infinite_gradient_on_one_rank_skips_the_step_on_all() {
    for sharding in [DATA, Sharding::Zero2, Sharding::Fsdp { prefetch: true }] {
        let recipe = Recipe { steps: 2, ..recipe(2) };
        let look = |session: &mut TrainingSession<f32>, group: &RankGroup| {
            let before = session.store.all_weights().unwrap();
            let batch = &recipe.text().step(2, 2, 2)[group.rank()];
            session.scale = Some(LossScale { patience: 2, ..LossScale::default() });
            if group.rank() == 1 {
                session.gpt.device = Arc::new(Overflowing);
            }
            let full = session.scale.unwrap().factor;
            let report = session.step(std::slice::from_ref(batch), Instant::now()).unwrap().report;
            session.gpt.device = Arc::new(CpuDevice);
            assert!(!report.norm.unwrap().is_finite(), "{sharding:?}");
            assert_eq!(
                session.store.all_weights().unwrap(),
                before,
                "{sharding:?}: the step is not taken"
            );
            let skipped = session.scale.unwrap();
            assert_eq!((skipped.factor, skipped.skipped), (full / 2.0, 1), "{sharding:?}");
            for _ in 0..2 {
                session.step(std::slice::from_ref(batch), Instant::now()).unwrap();
            }
            assert_eq!(session.scale.unwrap().factor, full, "after two good steps it doubles");
            assert_ne!(session.store.all_weights().unwrap(), before);
        };
        recipe.each_rank((2, 1), sharding, |_, _| (), look);
    }
}

#[test]
fn a_scale_beyond_f16_comes_down_by_itself() {
    let recipe = recipe(25);
    let scaled = |session: &mut TrainingSession<f32>, group: &RankGroup| {
        recipe.narrow::<f16>(session, DATA, group);
        session.scale = Some(LossScale { factor: f64::from(1 << 30), ..LossScale::default() });
    };
    let (outcome, scales) =
        recipe.each_rank((2, 1), DATA, scaled, |session, _| session.scale.unwrap());
    assert_eq!(scales[0], scales[1]);
    assert!((14..20).contains(&scales[0].skipped), "{:?}", scales[0]);
    assert!(outcome.losses[24] < outcome.losses[0]);
}

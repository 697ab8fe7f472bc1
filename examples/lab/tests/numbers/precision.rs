//! Mixed precision: it trains, masters are 32-bit, and an overflow anywhere skips the step
//! everywhere.

use crate::support::mesh;
use half::{bf16, f16};
use maypole::Result;
use maypole_lab::averaging::DataForm;
use maypole_lab::compare::Recipe;
use maypole_lab::replicas::SumFirst;
use maypole_trainer::data_parallel::sharding::Sharding;
use maypole_trainer::model::store::ParamShard;
use maypole_trainer::tensor::device::{CpuDevice, Device};
use maypole_trainer::tensor::half_float::HalfFloat;
use maypole_trainer::tensor::precision::{HalfPrecisionDevice, LossScale};
use maypole_trainer::train::optim::{Optimizer, Rule, Update};
use maypole_trainer::train::parallelism::Parallelism;
use maypole_trainer::train::schedule::RateSchedule;
use maypole_trainer::train::trainer::Trainer;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

const DATA: Sharding = Sharding::Replicated { bucket: Some(25 << 20), overlap: true };

fn recipe(steps: u64) -> Recipe {
    Recipe { rule: Rule::ADAMW, schedule: RateSchedule::constant(1e-3), steps, ..Recipe::default() }
}

#[test]
fn sixteen_bits_train_as_well_within_one_part_in_a_hundred() {
    crate::skip::takes_turns!(4);
    let recipe = recipe(40);
    let wide = recipe.alone(1, 1, SumFirst::MicroBatches);
    let last = |outcome: &maypole_lab::compare::TrainingOutcome| {
        outcome.losses[35..].iter().sum::<f64>() / 5.0
    };
    assert!(last(&wide) < 0.7 * wide.losses[0], "it learns: {:?}", wide.losses);
    let (brain, _) =
        recipe.each_rank((2, 1), DATA, |trainer| recipe.narrow::<bf16>(trainer), |_| ());
    let scaled = |trainer: &mut Trainer<f32>| {
        recipe.narrow::<f16>(trainer);
        trainer.parts.clip.scale = Some(LossScale::default());
    };
    let (half, _) = recipe.each_rank((2, 1), Sharding::Zero2, scaled, |_| ());
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
    crate::skip::takes_turns!(4);
    let recipe = recipe(5);
    let train = |sharding| {
        recipe.each_rank(
            (2, 1),
            sharding,
            |trainer| recipe.narrow::<bf16>(trainer),
            |trainer| trainer.sent().copies,
        )
    };
    let (all, sent) = train(DATA);
    for sharding in [Sharding::Zero1, Sharding::Zero2, Sharding::Fsdp { prefetch: true }] {
        let (outcome, _) = train(sharding);
        assert!(outcome.difference(&all).bitwise, "{sharding:?}");
    }
    let wide = recipe.each_rank((2, 1), DATA, |_| (), |trainer| trainer.sent().copies).1;
    // Each step sums gradients and gathers no weights.
    assert_eq!(sent[0], wide[0], "gradients are summed in 32 bits");
}

/// An optimizer that records its input, and its result in 32 bits.
#[derive(Debug)]
struct Noting {
    inner: Optimizer<f32>,
    expected: Rc<RefCell<Vec<f32>>>,
}

impl Update<f32> for Noting {
    fn step(
        &mut self,
        owned: &mut [ParamShard<'_, f32>],
        rate: f64,
        factor: Option<f64>,
    ) -> Result<()> {
        let copy = |run: &ParamShard<'_, f32>| (run.weights.to_vec(), run.gradients.to_vec());
        let (mut weights, mut gradients) = copy(&owned[0]);
        let run = ParamShard { offset: 0, weights: &mut weights, gradients: &mut gradients };
        self.inner.clone().step(&mut [run], rate, factor.unwrap());
        self.expected.replace(weights);
        Update::step(&mut self.inner, owned, rate, factor)
    }

    fn optimizer(&self) -> &Optimizer<f32> {
        &self.inner
    }

    fn optimizer_mut(&mut self) -> &mut Optimizer<f32> {
        &mut self.inner
    }
}

#[test]
fn masters_are_updated_as_in_32_bits() {
    let recipe = recipe(1);
    let mut trainer = recipe.alone_on(DATA);
    recipe.narrow::<bf16>(&mut trainer);
    let expected = Rc::default();
    let inner = Optimizer::new(recipe.rule);
    trainer.parts.update = Box::new(Noting { inner, expected: Rc::clone(&expected) });
    recipe.follow(&mut trainer, |_, _, _| Ok(())).unwrap();
    let weights = expected.take();
    assert_eq!(trainer.parts.store.local_shards()[0].weights, weights);
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

/// In 32 bits and in bf16, with a limit of the norm and without, and where ranks train apart.
#[test]
fn without_a_scale_an_infinite_gradient_skips_the_step_too() {
    let forms = [DATA, Sharding::Zero1, Sharding::Zero2, Sharding::Fsdp { prefetch: true }];
    let forms = forms.map(DataForm::from).into_iter().chain([DataForm::Local { every: 2 }]);
    for form in forms {
        for (narrow, clip) in [(false, None), (false, Some(1.0)), (!form.diverges(), None)] {
            let recipe = Recipe { clip, averaging: Some(form), ..recipe(1) };
            let setup = Parallelism { sharding: form.sharding(), ..mesh("dp=2") };
            let rank = |trainer: Trainer<f32>| {
                skips(trainer, &recipe, narrow, form.diverges());
                Ok(())
            };
            recipe.on_ranks(&setup, rank).unwrap();
        }
    }
}

/// Does a good step and two with an infinite gradient on rank 1.
fn skips(mut trainer: Trainer<f32>, recipe: &Recipe, narrow: bool, apart: bool) {
    if narrow {
        recipe.narrow::<bf16>(&mut trainer);
    }
    trainer.parts.clip.most_skipped = 2;
    let text = recipe.text();
    trainer.step(&text, 2).unwrap();
    let state = |trainer: &mut Trainer<f32>| {
        let owned = trainer.parts.store.local_shards();
        let weights: Vec<Vec<f32>> = owned.iter().map(|run| run.weights.to_vec()).collect();
        (weights, trainer.optimizer().clone())
    };
    let before = state(&mut trainer);
    let overflows = trainer.groups.world.rank() == 1;
    if overflows {
        trainer.parts.model.device = Arc::new(Overflowing);
    }
    let norm = trainer.step(&text, 2).unwrap().report.norm;
    // A rank that trains apart has a gradient of its own.
    let spoilt = overflows || !apart;
    assert_eq!((norm.is_finite(), trainer.parts.clip.skipped.all), (!spoilt, u64::from(spoilt)));
    let after = state(&mut trainer);
    assert!(after.0.iter().flatten().all(|weight| weight.is_finite()));
    assert!(apart || after == before, "no step is taken");
    if spoilt {
        let why = trainer.step(&text, 2).unwrap_err().to_string();
        assert!(why.contains("not finite in 2 steps in a row"), "{why}");
    }
}

#[test]
fn an_infinite_gradient_on_one_rank_skips_the_step_on_all() {
    for sharding in [DATA, Sharding::Zero2, Sharding::Fsdp { prefetch: true }] {
        let recipe = Recipe { steps: 2, ..recipe(2) };
        let look = |trainer: &mut Trainer<f32>| {
            let text = recipe.text();
            let before = trainer.parts.store.all_weights().unwrap();
            trainer.parts.clip.scale = Some(LossScale { patience: 2, ..LossScale::default() });
            if trainer.groups.world.rank() == 1 {
                trainer.parts.model.device = Arc::new(Overflowing);
            }
            let full = trainer.parts.clip.scale.unwrap().factor;
            let report = trainer.step(&text, 2).unwrap().report;
            trainer.parts.model.device = Arc::new(CpuDevice);
            assert!(!report.norm.is_finite(), "{sharding:?}");
            assert_eq!(
                trainer.parts.store.all_weights().unwrap(),
                before,
                "{sharding:?}: the step is not taken"
            );
            let clip = &trainer.parts.clip;
            let lowered = clip.scale.unwrap().factor;
            assert_eq!((lowered, clip.skipped.all), (full / 2.0, 1), "{sharding:?}");
            for _ in 0..2 {
                trainer.step(&text, 2).unwrap();
            }
            let now = trainer.parts.clip.scale.unwrap().factor;
            assert_eq!(now, full, "after two good steps it doubles");
            assert_ne!(trainer.parts.store.all_weights().unwrap(), before);
        };
        recipe.each_rank((2, 1), sharding, |_| (), look);
    }
}

#[test]
fn a_scale_beyond_f16_comes_down_by_itself() {
    crate::skip::takes_turns!(4);
    let recipe = recipe(25);
    let scaled = |trainer: &mut Trainer<f32>| {
        recipe.narrow::<f16>(trainer);
        trainer.parts.clip.scale =
            Some(LossScale { factor: f64::from(1 << 30), ..LossScale::default() });
    };
    let (outcome, scales) =
        recipe.each_rank((2, 1), DATA, scaled, |trainer| trainer.parts.clip.skipped);
    assert_eq!(scales[0], scales[1]);
    assert!((12..20).contains(&scales[0].all), "{:?}", scales[0]);
    assert!(outcome.losses[24] < outcome.losses[0]);
}

//! Every check of the tour trains as one process, and its memory and bytes sent are those of theory.

use crate::skip::{every_nth, runs_all};
use half::{bf16, f16};
use maypole::Result;
use maypole_lab::compare::Recipe;
use maypole_lab::mistakes::Mistake;
use maypole_lab::tour::list;
use maypole_lab::tour::row::{TourRow, heading};
use maypole_lab::tour::{Plant, TourSettings, checks};
use maypole_trainer::data_parallel::sharding::Sharding;
use maypole_trainer::expert_parallel::layer::ExpertLayer;
use maypole_trainer::expert_parallel::router::Router;
use maypole_trainer::model::axes::Attention;
use maypole_trainer::model::store::ParamShard;
use maypole_trainer::ranks::memory::MemoryKind;
use maypole_trainer::tensor::attention::Heads;
use maypole_trainer::tensor::device::Device;
use maypole_trainer::tensor::half_float::HalfFloat;
use maypole_trainer::tensor_parallel::region::SingleRank;
use maypole_trainer::train::optim::{Optimizer, Update};
use maypole_trainer::train::trainer::Trainer;
use std::collections::{BTreeSet, VecDeque};
use std::marker::PhantomData;
use std::rc::Rc;

/// By three steps of half of them, and of all by as many as the command takes where `TESTS=all`.
#[test]
fn every_row_of_the_tour_passes() {
    crate::skip::takes_turns!(4);
    let steps = (!runs_all()).then_some(3);
    let settings = TourSettings { steps, ..TourSettings::default() };
    let checks = every_nth(2, checks());
    let rows: Vec<_> = checks.iter().map(|check| check.run_with(&settings).unwrap()).collect();
    println!("{}", heading());
    rows.iter().for_each(|row| println!("{}", row.line()));
    for row in &rows {
        assert!(row.pass, "{row:?}");
        let pipeline = row.mesh.contains("pp=");
        assert_eq!((row.bubble > 0.0, row.bubble_theory > 0.0), (pipeline, pipeline), "{row:?}");
    }
}

fn with_fault(axis: &str, fault: Mistake) -> TourRow {
    let mut check = list::checks().into_iter().find(|check| check.axis == axis).unwrap();
    check.recipe.mistake = Some(fault);
    check.run(2).unwrap()
}

/// A mistake on a single rank, or with a single token, is enough to fail a row.
#[test]
fn a_mistake_fails_its_row() {
    crate::skip::takes_turns!(4);
    for (axis, fault) in [
        // Ranks do not divide this vocabulary. The mistake loses only its last token.
        ("tensor, byte pairs", Mistake::VocabularyRemainder),
        ("tensor, tokens divided", Mistake::NormsNotSummed),
        ("tensor, rows divided", Mistake::PositionsOfFirst),
        ("experts, clipped", Mistake::DenseCountedOften),
        ("experts, rows divided", Mistake::RouterSummed),
        ("context, Ulysses", Mistake::HeadsSwapped),
        ("data, pipeline, tensor", Mistake::MicrosSwapped),
        ("rows by speed", Mistake::RowsCutAlone),
        ("rows by speed, pipeline", Mistake::OwnRowsMean),
    ] {
        let row = with_fault(axis, fault);
        assert!(!row.pass && row.difference > row.bound, "{row:?}");
    }
}

/// A row of whole sequences has the same positions on every rank: it cannot see this mistake.
#[test]
fn rows_that_are_not_divided_do_not_see_positions() {
    let row = with_fault("tensor, tokens divided", Mistake::PositionsOfFirst);
    assert!(row.pass, "{row:?}");
}

#[test]
fn a_forward_pass_that_is_not_bitwise_is_enough_to_fail() {
    let mut check = list::checks().into_iter().find(|it| it.axis == "context, Ulysses").unwrap();
    check.recipe.mistake = Some(Mistake::HeadsSwapped);
    check.bound = f64::INFINITY;
    assert!(!check.run(1).unwrap().pass);
}

/// Mistakes of memory and of time: every loss and every weight is right.
#[test]
fn a_mistake_that_changes_no_number_fails_its_row() {
    for (axis, fault) in [
        ("pipeline, 1F1B", Mistake::PlannedAsGpipe),
        ("pipeline of four", Mistake::PlannedAsGpipe),
        ("tensor, recomputed", Mistake::ActivationsKept),
        ("ZeRO-3 and tensor", Mistake::UnitsKept),
        ("ZeRO-3 and tensor", Mistake::SumsAfterwards),
        ("data and tensor", Mistake::SumsAfterwards),
    ] {
        let row = with_fault(axis, fault);
        assert!(!row.pass && row.difference <= row.bound, "{fault:?}: {row:?}");
        let [_, _, _, activations, units, _] = row.bytes;
        match fault {
            Mistake::SumsAfterwards => assert!(row.overlapped < row.overlapped_theory),
            Mistake::UnitsKept => assert!(4 * units[0] > 5 * units[1]),
            _ => assert!(2 * activations[0] > 3 * activations[1]),
        }
    }
    let silent = Mistake::ALL.into_iter().filter(|fault| fault.changes_no_number());
    assert_eq!(silent.count(), 4, "each is above");
}

/// Attention that keeps what its backward pass got until as many layers later as a stage has.
struct KeptLonger {
    inner: Box<dyn Attention<f32>>,
    kept: VecDeque<Vec<Vec<f32>>>,
    layers: usize,
}

impl Attention<f32> for KeptLonger {
    fn forward(
        &mut self,
        device: &dyn Device<f32>,
        heads: Heads,
        qkv: &[f32],
    ) -> Result<(Vec<f32>, Vec<Vec<f32>>)> {
        self.inner.forward(device, heads, qkv)
    }

    fn backward(
        &mut self,
        device: &dyn Device<f32>,
        heads: Heads,
        qkv: &[f32],
        (y, kept): (&[f32], &[Vec<f32>]),
        dy: &[f32],
    ) -> Result<Vec<f32>> {
        let all = || [&[qkv.to_vec(), y.to_vec()], kept].concat();
        self.kept.push_back(MemoryKind::Activations.hold(all));
        if self.kept.len() > self.layers {
            self.kept.pop_front();
        }
        self.inner.backward(device, heads, qkv, (y, kept), dy)
    }
}

/// An interleaved stage keeps a part of its activations one micro-batch too long.
#[test]
fn activations_that_are_kept_one_micro_batch_longer_fail_their_row() {
    crate::skip::takes_turns!(4);
    let keep = |trainer: &mut Trainer<f32>| {
        let pipeline = &trainer.parts.pipeline;
        let layers =
            trainer.parts.model.config.layers / (pipeline.plan.ranks * pipeline.plan.chunks);
        let attention = &mut trainer.parts.model.axes.attention;
        let inner = std::mem::replace(attention, Box::new(SingleRank));
        *attention = Box::new(KeptLonger { inner, kept: VecDeque::new(), layers });
        Ok(())
    };
    for axis in ["pipeline, interleaved", "pipeline, 1F1B"] {
        let row = with_plant(axis, keep);
        assert!(!row.pass && row.difference <= row.bound, "{row:?}");
        let [_, _, _, [measured, theory], ..] = row.bytes;
        assert!(measured > theory, "{row:?}");
    }
}

/// The row `axis`, in which each rank has something planted.
fn with_plant(axis: &str, plant: Plant) -> TourRow {
    let check = checks().into_iter().find(|check| check.axis == axis).unwrap();
    check.run_with(&TourSettings { plant: Some(plant), ..TourSettings::default() }).unwrap()
}

/// An optimizer that rounds the weights to these 16 bits, so that they are no masters.
struct Rounding<H>(Optimizer<f32>, PhantomData<H>);

impl<H: HalfFloat> Update<f32> for Rounding<H> {
    fn step(
        &mut self,
        owned: &mut [ParamShard<'_, f32>],
        rate: f64,
        factor: Option<f64>,
    ) -> Result<()> {
        Update::step(&mut self.0, owned, rate, factor)?;
        owned.iter_mut().for_each(|run| H::coarsen(run.weights));
        Ok(())
    }

    fn optimizer(&self) -> &Optimizer<f32> {
        &self.0
    }

    fn optimizer_mut(&mut self) -> &mut Optimizer<f32> {
        &mut self.0
    }
}

fn rounding<H: HalfFloat>(trainer: &mut Trainer<f32>) -> Result<()> {
    let inner = Optimizer::new(trainer.optimizer().rule);
    trainer.parts.update = Box::new(Rounding::<H>(inner, PhantomData));
    Ok(())
}

#[test]
fn masters_that_are_rounded_fail_the_rows_of_16_bits() {
    crate::skip::takes_turns!(4);
    for axis in ["bf16", "bf16, ZeRO-1"] {
        let row = with_plant(axis, rounding::<bf16>);
        assert!(!row.pass && row.difference > row.bound, "{row:?}");
    }
    let row = with_plant("f16, scaled loss", rounding::<f16>);
    assert!(!row.pass && row.difference > row.bound, "{row:?}");
}

/// Ranks with different weights are a failed row, and the tour continues.
#[test]
fn ranks_that_differ_fail_their_row() {
    crate::skip::takes_turns!(4);
    for axis in ["data, sums overlapped", "micro-batches", "without a rank that died"] {
        let row = with_plant(axis, |trainer| {
            let rank = trainer.groups.world.rank() as f32;
            trainer.parts.store.local_shards()[0].weights[0] += rank;
            Ok(())
        });
        assert!(!row.pass, "{row:?}");
    }
}

#[test]
fn experts_that_take_half_of_their_tokens_fail_their_row() {
    let row = with_plant("experts, some full", |trainer| {
        let router = trainer.parallelism.router.unwrap();
        let router = Router { capacity: router.capacity.map(|share| share / 2.0), ..router };
        let groups = (trainer.groups.ep.clone(), trainer.groups.tp.clone());
        let routing = Rc::clone(&trainer.parts.pipeline.routing);
        let layer = ExpertLayer::new(router, groups, routing);
        trainer.parts.model.axes.feed_forward = Box::new(layer);
        Ok(())
    });
    assert!(!row.pass && row.difference > 1000.0 * row.bound, "{row:?}");
}

/// What a rank holds for a moment is the same after many steps.
#[test]
fn units_do_not_grow_with_the_steps() {
    crate::skip::takes_turns!(4);
    let recipe = Recipe { steps: 0, ..Recipe::default() };
    let look = |trainer: &mut Trainer<f32>| {
        let text = recipe.text();
        let mut units = |_| {
            trainer.step(&text, 4).unwrap();
            trainer.watch.peaks.units
        };
        let first = (0..4).map(&mut units).max().unwrap();
        let _ = (0..32).map(&mut units).max();
        [first, (0..8).map(units).min().unwrap()]
    };
    let sharding = Sharding::Fsdp { prefetch: true };
    for [first, last] in recipe.each_rank((4, 1), sharding, |_| (), look).1 {
        assert!(first > 0 && last < first + 4096, "{first} bytes, then {last}");
    }
}

#[test]
fn json_rows_have_the_promised_names() {
    let row = checks().into_iter().find(|check| check.axis == "ZeRO-1").unwrap().run().unwrap();
    let value = serde_json::to_value(row).unwrap();
    let keys: BTreeSet<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    let wanted = "axis mesh ranks criterion bound difference pass params_bytes params_bytes_theory \
                  grads_bytes grads_bytes_theory optimizer_bytes optimizer_bytes_theory \
                  activations_bytes activations_bytes_theory units_bytes units_bytes_theory \
                  wire_bytes wire_bytes_theory bubble bubble_theory overlapped overlapped_theory \
                  passes seconds";
    assert_eq!(keys, wanted.split_whitespace().collect());
}

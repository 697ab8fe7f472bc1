//! Mixed precision on meshes: numbers are rounded where one process rounds them, and after an
//! overflow on one rank all ranks skip the step.

use crate::skip;
use crate::support::{Recipe, Run, SEED, full, mesh, router, small, train_by, with_experts};
use half::{bf16, f16};
use maypole::Communicator;
use maypole_trainer::context_parallel::ring::RingAttention;
use maypole_trainer::context_parallel::zigzag::PositionDivision;
use maypole_trainer::model::axes::Attention;
use maypole_trainer::ranks::group::{RankGroup, SumOrder};
use maypole_trainer::tensor::attention::Heads;
use maypole_trainer::tensor::device::{CpuDevice, Device};
use maypole_trainer::tensor::half_float::HalfFloat;
use maypole_trainer::tensor::norm::NormInputs;
use maypole_trainer::tensor::precision::{HalfPrecisionDevice, LossScale};
use maypole_trainer::tensor::random::centred;
use maypole_trainer::tensor_parallel::vocab::VocabParallel;
use maypole_trainer::tensor_parallel::vocab::Vocabulary;
use maypole_trainer::train::optim::Rule;
use maypole_trainer::train::parallelism::Parallelism;
use maypole_trainer::train::schedule::RateSchedule;
use maypole_trainer::train::trainer::Trainer;
use std::sync::Arc;

/// With a large epsilon: with a small one, rounding in a gradient near zero would change a weight
/// by a whole step.
const ADAMW: Rule = Rule::AdamW { beta1: 0.9, beta2: 0.95, epsilon: 1e-4, decay: 0.1 };

fn numbers(seed: u64, n: usize) -> Vec<f32> {
    let mut numbers: Vec<f32> = (0..n as u64).map(|i| 2.0 * centred(seed, i) as f32).collect();
    bf16::coarsen(&mut numbers);
    numbers
}

/// The share of numbers that are equal in `a` and `b`. Fails unless all of `a` are 16-bit numbers.
fn same(a: &[f32], b: &[f32]) -> f64 {
    let mut rounded = a.to_vec();
    bf16::coarsen(&mut rounded);
    assert_eq!(rounded, a, "what a layer gives is rounded");
    a.iter().zip(b).filter(|(a, b)| a == b).count() as f64 / a.len() as f64
}

#[test]
fn the_ring_rounds_as_attention_of_one_process() {
    let heads = Heads { rows: 2, heads: 4, size: 16 };
    let tokens = 64;
    let ranks = 2;
    let division = PositionDivision::ZigZag;
    let n = heads.rows * tokens * heads.width();
    let on = HalfPrecisionDevice::<bf16>::default();
    let qkv = numbers(1, 3 * n);
    let dy = numbers(2, n);
    let (y, probabilities) = on.attention(heads, &qkv);
    let dqkv = on.attention_backward(heads, &qkv, &probabilities, &dy);
    Communicator::run_local(ranks, |comm| {
        let group = RankGroup::new(comm, SumOrder::Fast);
        let positions = division.positions(group.rank(), ranks, tokens);
        let part = |all: &[f32]| -> Vec<f32> {
            let each = all.len() / heads.rows / tokens;
            let row = all.len() / heads.rows;
            let tokens = all
                .chunks(row)
                .flat_map(|row| positions.iter().map(|at| &row[at * each..][..each]));
            tokens.flatten().copied().collect()
        };
        let qkv = part(&qkv);
        let dy = part(&dy);
        let mut ring = RingAttention::new(group, division);
        let (my_y, kept) = ring.forward(&on, heads, &qkv).unwrap();
        let share = same(&my_y, &part(&y));
        assert!(share > 0.999, "only numbers halfway between two may differ: {share}");
        let my_dqkv = ring.backward(&on, heads, &qkv, (&my_y, &kept), &dy).unwrap();
        // The mean under the softmax is taken of other, rounded numbers.
        let share = same(&my_dqkv, &part(&dqkv));
        assert!(share > 0.5, "{share}");
    });
}

#[test]
fn logits_of_a_divided_vocabulary_are_rounded_as_whole_ones() {
    let vocabulary = 123;
    let tokens = 64;
    let on = HalfPrecisionDevice::<bf16>::default();
    let all = numbers(3, tokens * vocabulary);
    let targets: Vec<u32> = (0..tokens as u32).map(|i| i * 7 % vocabulary as u32).collect();
    let mut whole = all.clone();
    let expected = on.cross_entropy(&mut whole, &targets, 1.0 / tokens as f64);
    Communicator::run_local(2, |comm| {
        let group = RankGroup::new(comm, SumOrder::Fast);
        let mine = group.shard().range(vocabulary);
        let part = |of: &[f32]| {
            of.chunks(vocabulary).flat_map(|row| row[mine.clone()].to_vec()).collect::<Vec<_>>()
        };
        let mut logits = part(&all);
        let mut divided = VocabParallel { group, vocabulary };
        let loss = divided.cross_entropy(&on, &mut logits, &targets, 1.0 / tokens as f64).unwrap();
        assert!((loss - expected).abs() < 1e-6 * expected);
        assert!(same(&logits, &part(&whole)) > 0.999);
    });
}

/// [`HalfPrecisionDevice`], except that `wide_products` leaves products in 32 bits; the layer after
/// each product then rounds.
#[derive(Clone, Debug, Default)]
struct Partly {
    on: HalfPrecisionDevice<bf16>,
    wide_products: bool,
}

impl Device<f32> for Partly {
    fn linear(&self, y: &mut [f32], x: &[f32], w: &[f32], inputs: usize) {
        match self.wide_products {
            true => CpuDevice.linear(y, x, w, inputs),
            false => self.on.linear(y, x, w, inputs),
        }
    }

    fn linear_backward(
        &self,
        dx: &mut [f32],
        dw: &mut [f32],
        dy: &[f32],
        x: &[f32],
        w: &[f32],
        inputs: usize,
    ) {
        match self.wide_products {
            true => CpuDevice.linear_backward(dx, dw, dy, x, w, inputs),
            false => self.on.linear_backward(dx, dw, dy, x, w, inputs),
        }
    }

    fn bias(&self, y: &mut [f32], b: &[f32]) {
        self.on.bias(y, b);
    }

    fn norm(&self, y: &mut [f32], stats: &mut [f32], x: &[f32], w: &[f32], b: &[f32]) {
        self.on.norm(y, stats, x, w, b);
    }

    fn norm_backward(
        &self,
        dx: &mut [f32],
        dw: &mut [f32],
        db: &mut [f32],
        dy: &[f32],
        before: NormInputs<'_, f32>,
    ) {
        self.on.norm_backward(dx, dw, db, dy, before);
    }

    fn attention(&self, heads: Heads, qkv: &[f32]) -> (Vec<f32>, Vec<f32>) {
        self.on.attention(heads, qkv)
    }

    fn attention_backward(
        &self,
        heads: Heads,
        qkv: &[f32],
        probabilities: &[f32],
        dy: &[f32],
    ) -> Vec<f32> {
        self.on.attention_backward(heads, qkv, probabilities, dy)
    }

    fn gelu(&self, y: &mut [f32], x: &[f32]) {
        self.on.gelu(y, x);
    }

    fn gelu_backward(&self, dx: &mut [f32], x: &[f32]) {
        self.on.gelu_backward(dx, x);
    }

    fn add(&self, y: &mut [f32], x: &[f32]) {
        self.on.add(y, x);
    }

    fn keep(&self, x: &mut [f32]) {
        self.on.keep(x);
    }

    fn cross_entropy(&self, logits: &mut [f32], targets: &[u32], weight: f64) -> f64 {
        self.on.cross_entropy(logits, targets, weight)
    }
}

/// Losses of `steps` steps in `bf16`.
fn narrow(text: &str, layers: usize, steps: u64, on: &Partly) -> Vec<f64> {
    let mut task = Recipe { steps, rule: ADAMW, schedule: RateSchedule::constant(1e-3), ..full() };
    task.config.layers = layers;
    let change = |trainer: &mut Trainer<f32>| {
        trainer.narrow::<bf16>(SEED).unwrap();
        trainer.parts.model.device = Arc::new(on.clone());
    };
    let run: Run<f32> = train_by(&task, &mesh(text), change);
    run.outcome.losses
}

fn apart(a: f64, b: f64) -> f64 {
    (a - b).abs() / b
}

/// Stages exchange 16-bit numbers, so `pp` rounds as one process does. `tp` rounds the terms of a
/// sum one by one, and sums of the ring may be rounded to the other neighbour. A single number that
/// differs changes the rounding of many later ones.
#[test]
fn sixteen_bits_train_on_meshes_as_in_one_process() {
    crate::skip::takes_turns!(4);
    let last = |losses: &[f64]| losses[20..].iter().sum::<f64>() / 5.0;
    let all = Partly::default();
    let alone = narrow("", 4, 25, &all);
    assert!(last(&alone) < 0.8 * alone[0], "it learns: {alone:?}");
    for (text, first) in skip::every_nth(3, [("pp=2", 0.0), ("cp=2", 1e-4), ("tp=2", 1e-4)]) {
        let losses = narrow(text, 4, 25, &all);
        assert!(
            apart(losses[0], alone[0]) <= first,
            "{text}: first {} and {}",
            losses[0],
            alone[0]
        );
        assert!(apart(last(&losses), last(&alone)) < 0.01, "{text}: last {losses:?} and {alone:?}");
    }
}

/// Tensor parallelism differs from one process only in that it rounds the terms of a sum one by
/// one: without this rounding the first losses are equal within the precision of 32 bits.
#[test]
fn terms_are_all_that_tensor_parallelism_rounds_otherwise() {
    for text in ["tp=2", "tp=4"] {
        let far = |wide_products| {
            let on = Partly { wide_products, ..Partly::default() };
            let [alone, tensor] = ["", text].map(|text| narrow(text, 1, 1, &on)[0]);
            apart(tensor, alone)
        };
        let wide = far(true);
        let rounded = far(false);
        assert!(wide < 1e-6 && wide < rounded, "{text}: {wide:e}, with rounded terms {rounded:e}");
    }
}

/// Makes one result of a norm infinite, as an overflow of 16 bits does.
#[derive(Debug)]
struct Overflowing;

impl Device<f32> for Overflowing {
    fn norm(&self, y: &mut [f32], stats: &mut [f32], x: &[f32], w: &[f32], b: &[f32]) {
        CpuDevice.norm(y, stats, x, w, b);
        y[3] = f32::INFINITY;
    }
}

/// On one rank a forward pass overflows before the routers, which then choose by NaN.
#[test]
fn an_overflow_before_a_router_skips_the_step_on_all_ranks() {
    let task = with_experts(small(), 4);
    for text in ["ep=2", "dp=2,ep=2", "ep=2,tp=2"] {
        let setup = Parallelism { router: Some(router(4)), ..mesh(text) };
        Communicator::run_local(setup.mesh.world(), |comm| {
            let text = task.text();
            let rate = RateSchedule::constant(0.1);
            let mut trainer =
                Trainer::new(comm, &task.config, setup.clone(), SEED, (task.rule, rate)).unwrap();
            trainer.narrow::<f16>(SEED).unwrap();
            let scale = LossScale::default();
            trainer.parts.clip.scale = Some(scale);
            let before = trainer.parts.store.all_weights().unwrap();
            let device = Arc::clone(&trainer.parts.model.device);
            if trainer.groups.ep.rank() == 1 {
                trainer.parts.model.device = Arc::new(Overflowing);
            }
            let report = trainer.step(&text, task.rows).unwrap().report;
            assert!(report.loss.is_nan() && report.norm.is_nan(), "{}: {report:?}", setup.mesh);
            let clip = &trainer.parts.clip;
            let seen = (clip.skipped.all, clip.scale.unwrap().factor);
            assert_eq!(seen, (1, scale.factor / 2.0), "{}", setup.mesh);
            assert_eq!(
                trainer.parts.store.all_weights().unwrap(),
                before,
                "{}: no step is taken",
                setup.mesh
            );
            trainer.parts.model.device = device;
            assert!(trainer.step(&text, task.rows).unwrap().report.loss.is_finite());
            assert_ne!(trainer.parts.store.all_weights().unwrap(), before, "{}", setup.mesh);
        });
    }
}

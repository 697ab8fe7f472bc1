//! The tests of the chapters. Where possible, the function under test becomes a part of the trainer, and
//! the training is compared with that of one process.

use crate::answers::{Answers, RegionAnswer};
use crate::support::{Recipe, alone, mesh, small, train, train_by};
use maypole::{Communicator, Result};
use maypole_lab::averaging::apart::{AveragedStore, AveragingRule};
use maypole_trainer::model::axes::Axes;
use maypole_trainer::model::batch::TokenBatch;
use maypole_trainer::model::layout::ParameterLayout;
use maypole_trainer::model::store::{FlatStore, Store, forward_store};
use maypole_trainer::model::transformer::Transformer;
use maypole_trainer::pipeline_parallel::plan::PassKind;
use maypole_trainer::ranks::exchange::shift;
use maypole_trainer::ranks::group::{RankGroup, SumOrder};
use maypole_trainer::tensor::random::centred;
use maypole_trainer::tensor_parallel::region::ParallelRegion;
use maypole_trainer::train::parallelism::Parallelism;
use maypole_trainer::train::trainer::Trainer;
use std::ops::Range;

/// Returns the weight of a token. The arguments are the rank's own rows, the number of rows of the
/// batch, and the number of ranks.
type TokenWeight = fn(&TokenBatch, usize, usize) -> f64;

type ChapterTest = fn(&Answers);

/// The chapters and their tests.
pub const CHAPTERS: [(&str, ChapterTest); 9] = [
    ("data_parallel", data_parallel),
    ("zero", zero),
    ("tensor", tensor),
    ("sequence", sequence),
    ("pipeline", pipeline),
    ("context", context),
    ("experts", experts),
    ("averaging", averaging),
    ("unequal", unequal),
];

/// The two ends of a region of divided layers, forward and backward.
#[derive(Clone, Copy, Debug)]
pub enum RegionEnd {
    /// Forward, before the first matrix.
    Enter,
    /// Forward, after the second matrix, with this rank's terms of the output.
    Leave,
    /// Backward, after the first matrix, with this rank's terms of the gradient of its input.
    EnterBackward,
    /// Backward, before the second matrix.
    LeaveBackward,
}

/// The state of the softmax of one query over the keys so far. A value is a single number here.
#[derive(Clone, Copy, Debug)]
pub struct OnlineSoftmax {
    pub greatest: f64,
    pub sum: f64,
    pub output: f64,
}

/// Trains with `setup`, after `change` of each rank, and compares the result with one process.
fn compare(setup: &Parallelism, change: impl Fn(&mut Trainer<f64>) + Sync) {
    let task = small();
    let run = train_by::<f64>(&task, setup, change);
    let (loss, weights) = run.difference(&train(&task, &alone(setup)));
    assert!(loss < 1e-11, "losses differ from one process by {loss}");
    assert!(weights < 1e-11, "weights differ from one process by {weights}");
    assert!(run.agreed, "ranks with the same parameters have different bits");
}

fn numbers(rank: usize, count: usize) -> Vec<f64> {
    (0..count as u64).map(|nth| centred(rank as u64, nth)).collect()
}

fn on_ranks<R: Send>(world: usize, rank: impl Fn(RankGroup) -> R + Sync) -> Vec<R> {
    Communicator::run_local(world, |comm| rank(RankGroup::new(comm, SumOrder::Ranks)))
}

/// A flat store whose gradients are summed by the function under test.
struct SummedStore {
    inner: FlatStore<f64>,
    group: RankGroup,
    sum: fn(&RankGroup, &mut [f64]) -> Result<()>,
}

impl Store<f64> for SummedStore {
    forward_store!(f64:
        layout, weights, weights_and_gradients, local_shards, all_gather_params, publish, bytes,
    );

    fn copies(&self) -> usize {
        self.group.world()
    }

    fn finish_grad_sync(&mut self) -> Result<()> {
        (self.sum)(&self.group, &mut self.inner.gradients)
    }
}

/// Returns the weights of a rank in a flat store.
fn flat(trainer: &mut Trainer<f64>) -> FlatStore<f64> {
    let layout: ParameterLayout = trainer.parts.store.layout().clone();
    let weights = trainer.parts.store.all_weights().expect("replicas gather nothing");
    FlatStore::new(layout, weights)
}

pub fn data_parallel(answers: &Answers) {
    compare(&mesh("dp=2"), |trainer| {
        let inner = flat(trainer);
        let group = trainer.groups.copies.clone();
        trainer.parts.store = Box::new(SummedStore { inner, group, sum: answers.data_parallel });
    });
}

/// An update that depends on the place of a weight, so that a call with wrong places gives wrong
/// weights.
fn step(places: Range<usize>, weights: &mut [f64], gradients: &[f64]) {
    let all = places.zip(weights).zip(gradients);
    all.for_each(|((place, weight), gradient)| *weight -= gradient * (1.0 + place as f64));
}

pub fn zero(answers: &Answers) {
    // A length that ranks do not divide evenly.
    let length = 11;
    let mut expected = numbers(99, length);
    let sums: Vec<f64> =
        (0..length).map(|at| (0..3).map(|rank| numbers(rank, length)[at]).sum()).collect();
    step(0..length, &mut expected, &sums);
    on_ranks(3, |group| {
        let mut weights = numbers(99, length);
        let mut gradients = numbers(group.rank(), length);
        let mut updated = Vec::new();
        let mut update = |places: Range<usize>, weights: &mut [f64], gradients: &[f64]| {
            updated.push(places.clone());
            step(places, weights, gradients);
        };
        (answers.zero)(&group, &mut weights, &mut gradients, &mut update).unwrap();
        assert_eq!(updated, [group.shard().range(length)], "a rank updates its own part, once");
        let near = weights.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-12);
        assert!(near, "rank {}: {weights:?}, not {expected:?}", group.rank());
        // The bytes of one reduce-scatter and one all-gather. An all-reduce in place of the former
        // would send more: sums that a rank does not need.
        let sent = 12 * length as u64;
        assert!(group.payload() <= sent, "{} bytes were sent, more than {sent}", group.payload());
    });
}

/// A region whose ends are the function under test.
struct AnsweredRegion {
    group: RankGroup,
    answer: RegionAnswer,
    /// Outside the region each rank has its part of the tokens.
    sequence: bool,
}

impl AnsweredRegion {
    fn end(&self, end: RegionEnd, x: Vec<f64>) -> Result<Vec<f64>> {
        let before = (self.group.payload(), x.len());
        let next = (self.answer)(&self.group, end, x)?;
        if self.sequence {
            let (sent, all) = (self.group.payload() - before.0, before.1.max(next.len()) as u64);
            // A reduce-scatter or an all-gather of two ranks sends half of the numbers, an
            // all-reduce all of them.
            assert!(sent <= 6 * all, "{end:?}: {sent} bytes were sent for {all} numbers");
        }
        Ok(next)
    }
}

impl ParallelRegion<f64> for AnsweredRegion {
    fn enter(&mut self, x: Vec<f64>) -> Result<Vec<f64>> {
        self.end(RegionEnd::Enter, x)
    }

    fn leave(&mut self, x: Vec<f64>) -> Result<Vec<f64>> {
        self.end(RegionEnd::Leave, x)
    }

    fn enter_backward(&mut self, dx: Vec<f64>) -> Result<Vec<f64>> {
        self.end(RegionEnd::EnterBackward, dx)
    }

    fn leave_backward(&mut self, dx: Vec<f64>) -> Result<Vec<f64>> {
        self.end(RegionEnd::LeaveBackward, dx)
    }

    fn tokens(&self, all: usize) -> Range<usize> {
        if self.sequence { self.group.shard().range(all) } else { 0..all }
    }
}

pub fn tensor(answers: &Answers) {
    compare(&mesh("tp=2"), |trainer| {
        let group = trainer.groups.tp.clone();
        let answer = answers.tensor;
        trainer.parts.model.axes.region =
            Box::new(AnsweredRegion { group, answer, sequence: false });
    });
}

pub fn sequence(answers: &Answers) {
    compare(&Parallelism { sequence: true, ..mesh("tp=2") }, |trainer| {
        let group = trainer.groups.tp.clone();
        let answer = answers.sequence;
        trainer.parts.model.axes.region =
            Box::new(AnsweredRegion { group, answer, sequence: true });
    });
}

pub fn pipeline(answers: &Answers) {
    let (ranks, micros) = (2, 4);
    for rank in 0..ranks {
        let mut waiting = 0usize;
        for op in (answers.pipeline)(rank, ranks, micros) {
            match op.pass {
                PassKind::Forward => waiting += 1,
                PassKind::Backward => waiting -= 1,
            }
            assert!(waiting <= ranks - rank, "rank {rank}: {waiting} micro-batches wait");
        }
    }
    compare(&Parallelism { micros, ..mesh("pp=2") }, |trainer| {
        let ops = &mut trainer.parts.pipeline.plan.ops;
        let planned = (0..ranks).map(|rank| (answers.pipeline)(rank, ranks, micros));
        *ops = planned.collect();
    });
}

pub fn context(answers: &Answers) {
    let keys = 5;
    // Scores become greater from rank to rank, so earlier terms have to be scaled down.
    let scores = |rank: usize| -> Vec<f64> {
        numbers(rank, keys).iter().map(|score| 40.0 * score + 30.0 * rank as f64).collect()
    };
    let all: Vec<f64> = (0..3).flat_map(scores).collect();
    let values: Vec<f64> = (0..3).flat_map(|rank| numbers(10 + rank, keys)).collect();
    let most = all.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let terms: Vec<f64> = all.iter().map(|score| (score - most).exp()).collect();
    let weighted: f64 = terms.iter().zip(&values).map(|(term, value)| term * value).sum();
    let expected = weighted / terms.iter().sum::<f64>();
    let seen = on_ranks(3, |group| {
        let mut state = OnlineSoftmax { greatest: f64::NEG_INFINITY, sum: 0.0, output: 0.0 };
        let mut block = [scores(group.rank()), numbers(10 + group.rank(), keys)].concat();
        for nth in 0..group.world() {
            if nth > 0 {
                block = shift(&group, &block).unwrap();
            }
            let (scores, values) = block.split_at(keys);
            (answers.context)(&mut state, scores, values);
        }
        state.output / state.sum
    });
    for (rank, output) in seen.into_iter().enumerate() {
        assert!((output - expected).abs() < 1e-12, "rank {rank}: {output}, not {expected}");
    }
}

pub fn experts(answers: &Answers) {
    let expert = |rank: usize, token: f64| token * (rank as f64 + 2.0) + 1.0;
    on_ranks(3, |group| {
        // Ranks have different numbers of tokens, and some ranks send none to some others.
        let tokens = numbers(group.rank(), 2 + 3 * group.rank());
        let owner: Vec<usize> =
            (0..tokens.len()).map(|token| (token * token + group.rank()) % 3).collect();
        let results = (answers.experts)(&group, &tokens, &owner, expert).unwrap();
        let expected: Vec<f64> =
            tokens.iter().zip(&owner).map(|(token, owner)| expert(*owner, *token)).collect();
        assert_eq!(results, expected, "rank {}", group.rank());
    });
}

/// A rule that averages by the function under test.
struct AnsweredAverage(fn(&RankGroup, &mut [f64]) -> Result<()>);

impl AveragingRule<f64> for AnsweredAverage {
    fn average(&mut self, weights: &mut [f64], group: &RankGroup) -> Result<()> {
        (self.0)(group, weights)
    }

    fn makes_equal(&self) -> bool {
        true
    }
}

/// With plain gradient descent, an average of weights after each step equals data parallelism.
pub fn averaging(answers: &Answers) {
    compare(&mesh("dp=2"), |trainer| {
        let group = trainer.groups.copies.clone();
        let rule = AnsweredAverage(answers.averaging);
        trainer.parts.store = Box::new(AveragedStore::new(flat(trainer), group, 1, rule));
    });
}

/// The sum of the gradients of two ranks, one with a single row and one with the other rows, is the
/// gradient of one process.
pub fn unequal(answers: &Answers) {
    let recipe = small();
    let text = recipe.text();
    let Recipe { config, rows, .. } = recipe;
    let layout = ParameterLayout::whole(&config);
    let gradients = |part: Range<usize>, weight: Option<TokenWeight>| {
        let mut store = FlatStore::new(layout.clone(), layout.initial::<f64>(1));
        let mut batch = text.part(0, rows, part, 1).unwrap().remove(0);
        batch.weight = weight.map_or(batch.weight, |weight| weight(&batch, rows, 2));
        Transformer::new(&layout, Axes::single_rank(&layout.config))
            .train(&mut store, &batch, true)
            .unwrap();
        store.gradients
    };
    let expected = gradients(0..rows, None);
    let few = gradients(0..1, Some(answers.unequal));
    let many = gradients(1..rows, Some(answers.unequal));
    let sums = few.iter().zip(&many).map(|(few, many)| few + many);
    let most = sums.zip(&expected).map(|(sum, whole)| (sum - whole).abs()).fold(0.0, f64::max);
    assert!(most < 1e-12, "gradients differ from those of one process by {most}");
}

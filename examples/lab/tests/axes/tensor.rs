//! The tensor axis against one process: layers, the vocabulary, and sequence parallelism.

use crate::skip;
use crate::support::{Recipe, Run, alone, full, mesh, small, train};
use maypole::Communicator;
use maypole_lab::mistakes::Mistake;
use maypole_trainer::model::layout::ParameterLayout;
use maypole_trainer::ranks::group::{RankGroup, SumOrder};
use maypole_trainer::ranks::shard::Shard;
use maypole_trainer::tensor::random::centred;
use maypole_trainer::tensor::{embed, linear};
use maypole_trainer::tensor_parallel::region::ParallelRegion;
use maypole_trainer::tensor_parallel::region::TensorParallelRegion;
use maypole_trainer::tensor_parallel::vocab::VocabParallel;
use maypole_trainer::tensor_parallel::vocab::Vocabulary;
use maypole_trainer::train::bpe::Bpe;
use maypole_trainer::train::parallelism::Parallelism;
use maypole_trainer::train::text::{RICHARD_III, Text};
use maypole_trainer::train::trainer::Trainer;
use std::ops::Range;

fn numbers(seed: u64, n: usize) -> Vec<f32> {
    (0..n as u64).map(|i| centred(seed, i) as f32).collect()
}

fn region(group: &RankGroup) -> TensorParallelRegion {
    TensorParallelRegion { group: group.clone(), sequence: false }
}

#[test]
fn a_column_parallel_layer_has_the_bits_of_its_columns_and_a_row_parallel_one_nearly() {
    let tokens = 48;
    let width = 64;
    let hidden = 256;
    let x = numbers(1, tokens * width);
    let up = numbers(2, hidden * width);
    let down = numbers(3, width * hidden);
    let mut inner = vec![0.0; tokens * hidden];
    let mut whole = vec![0.0; tokens * width];
    linear::forward(&mut inner, &x, &up, width);
    linear::forward(&mut whole, &inner, &down, hidden);
    for ranks in [2, 4] {
        Communicator::run_local(ranks, |comm| {
            let group = RankGroup::new(comm, SumOrder::Fast);
            let mine = group.shard().range(hidden);
            let mut part = vec![0.0; tokens * mine.len()];
            linear::forward(&mut part, &x, &up[mine.start * width..mine.end * width], width);
            assert_eq!(part, columns(&inner, hidden, &mine), "bit for bit");
            let down = columns(&down, hidden, &mine);
            let mut y = vec![0.0; tokens * width];
            linear::forward(&mut y, &part, &down, mine.len());
            let y = region(&group).leave(y).unwrap();
            let far = far(&y, &whole);
            assert!(far <= 1e-5, "{ranks} ranks: {far:e}");
        });
    }
}

/// The columns of `mine` of a matrix of `inputs` columns.
fn columns(of: &[f32], inputs: usize, mine: &Range<usize>) -> Vec<f32> {
    of.chunks(inputs).flat_map(|row| &row[mine.clone()]).copied().collect()
}

fn far(a: &[f32], b: &[f32]) -> f32 {
    let scale = b.iter().fold(0.0, |most: f32, b| most.max(b.abs()));
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max) / scale
}

/// The gradients of the input and of both matrices of a pair, each by itself.
#[test]
fn the_backward_of_a_pair_of_divided_layers_has_the_gradients_of_whole_ones() {
    let tokens = 48;
    let width = 64;
    let hidden = 256;
    let x = numbers(1, tokens * width);
    let up = numbers(2, hidden * width);
    let down = numbers(3, width * hidden);
    let inner = numbers(5, tokens * hidden);
    let dy = numbers(6, tokens * width);
    let mut dinner = vec![0.0; tokens * hidden];
    let mut ddown = vec![0.0; width * hidden];
    let mut dx = vec![0.0; tokens * width];
    let mut dup = vec![0.0; hidden * width];
    linear::backward(&mut dinner, &mut ddown, &dy, &inner, &down, hidden);
    linear::backward(&mut dx, &mut dup, &dinner, &x, &up, width);
    for ranks in [2, 4] {
        Communicator::run_local(ranks, |comm| {
            let group = RankGroup::new(comm, SumOrder::Fast);
            let mine = group.shard().range(hidden);
            let dy = region(&group).leave_backward(dy.clone()).unwrap();
            let inner = columns(&inner, hidden, &mine);
            let down = columns(&down, hidden, &mine);
            let mut my_dinner = vec![0.0; inner.len()];
            let mut my_ddown = vec![0.0; down.len()];
            linear::backward(&mut my_dinner, &mut my_ddown, &dy, &inner, &down, mine.len());
            assert!(far(&my_dinner, &columns(&dinner, hidden, &mine)) <= 1e-5);
            assert!(far(&my_ddown, &columns(&ddown, hidden, &mine)) <= 1e-5);
            let rows = mine.start * width..mine.end * width;
            let mut my_dx = vec![0.0; x.len()];
            let mut my_dup = vec![0.0; rows.len()];
            linear::backward(&mut my_dx, &mut my_dup, &my_dinner, &x, &up[rows.clone()], width);
            assert!(far(&my_dup, &dup[rows]) <= 1e-5);
            assert!(far(&my_dx, &dx) > 1e-2, "it is one term of a sum");
            assert!(far(&region(&group).enter_backward(my_dx).unwrap(), &dx) <= 1e-5);
        });
    }
}

#[test]
fn an_embedding_whose_lines_are_divided_has_the_same_bits() {
    let vocabulary = 123;
    let width = 16;
    let ids = (0..60u32).map(|i| i * 37 % 123).collect::<Vec<_>>();
    let table = numbers(4, vocabulary * width);
    let mut whole = vec![0.0; ids.len() * width];
    embed::forward(&mut whole, &table, 0, &ids);
    for ranks in [2, 4] {
        Communicator::run_local(ranks, |comm| {
            let group = RankGroup::new(comm, SumOrder::Fast);
            let mine = group.shard().range(vocabulary);
            let divided = VocabParallel { group: group.clone(), vocabulary };
            let first = Vocabulary::<f32>::first(&divided);
            let mut x = vec![0.0; ids.len() * width];
            embed::forward(&mut x, &table[mine.start * width..mine.end * width], first, &ids);
            assert_eq!(region(&group).leave(x).unwrap(), whole);
        });
    }
}

#[test]
fn twenty_steps_end_where_one_process_ends() {
    crate::skip::takes_turns!(4);
    for vocab in skip::every_nth(2, [256, 257]) {
        let mut task = full();
        task.config.vocab = vocab;
        let reference: Run<f32> = train(&task, &Parallelism::default());
        for text in ["tp=2", "tp=4"] {
            for sequence in [false, true] {
                let run = train(&task, &Parallelism { sequence, ..mesh(text) });
                let (loss, weights) = run.difference(&reference);
                assert!(
                    loss < 1e-5 && weights < 1e-5,
                    "{text}, {vocab} tokens: loss {loss:e}, weights {weights:e}"
                );
                assert!(run.agreed, "norms and biases are the same on every rank, bit for bit");
            }
        }
    }
}

/// The size of a vocabulary depends on the text, and ranks do not divide 293: its parts differ by a row,
/// and so do their gradients.
#[test]
fn a_learnt_vocabulary_of_any_size_is_divided() {
    let play = &RICHARD_III[..20_000];
    let mut task = small();
    let bpe = Bpe::learn(play, 293);
    task.config.vocab = bpe.vocab();
    let text = Text::new(bpe.encode(play), task.config.context, 1);
    let losses = |setup: &Parallelism, mistake: Option<Mistake>| -> Vec<f64> {
        let rank = |comm| {
            let by = (task.rule, task.schedule);
            let mut trainer =
                Trainer::<f64>::new(comm, &task.config, setup.clone(), 7, by).unwrap();
            mistake.map_or(Ok(()), |mistake| mistake.plant(&mut trainer, 7)).unwrap();
            (0..10).map(|_| trainer.step(&text, task.rows).unwrap().report.loss).collect()
        };
        Communicator::run_local(setup.mesh.world(), rank).remove(0)
    };
    let reference = losses(&Parallelism::default(), None);
    let far = |setup: &Parallelism, mistake| -> f64 {
        let apart =
            losses(setup, mistake).into_iter().zip(&reference).map(|(a, b)| (a - b).abs() / b);
        apart.fold(0.0, f64::max)
    };
    assert_eq!(task.config.vocab, 293);
    let learnt =
        text.step(0, task.rows, 1)[0].targets.iter().filter(|token| **token >= 256).count();
    assert!(learnt > 10, "{learnt} of the first targets are more than a byte");
    for mesh in [mesh("tp=2"), mesh("tp=4"), mesh("dp=2,tp=2")] {
        let error = far(&mesh, None);
        assert!(error < 1e-12, "{}: {error:e}", mesh.mesh);
    }
    let wrong = far(&mesh("tp=2"), Some(Mistake::VocabularyRemainder));
    assert!(wrong > 1e-6, "without its last token the loss is another: {wrong:e}");
}

/// Checks the field `agreed` itself: if gradients of norms stay with the rank that made them, ranks
/// disagree.
#[test]
fn ranks_that_disagree_are_noticed() {
    let task = Recipe { steps: 1, ..small() };
    let setup = Parallelism { sequence: true, ..mesh("tp=2") };
    assert!(train::<f32>(&task, &setup).agreed);
    let task = Recipe { mistake: Some(Mistake::NormsNotSummed), ..task };
    assert!(!train::<f32>(&task, &setup).agreed);
}

/// A reduce-scatter and an all-gather are an all-reduce, so tokens divided or not are the same
/// numbers. The gradients of norms and biases alone are sums over tokens in another order.
#[test]
fn sequence_parallelism_has_the_bits_of_tensor_parallelism() {
    let task = Recipe { steps: 1, ..small() };
    for text in ["tp=2", "tp=4"] {
        let plain = Parallelism { order: SumOrder::Ranks, ..mesh(text) };
        let [tensor, sequence]: [Run<f32>; 2] =
            [false, true].map(|sequence| train(&task, &Parallelism { sequence, ..plain.clone() }));
        assert_eq!(tensor.outcome.losses, sequence.outcome.losses);
        let mut share = ParameterLayout::whole(&task.config).share;
        share.tensor = Shard { index: 0, of: 2 };
        let layout = ParameterLayout::new(&task.config, share);
        for entry in ParameterLayout::whole(&task.config).entries {
            let a = &tensor.outcome.weights[entry.range()];
            let b = &sequence.outcome.weights[entry.range()];
            let cut = layout.entry(&entry.name).is_some_and(|entry| entry.cut.is_some());
            let far = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(
                if cut { a == b } else { far < 1e-6 },
                "{text}: {} is {far:e} apart",
                entry.name
            );
        }
    }
}

#[test]
fn activations_outside_of_regions_are_divided_by_sequence_parallelism() {
    let task = Recipe { steps: 1, ..small() };
    let held = |setup: &Parallelism| train::<f32>(&task, setup).seen[0].outcome.peaks.activations;
    let [tensor, sequence] =
        [false, true].map(|sequence| held(&Parallelism { sequence, ..mesh("tp=2") }));
    let config = &task.config;
    let tokens = task.rows * task.config.context;
    // Inputs, sums after attention and the statistics of both norms of each block, and the input of
    // the head with its statistics: half of them are elsewhere.
    let of_a_token = config.layers * (2 * config.width + 4) + config.width + 2;
    let outside = tokens * of_a_token * size_of::<f32>();
    assert_eq!(tensor - sequence, outside / 2);
    assert!(held(&alone(&mesh("tp=2"))) > tensor);
}

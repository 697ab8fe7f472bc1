//! Axes combined: every mesh trains as one process.

use crate::skip;
use crate::support::{Recipe, Run, alone, full, mesh, router, small, train, with_experts};
use maypole_trainer::data_parallel::sharding::Sharding;
use maypole_trainer::model::axes::Axes;
use maypole_trainer::model::layout::ParameterLayout;
use maypole_trainer::model::store::{FlatStore, Store};
use maypole_trainer::model::transformer::Transformer;
use maypole_trainer::pipeline_parallel::plan::PipelineSchedule;
use maypole_trainer::ranks::mesh::Mesh;
use maypole_trainer::train::optim::Optimizer;
use maypole_trainer::train::parallelism::{ContextExchange, Parallelism};
use maypole_trainer::train::sample::{Sampling, WholeModel, sample};
use maypole_trainer::train::trainer::Trainer;

/// A difference that rounding in `f64` does not reach, and a mistake exceeds.
const NOISE: f64 = 1e-11;

fn check(task: &Recipe, setups: &[Parallelism]) {
    let reference: Run<f64> = train(task, &alone(&setups[0]));
    for setup in setups {
        let run = train(task, setup);
        let (loss, weights) = run.difference(&reference);
        assert!(
            loss < NOISE && weights < NOISE,
            "{}: loss {loss:e}, weights {weights:e}",
            setup.mesh
        );
        assert!(run.agreed, "{}: ranks that have the same weights disagree about them", setup.mesh);
    }
}

/// Each mesh as it is, and with everything that can be switched on.
fn variants(text: &str) -> Vec<Parallelism> {
    let plain = Parallelism { micros: 2, ..mesh(text) };
    let sequence = Parallelism {
        sequence: text.contains("tp"),
        exchange: ContextExchange::Ulysses,
        ..plain.clone()
    };
    let schedule = if text.contains("pp=2") {
        PipelineSchedule::Interleaved(2)
    } else {
        PipelineSchedule::GPipe
    };
    vec![Parallelism { schedule, ..sequence }, plain]
}

#[test]
fn dense_meshes_train_as_one_process() {
    crate::skip::takes_turns!(4);
    let meshes = [
        "dp=2",
        "tp=2",
        "pp=2",
        "cp=2",
        "dp=2,tp=2",
        "dp=2,pp=2",
        "pp=2,tp=2",
        "dp=2,cp=2",
        "cp=2,tp=2",
    ];
    let setups: Vec<Parallelism> = meshes.into_iter().flat_map(variants).collect();
    check(&small(), &setups);
}

#[test]
fn three_axes_and_four_train_as_one_process() {
    let meshes = ["dp=2,pp=2,tp=2", "pp=2,cp=2,tp=2", "dp=2,pp=2,cp=2,tp=2"];
    let setups: Vec<Parallelism> = meshes.into_iter().flat_map(variants).collect();
    check(&Recipe { steps: 2, ..small() }, &setups);
}

#[test]
fn meshes_with_experts_train_as_one_process() {
    crate::skip::takes_turns!(4);
    let meshes =
        ["ep=2", "ep=4", "dp=2,ep=2", "pp=2,ep=2", "ep=2,tp=2", "ep=2,cp=2", "dp=2,pp=2,ep=2,tp=2"];
    let setups = meshes.into_iter().flat_map(variants);
    let setups: Vec<Parallelism> =
        setups.map(|setup| Parallelism { router: Some(router(4)), ..setup }).collect();
    check(&Recipe { steps: 2, ..with_experts(small(), 4) }, &setups);
}

/// Compares 20 steps of the full model in `f32` with one process.
fn check_twenty_steps(task: &Recipe, setups: &[Parallelism]) {
    let reference: Run<f32> = train(task, &alone(&setups[0]));
    assert!(reference.outcome.losses[19] < reference.outcome.losses[0]);
    for setup in skip::every_nth(2, setups) {
        let run = train(task, setup);
        let (loss, weights) = run.difference(&reference);
        assert!(
            loss < 1e-5 && weights < 1e-5 && run.agreed,
            "{}: loss {loss:e}, weights {weights:e}",
            setup.mesh
        );
    }
}

#[test]
fn twenty_steps_end_where_one_process_ends() {
    crate::skip::takes_turns!(4);
    let meshes =
        ["dp=2,tp=2", "dp=2,pp=2", "pp=2,tp=2", "dp=2,pp=2,tp=2", "cp=2,tp=2", "dp=2,pp=2,cp=2"];
    check_twenty_steps(&full(), &meshes.map(|text| Parallelism { micros: 2, ..mesh(text) }));
}

#[test]
fn twenty_steps_with_experts_end_where_one_process_ends() {
    crate::skip::takes_turns!(4);
    let meshes = ["dp=2,ep=2", "pp=2,ep=2", "ep=2,cp=2", "ep=2,tp=2"];
    let setups =
        meshes.map(|text| Parallelism { micros: 2, router: Some(router(4)), ..mesh(text) });
    check_twenty_steps(&with_experts(full(), 4), &setups);
}

/// The norm of a gradient that is in parts on many ranks, some of it on several.
#[test]
fn clipping_clips_alike_on_every_mesh() {
    crate::skip::takes_turns!(4);
    let task = Recipe { clip: Some(0.05), ..small() };
    let meshes = ["dp=2", "tp=2", "dp=2,pp=2,tp=2", "cp=2,tp=2"];
    check(&task, &meshes.map(mesh));
    let sharded = [Sharding::Zero1, Sharding::Zero2, Sharding::Fsdp { prefetch: true }];
    check(
        &task,
        &sharded.map(|sharding| Parallelism { sharding, micros: 2, ..mesh("dp=2,pp=2,tp=2") }),
    );
    let experts = ["ep=2", "dp=2,ep=2", "ep=2,tp=2"]
        .map(|text| Parallelism { router: Some(router(4)), ..mesh(text) });
    check(&with_experts(task, 4), &experts);
}

/// Activations computed again are the same; and nothing is counted twice.
#[test]
fn recomputing_changes_nothing() {
    let task = Recipe { steps: 2, ..small() };
    let setups = [mesh("dp=2"), Parallelism { micros: 4, ..mesh("pp=2,tp=2") }, mesh("cp=2")];
    let experts = Parallelism { router: Some(router(4)), ..mesh("ep=2,tp=2") };
    let dense = setups.into_iter().map(|setup| (task.clone(), setup));
    for (task, setup) in dense.chain([(with_experts(task.clone(), 4), experts)]) {
        let kept: Run<f32> = train(&task, &setup);
        let again = train(&Recipe { recompute: true, ..task }, &setup);
        assert!(again.same_bits(&kept), "{}", setup.mesh);
        assert!(again.seen[0].outcome.peaks.activations < kept.seen[0].outcome.peaks.activations);
    }
}

/// A scale is a power of two, so a number that is scaled and scaled back has the same bits. A term
/// that is not scaled with the others changes the result.
#[test]
fn scaling_the_loss_changes_nothing() {
    let task = Recipe { steps: 2, ..small() };
    let experts = Parallelism { router: Some(router(4)), ..mesh("pp=2,ep=2") };
    for (task, setup) in [(task.clone(), mesh("dp=2,tp=2")), (with_experts(task, 4), experts)] {
        let plain: Run<f64> = train(&task, &setup);
        let scaled = train(&Recipe { scale: true, ..task }, &setup);
        assert!(scaled.same_bits(&plain), "{}: {:?}", setup.mesh, scaled.difference(&plain));
    }
}

#[test]
fn the_mesh_of_one_rank_is_the_model_itself_bit_for_bit() {
    let task = small();
    let run: Run<f32> = train(&task, &Parallelism::of(Mesh::ONE));
    let layout = ParameterLayout::whole(&task.config);
    let text = task.text();
    let mut gpt = Transformer::<f32>::new(&layout, Axes::single_rank(&layout.config));
    let weights = layout.initial(7);
    let mut store = FlatStore::new(layout, weights);
    let mut optimizer = Optimizer::new(task.rule);
    for (step, expected) in run.outcome.losses.iter().enumerate() {
        let batch = text.step(step as u64, task.rows, 1).remove(0);
        let loss = gpt.train(&mut store, &batch, true).unwrap();
        assert_eq!(loss, *expected);
        optimizer.step(&mut store.local_shards(), task.schedule.rate(step as u64), 1.0);
        store.publish().unwrap();
    }
    assert_eq!(store.weights, run.outcome.weights);
}

/// For a sample, all ranks put the whole model together, unit by unit.
#[test]
fn the_whole_model_is_put_together_on_every_mesh() {
    let fsdp = Sharding::Fsdp { prefetch: true };
    let experts = Parallelism { router: Some(router(4)), ..mesh("pp=2,ep=2") };
    for (recipe, setup) in [
        (small(), Parallelism { micros: 2, ..mesh("dp=2,pp=2,tp=2") }),
        (small(), Parallelism { sharding: fsdp, ..mesh("dp=2,cp=2") }),
        (with_experts(small(), 4), experts),
    ] {
        let whole = ParameterLayout::whole(&recipe.config).initial::<f32>(recipe.seed);
        let ranks =
            recipe.on_ranks(&setup, |mut trainer| WholeModel::of(&mut trainer).all_weights());
        let ranks = ranks.unwrap();
        assert!(ranks.iter().all(|weights| *weights == whole), "{}", setup.mesh);
    }
}

/// The loss on held-out text is that of one process, on every mesh, and so is a sample. Neither
/// changes the training.
#[test]
fn every_mesh_validates_and_samples_as_one_process() {
    let sparse = with_experts(small(), 4);
    let experts = |text| Parallelism { router: Some(router(4)), ..mesh(text) };
    let fsdp = Sharding::Fsdp { prefetch: true };
    let interleaved = PipelineSchedule::Interleaved(2);
    for (task, setup) in [
        (small(), Parallelism { sharding: fsdp, ..mesh("dp=2,cp=2") }),
        (small(), Parallelism { sharding: Sharding::Zero2, ..mesh("dp=3") }),
        (small(), Parallelism { sequence: true, ..mesh("tp=2") }),
        (small(), Parallelism { micros: 4, schedule: interleaved, ..mesh("pp=2,tp=2") }),
        (small(), Parallelism { exchange: ContextExchange::Ulysses, ..mesh("cp=2,pp=2") }),
        (sparse.clone(), experts("ep=2")),
        (sparse, Parallelism { micros: 2, ..experts("dp=2,pp=2,ep=2") }),
    ] {
        let task = Recipe { rows: 12, ..task };
        let text = task.text();
        let judged = |setup: &Parallelism| {
            let rank = |mut trainer: Trainer<f64>| {
                let first = trainer.step(&text, task.rows)?.report.loss;
                let held = trainer.validate(&text, 300)?;
                let routed = trainer.parts.pipeline.load.clone();
                assert_eq!(trainer.validate(&text, 300)?, held);
                assert_eq!(trainer.parts.pipeline.load, routed, "no token of it is counted");
                Ok([first, held, trainer.step(&text, task.rows)?.report.loss])
            };
            task.on_ranks(setup, rank).unwrap()
        };
        let expected = judged(&alone(&setup))[0];
        for found in judged(&setup) {
            let far = found.iter().zip(expected).map(|(a, b)| (a - b).abs());
            assert!(far.fold(0.0, f64::max) < 1e-11, "{}: {found:?}, {expected:?}", setup.mesh);
        }
        let likeliest = Sampling { temperature: 0.0, seed: 1 };
        let sampled = |setup: &Parallelism| {
            let rank = |mut trainer: Trainer<f32>| sample(&mut trainer, &[104, 101], 20, likeliest);
            task.on_ranks(setup, rank).unwrap()
        };
        let written = sampled(&setup);
        assert_eq!(written[0], sampled(&alone(&setup))[0], "{}", setup.mesh);
        assert!(written[1..].iter().all(Vec::is_empty));
    }
}

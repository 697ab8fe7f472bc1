//! Bytes a rank, measured on its buffers, compared with the formulas.

use crate::skip;
use crate::support::{SEED, Seen, full, mesh, router, train, train_by};
use half::bf16;
use maypole_lab::averaging::DataForm;
use maypole_lab::compare::Recipe;
use maypole_lab::held::UnitTheory;
use maypole_lab::memory::{FULL, RankMemory};
use maypole_lab::theory::RankTheory;
use maypole_trainer::data_parallel::sharding::Sharding;
use maypole_trainer::expert_parallel::layer::RoutingRecord;
use maypole_trainer::expert_parallel::router::Router;
use maypole_trainer::model::config::{Architecture, Config};
use maypole_trainer::model::layout::ParameterLayout;
use maypole_trainer::pipeline_parallel::plan::PipelineSchedule;
use maypole_trainer::ranks::memory::{MemoryKind, reset_peaks};
use maypole_trainer::ranks::mesh::MeshAxis;
use maypole_trainer::ranks::shard::Shard;
use maypole_trainer::train::optim::Rule;
use maypole_trainer::train::parallelism::{ContextExchange, Parallelism};
use maypole_trainer::train::sample::{Sampling, sample};
use maypole_trainer::train::schedule::RateSchedule;
use maypole_trainer::train::{trainer::Trainer, watch::StepPeaks};

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
        Sharding::default().into(),
        Sharding::Zero1.into(),
        Sharding::Zero2.into(),
        FSDP.into(),
        DataForm::Local { every: 1 },
    ] {
        for ranks in [1, 2, 4] {
            let (_, seen) =
                recipe.each_rank((ranks, 1), sharding, |_| (), |trainer| RankMemory::of(trainer));
            let theory = RankMemory::theory(sharding, parameters, ranks, 2, FULL);
            for memory in &seen {
                assert_eq!(*memory, theory, "{sharding:?} on {ranks}");
            }
        }
    }
}

#[test]
fn sixteen_bits_take_half_of_weights_and_add_masters() {
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
    // 2 + 4 + 12, of which the 12, the 4 and the 2 are sharded one after another.
    assert_eq!([all, zero1, zero2, fsdp], [18.0, 12.0, 10.0, 9.0]);
    for sharding in [Sharding::default(), Sharding::Zero1, Sharding::Zero2, FSDP] {
        for ranks in [1, 2, 4] {
            let narrow = |trainer: &mut Trainer<f32>| recipe.narrow::<bf16>(trainer);
            let (_, seen) =
                recipe.each_rank((ranks, 1), sharding, narrow, |trainer| RankMemory::of(trainer));
            let theory = RankMemory::theory(sharding, parameters, ranks, 2, 2);
            for memory in &seen {
                assert_eq!(*memory, theory, "{sharding:?} on {ranks}");
            }
        }
    }
}

/// Besides the unit at work, the next one if it is asked for; and one unit's gradients are made while
/// those of another are sent. Counted by the allocator.
#[test]
fn fully_sharded_ranks_gather_two_units_at_most() {
    let recipe = Recipe { steps: 2, ..Recipe::default() };
    let layout = ParameterLayout::whole(&recipe.config);
    for micros in [1, 2] {
        let [late, early] = [false, true].map(|prefetch| {
            let form = Sharding::Fsdp { prefetch };
            let look = |trainer: &mut Trainer<f32>| trainer.watch.peaks.units as f64;
            let seen = recipe.each_rank((2, micros), form, |_| (), look).1;
            for (index, units) in seen.iter().enumerate() {
                let theory = UnitTheory::new(&layout, form, Shard { index, of: 2 }, micros);
                let theory = theory.bytes(FULL, false) as f64;
                assert!((units - theory).abs() <= 0.05 * theory, "{units}, by theory {theory}");
            }
            seen[0]
        });
        let largest = layout.units.iter().map(|unit| unit.range.len()).max().unwrap();
        // The next unit, and this rank's part of it, which is sent.
        let next = 1.5 * (FULL * largest) as f64;
        assert!((early - late - next).abs() < 0.05 * next, "{late}, {early}");
    }
}

/// Counted by the allocator, on meshes of all axes, with and without recomputation.
#[test]
fn activations_and_units_are_what_the_formulas_say() {
    crate::skip::takes_turns!(4);
    let meshes = [
        "",
        "tp=2",
        "tp=4",
        "cp=2",
        "cp=4",
        "pp=2",
        "pp=4",
        "ep=2",
        "ep=2,tp=2",
        "dp=2,tp=2",
        "ep=2,cp=2",
        "dp=2,cp=2",
    ];
    for text in skip::every_nth(2, meshes) {
        let experts = if text.contains("ep") { 4 } else { 0 };
        let config = Config { experts, ..Config::default() };
        let router = (experts > 0).then(|| router(experts));
        let plain = Parallelism { router, micros: 4, ..mesh(text) };
        let mut setups = vec![plain.clone()];
        if text.contains("tp") {
            setups.push(Parallelism { sequence: true, ..plain.clone() });
        }
        if text == "cp=2" {
            setups.push(Parallelism { exchange: ContextExchange::Ulysses, ..plain.clone() });
        }
        if text.contains("pp") {
            setups.push(Parallelism { schedule: PipelineSchedule::GPipe, ..plain.clone() });
        }
        if text == "pp=2" {
            setups
                .push(Parallelism { schedule: PipelineSchedule::Interleaved(2), ..plain.clone() });
        }
        if text.contains("dp") {
            let sharded = [Sharding::Zero1, Sharding::Zero2, FSDP];
            setups.extend(sharded.map(|sharding| Parallelism { sharding, ..plain.clone() }));
        }
        for setup in setups {
            for recompute in [false, true] {
                compare(&config, &setup, recompute);
            }
        }
    }
}

/// Trains two steps and compares the memory of each rank with theory.
fn compare(config: &Config, setup: &Parallelism, recompute: bool) {
    let task = Recipe { config: config.clone(), steps: 2, recompute, ..full() };
    let run = train::<f32>(&task, setup);
    for (rank, seen) in run.seen.iter().enumerate() {
        let place = setup.mesh.place(rank);
        let site = RankTheory { config, setup, place, rows: task.rows, element: FULL, recompute };
        let StepPeaks { activations, units } = seen.outcome.peaks;
        let near = |held: usize, theory: usize, what: &str| {
            let far = (held as f64 - theory as f64).abs();
            assert!(
                far <= 0.05 * theory as f64 + 4096.0,
                "{}, rank {rank}: {what} {held}, by theory {theory}: {setup:?}",
                setup.mesh
            );
        };
        near(activations, site.activations(&seen.routing), "activations");
        if setup.mesh.size(MeshAxis::Pp) == 1 {
            near(units, site.units(setup.sharding, false), "units");
        }
    }
}

/// Layers give 16-bit numbers, and activations that wait take no more than these. Means, deviations
/// and the logarithms of a ring have 32 bits. Counted by the allocator.
#[test]
fn activations_of_sixteen_bits_take_sixteen_bits() {
    crate::skip::takes_turns!(4);
    let llama = Architecture::Llama { kv_heads: 2 };
    for text in skip::every_nth(2, ["", "tp=2", "cp=2", "pp=2", "dp=2", "dp=2,tp=2"]) {
        for (recompute, architecture) in
            [(false, Architecture::Gpt), (true, Architecture::Gpt), (false, llama)]
        {
            let setup = Parallelism { micros: 4, ..mesh(text) };
            let mut task = Recipe { steps: 2, recompute, ..full() };
            task.config.architecture = architecture;
            let run =
                train_by::<f32>(&task, &setup, |trainer| trainer.narrow::<bf16>(SEED).unwrap());
            for (rank, seen) in run.seen.iter().enumerate() {
                let place = setup.mesh.place(rank);
                let site = RankTheory {
                    config: &task.config,
                    setup: &setup,
                    place,
                    rows: task.rows,
                    element: FULL,
                    recompute,
                };
                let held = seen.outcome.peaks.activations as f64;
                let half = site.activations_in_16_bits(&seen.routing) as f64;
                let full = site.activations(&seen.routing) as f64;
                let far = (held - half).abs();
                assert!(far <= 0.05 * half + 4096.0, "{text} rank {rank}: {held}, not {half}");
                assert!(held < 0.56 * full, "{text} rank {rank}: {held} of {full}");
            }
        }
    }
}

/// Between steps no activation waits, after many steps too: longer-lived allocations of a forward pass
/// are of another kind.
#[test]
fn no_activation_is_left_after_many_steps() {
    crate::skip::takes_turns!(4);
    let few = Router { capacity: Some(1.0), ..router(4) };
    let config = Config { experts: 4, layers: 2, ..Config::default() };
    let experts = Recipe { config, ..full() };
    let cases = [
        (full(), Parallelism::default()),
        (full(), Parallelism { micros: 4, ..mesh("pp=2") }),
        (full(), mesh("dp=2,tp=2")),
        (full(), mesh("cp=2")),
        (experts, Parallelism { router: Some(few), ..mesh("ep=2") }),
    ];
    for (recipe, setup) in skip::every_nth(2, cases) {
        let rank = |mut trainer: Trainer<f32>| {
            recipe.follow(&mut trainer, |_, _, _| Ok(()))?;
            Ok(trainer.parts.pipeline.held)
        };
        for held in recipe.on_ranks(&setup, rank).unwrap() {
            assert!(held.abs() < 4096, "{}: {held} bytes", setup.mesh);
        }
    }
}

/// A block of one process, written out as one sum.
#[test]
fn a_block_of_one_process_keeps_sixteen_widths_a_token() {
    let config = Config { layers: 1, ..Config::default() };
    let [rows, t, d] = [8, config.context, config.width];
    let n = rows * t;
    let block = 4 * (n * (16 * d + 4) + rows * config.heads * t * t);
    let head = 4 * (n * (2 * d + 2) + n * config.vocab);
    let setup = Parallelism::default();
    let place = setup.mesh.place(0);
    let site =
        RankTheory { config: &config, setup: &setup, place, rows, element: FULL, recompute: false };
    assert_eq!(site.activations(&RoutingRecord::default()), block + head);
    let again = RankTheory { recompute: true, ..site };
    assert_eq!(again.activations(&RoutingRecord::default()), 4 * n * d + head);
}

/// In the middle of a step, too: ranks that shard the optimizer need no more than those that do not.
#[test]
fn a_form_that_shards_more_holds_less_at_its_peak() {
    let recipe = Recipe {
        config: Config { layers: 6, ..Config::default() },
        rule: Rule::ADAMW,
        schedule: RateSchedule::constant(1e-3),
        steps: 2,
        ..full()
    };
    let replicated = Sharding::default();
    for ranks in ["dp=2", "dp=4"] {
        let peak = |sharding| {
            let setup = Parallelism { sharding, ..mesh(ranks) };
            let seen = train::<f32>(&recipe, &setup).seen;
            let of = |it: &Seen| it.bytes.weights + it.bytes.gradients + it.state;
            seen.iter().map(|it| of(it) + it.outcome.peaks.units).max().unwrap()
        };
        let peaks = [replicated, Sharding::Zero1, Sharding::Zero2, FSDP].map(peak);
        assert!(peaks.is_sorted_by(|more, less| more > less), "{ranks}: {peaks:?}");
    }
    let layout = ParameterLayout::whole(&recipe.config);
    let units = UnitTheory::new(&layout, Sharding::Zero1, Shard { index: 0, of: 2 }, 1);
    let largest = layout.units.iter().map(|unit| unit.range.len()).max().unwrap();
    let most = FULL * largest * 3 / 2;
    assert!(units.bytes(FULL, false) <= most, "a unit and half of it");
}

/// After the last step of a run nothing of the size of the whole model is made on any rank.
#[test]
fn validation_and_a_sample_need_no_more_than_two_units_of_a_sharded_model() {
    let mut recipe = Recipe { steps: 1, recompute: true, ..full() };
    recipe.config = Config { layers: 24, context: 8, ..recipe.config };
    let whole = FULL * recipe.config.parameters();
    let setups = [
        Parallelism { sharding: FSDP, ..mesh("dp=4") },
        Parallelism { sharding: FSDP, ..mesh("dp=2,tp=2") },
        mesh("pp=4"),
        mesh("tp=4"),
    ];
    for setup in setups {
        let rank = |mut trainer: Trainer<f32>| {
            let text = recipe.text();
            trainer.step(&text, recipe.rows)?;
            reset_peaks();
            let kinds = [MemoryKind::Other, MemoryKind::Activations, MemoryKind::Units];
            let before: i64 = kinds.map(MemoryKind::held).iter().sum();
            let loss = trainer.validate(&text, 256)?;
            let draw = Sampling { temperature: 0.8, seed: 1 };
            let tokens = sample(&mut trainer, &[104], 3, draw)?;
            let most = kinds.map(MemoryKind::most).iter().sum::<i64>() - before;
            Ok((loss, tokens.len(), most))
        };
        for (nth, (loss, tokens, most)) in
            recipe.on_ranks(&setup, rank).unwrap().into_iter().enumerate()
        {
            assert!(loss.is_finite() && tokens == if nth == 0 { 3 } else { 0 });
            assert!(most < whole as i64 / 3, "{}: {most} of {whole} bytes", setup.mesh);
        }
    }
}

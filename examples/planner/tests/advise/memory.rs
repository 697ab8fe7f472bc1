//! The bytes of a rank are those of the textbooks, and those that the trainer's own theory counts.

use maypole_lab::memory::RankMemory;
use maypole_lab::theory::RankTheory;
use maypole_planner::memory::{RankBytes, StateBytes};
use maypole_planner::sizes::ModelSizes;
use maypole_planner::strategy::{NumberFormat, ParallelStrategy, Recomputation, ZeroStage};
use maypole_trainer::data_parallel::sharding::Sharding;
use maypole_trainer::expert_parallel::layer::RoutingRecord;
use maypole_trainer::model::config::Config;
use maypole_trainer::pipeline_parallel::plan::PipelineSchedule;
use maypole_trainer::ranks::mesh::{Mesh, MeshAxis};
use maypole_trainer::train::parallelism::Parallelism;

/// The arithmetic of every introduction: seven billion parameters in 16 bits with AdamW.
#[test]
fn seven_billion_parameters_take_14_gb_of_weights_and_56_gb_of_moments() {
    let bytes = |stage| StateBytes::of(7e9, 8.0, stage, NumberFormat::Bf16);
    let whole = bytes(ZeroStage::Replicated);
    assert_eq!([whole.weights, whole.gradients], [14e9, 14e9]);
    assert_eq!([whole.masters, whole.moments], [28e9, 56e9]);
    // On eight ranks: each sharding of 16 bytes a parameter.
    assert_eq!(whole.total(), 112e9);
    assert_eq!(bytes(ZeroStage::One).total(), 28e9 + 84e9 / 8.0);
    assert_eq!(bytes(ZeroStage::Two).total(), 14e9 + 98e9 / 8.0);
    assert_eq!(bytes(ZeroStage::Three).total(), 112e9 / 8.0);
    let wide = StateBytes::of(7e9, 8.0, ZeroStage::Replicated, NumberFormat::Bf16WideGradients);
    assert_eq!(wide.total(), 7e9 * 18.0);
}

/// Figure 1 of the ZeRO paper: 7.5 billion parameters on 64 ranks.
#[test]
fn figure_1_of_the_zero_paper_is_reproduced() {
    let gigabytes = |stage| {
        let bytes = StateBytes::of(7.5e9, 64.0, stage, NumberFormat::Bf16);
        (bytes.total() / 1e8).round() / 10.0
    };
    assert_eq!(ZeroStage::ALL.map(gigabytes), [120.0, 31.4, 16.6, 1.9]);
}

/// A model of the trainer as sizes of the planner.
fn same(config: &Config) -> ModelSizes {
    let Config { vocab, context, width, heads, layers, .. } = *config;
    let text = format!(
        "layers = {layers}\nwidth = {width}\nheads = {heads}\nvocabulary = {vocab}\n\
         sequence = {context}\npositions = true\nbiases = true"
    );
    ModelSizes::parse(&text).unwrap()
}

fn strategy(setup: &Parallelism, rows: usize, recompute: Recomputation) -> ParallelStrategy {
    ParallelStrategy {
        mesh: setup.mesh,
        sequence: setup.sequence,
        schedule: setup.schedule,
        rows: setup.micro_rows(rows),
        micros: setup.micros,
        recompute,
        format: NumberFormat::F32,
        ..ParallelStrategy::ONE
    }
}

#[test]
fn parameters_are_those_of_the_trainers_own_table() {
    for (width, layers) in [(64, 4), (96, 3)] {
        let config = Config { width, layers, ..Config::default() };
        assert_eq!(same(&config).parameters(), config.parameters() as f64);
    }
    for (name, billions) in
        [("7b", 6.7), ("8b", 8.0), ("70b", 70.6), ("405b", 405.9), ("175b", 174.6)]
    {
        let found = ModelSizes::preset(name).unwrap().parameters() / 1e9;
        assert_eq!((found * 10.0).round() / 10.0, billions, "{name}");
    }
    for (name, billions) in [("mixtral", 46.7), ("deepseek-v3", 671.0)] {
        let found = ModelSizes::preset(name).unwrap().parameters() / 1e9;
        assert!((found / billions - 1.0).abs() < 0.01, "{name}: {found}");
    }
}

/// The trainer's theory is compared with its allocator. The planner must count the same: state to a
/// hundredth, activations to a twentieth, on every mesh without sequence parallelism. Logits are 6 %
/// of the activations here.
#[test]
fn the_trainers_own_theory_counts_the_same() {
    let config = Config::default();
    let model = same(&config);
    let rows = 16;
    for text in ["", "tp=2", "tp=4", "pp=2", "cp=2", "dp=2,tp=2", "dp=2,pp=2", "pp=2,tp=2"] {
        for (recompute, kept) in [(false, Recomputation::Nothing), (true, Recomputation::Blocks)] {
            let mesh = Mesh::parse(text).unwrap();
            let micros = if mesh.size(MeshAxis::Pp) > 1 { 4 } else { 1 };
            let setup = Parallelism { micros, ..Parallelism::of(mesh) };
            // A ring keeps no probabilities.
            let ring = mesh.size(MeshAxis::Cp) > 1 && !recompute;
            let kept = if ring { Recomputation::Fused } else { kept };
            let planned = strategy(&setup, rows, kept);
            let bytes = RankBytes::of(&model, &planned);
            let ranks = (0..mesh.world()).map(|rank| {
                let place = mesh.place(rank);
                let site = RankTheory {
                    config: &config,
                    setup: &setup,
                    place,
                    rows,
                    element: 4,
                    recompute,
                };
                (site.activations(&RoutingRecord::default()), site.parameters())
            });
            let (most, parameters) =
                ranks.max_by_key(|(held, parameters)| held + 16 * parameters).unwrap();
            // The trainer's theory leaves out the block under way.
            let held = bytes.activations.total() - bytes.activations.again;
            let ratio = held / most as f64;
            assert!((ratio - 1.0).abs() < 0.05, "{text} {recompute}: {held} beside {most}");
            let state = bytes.state.total() / (16 * parameters) as f64;
            assert!((state - 1.0).abs() < 0.01, "{text}: {state} of the state");
        }
    }
}

#[test]
fn every_sharding_holds_what_the_trainers_table_says() {
    let table = [
        (ZeroStage::Replicated, Sharding::default()),
        (ZeroStage::One, Sharding::Zero1),
        (ZeroStage::Two, Sharding::Zero2),
        (ZeroStage::Three, Sharding::Fsdp { prefetch: true }),
    ];
    for (stage, sharding) in table {
        for (format, width) in [(NumberFormat::F32, 4), (NumberFormat::Bf16WideGradients, 2)] {
            let planned = StateBytes::of(4096.0, 4.0, stage, format);
            let trained = RankMemory::theory(sharding, 4096, 4, 2, width);
            assert_eq!(planned.weights, trained.weights as f64, "{stage:?}");
            assert_eq!(planned.gradients, trained.gradients as f64, "{stage:?}");
            assert_eq!(planned.masters + planned.moments, trained.optimizer as f64, "{stage:?}");
        }
    }
}

/// Korthikanti et al., table 2: 34 s b h bytes of a layer in 16 bits, of which 2 are masks of
/// dropout; with tensor and sequence parallelism all of it divided by t.
#[test]
fn a_layer_keeps_what_korthikanti_counted() {
    let model = ModelSizes::preset("175b").unwrap();
    for tp in [1, 8] {
        let mesh = Mesh::ONE.with(MeshAxis::Tp, tp);
        let planned = ParallelStrategy { mesh, sequence: tp > 1, ..ParallelStrategy::ONE };
        let kept = RankBytes::of(&model, &planned).activations;
        let layers = kept.norms + kept.attention + kept.feed_forward;
        let formula = 96.0 * 32.0 * 2048.0 * 12288.0 / tp as f64;
        assert!((layers / formula - 1.0).abs() < 0.01, "tp={tp}: {layers} beside {formula}");
        let naive = ParallelStrategy { recompute: Recomputation::Nothing, ..planned };
        let more = RankBytes::of(&model, &naive).activations.probabilities;
        assert_eq!(more, 2.0 * 96.0 * 96.0 * 2048.0 * 2048.0 / tp as f64);
    }
}

#[test]
fn a_pipeline_holds_as_many_micro_batches_as_its_schedule() {
    let model = ModelSizes::preset("7b").unwrap();
    let mesh = Mesh::ONE.with(MeshAxis::Pp, 4);
    let held = |schedule| {
        let planned = ParallelStrategy { mesh, schedule, micros: 16, ..ParallelStrategy::ONE };
        RankBytes::of(&model, &planned).activations.attention
    };
    let plain = held(PipelineSchedule::OneForwardOneBackward);
    assert_eq!(held(PipelineSchedule::GPipe) / plain, 4.0);
    assert_eq!(held(PipelineSchedule::Interleaved(2)) / plain, 5.5 / 4.0);
}

#[test]
fn experts_are_divided_over_their_own_ranks_alone() {
    let model = ModelSizes::preset("mixtral").unwrap();
    let on = |text: &str| {
        let planned = ParallelStrategy {
            mesh: Mesh::parse(text).unwrap(),
            stage: ZeroStage::One,
            ..ParallelStrategy::ONE
        };
        RankBytes::of(&model, &planned).state
    };
    let [one, apart] = [on("dp=8"), on("ep=8")];
    // Weights: attention and vocabulary are whole on each rank, experts are not.
    assert!(apart.weights < 0.2 * one.weights && apart.weights > one.weights / 8.0);
    // The optimizer is divided by eight either way.
    assert!((apart.moments / one.moments - 1.0).abs() < 1e-9);
}

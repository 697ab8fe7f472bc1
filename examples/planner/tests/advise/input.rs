//! Text that is no model or no cluster, and a strategy that does not go with the model, give an
//! error in a sentence.

use maypole_planner::cluster::{Accelerator, AcceleratorCluster};
use maypole_planner::search::{AdviceQuestion, advise};
use maypole_planner::sizes::ModelSizes;
use maypole_planner::strategy::{NumberFormat, ParallelStrategy, Recomputation, ZeroStage};
use maypole_trainer::pipeline_parallel::plan::PipelineSchedule;
use maypole_trainer::ranks::mesh::Mesh;
use proptest::prelude::*;

const SMALL: &str = "layers = 2\nwidth = 64\nheads = 4\nvocabulary = 256\nsequence = 32\n";

#[test]
fn impossible_sizes_are_named() {
    let with = |from: &str, to: &str| SMALL.replace(from, to);
    for (text, part) in [
        (with("layers = 2", "layers = 0"), "layers = 0"),
        (with("heads = 4", "heads = 0"), "heads = 0"),
        (with("heads = 4", "heads = 5"), "5 heads do not divide"),
        (with("width = 64", "width = 18446744073709551615"), "width"),
        (with("width = 64", "width = 1099511627776"), "the most is"),
        (with("width = 64", "width = -3"), "-3"),
        (with("layers = 2", "layers = 1000000000").replace("= 64", "= 1000000"), "parameters"),
        (SMALL.to_owned() + "key-value-heads = 3", "3 key-value heads"),
        (SMALL.to_owned() + "experts = 8", "experts-per-token = 0"),
        (SMALL.to_owned() + "experts = 8\nexperts-per-token = 9", "1 to 8"),
        (SMALL.to_owned() + "shared-experts = 1", "has none"),
        (
            SMALL.to_owned() + "experts = 8\nexperts-per-token = 2\ndense-layers = 3",
            "dense-layers = 3",
        ),
        (SMALL.to_owned() + "depth = 2", "depth"),
        (SMALL.replace("layers = 2\n", ""), "layers"),
        ("[".repeat(1 << 15), ""),
        ("#".repeat(1 << 20), "at most 64 KiB"),
    ] {
        let why = ModelSizes::parse(&text).unwrap_err();
        assert!(why.contains(part), "{why}");
    }
}

#[test]
fn a_mesh_that_does_not_divide_is_named() {
    let model = ModelSizes::preset("mixtral").unwrap();
    let way =
        |mesh: &str| ParallelStrategy { mesh: Mesh::parse(mesh).unwrap(), ..ParallelStrategy::ONE };
    let interleaved =
        ParallelStrategy { schedule: PipelineSchedule::Interleaved(2), ..way("pp=4") };
    for (strategy, part) in [
        (way("tp=3"), "32 heads"),
        (way("pp=33"), "33 stages"),
        (way("ep=3"), "8 experts"),
        (way("cp=3"), "cp=3"),
        (interleaved, "groups of pp=4"),
        (ParallelStrategy { rows: 0, ..way("") }, "at least one"),
    ] {
        let why = strategy.check(&model).unwrap_err();
        assert!(why.contains(part), "{why}");
    }
    assert!(way("dp=2,pp=4,ep=8,tp=4").check(&model).is_ok());
}

#[test]
fn impossible_clusters_and_steps_are_named() {
    for (name, part) in [
        ("dgx-9", "no cluster is called"),
        ("0xdgx-h100", "1 to 4096 hosts"),
        ("99999999999999999999999xdgx-h100", "1 to 4096 hosts"),
        ("4x4xdgx-h100", "no cluster is called"),
        ("", "no cluster is called"),
    ] {
        let why = AcceleratorCluster::named(name).unwrap_err();
        assert!(why.contains(part), "{why}");
    }
    let gpu = Accelerator::named("a40").unwrap();
    assert!(AcceleratorCluster::described("nonsense", 1, 100.0, gpu).is_err());
    assert!(Accelerator::named("abacus").unwrap_err().contains("mi300x"));
    let model = ModelSizes::preset("7b").unwrap();
    let cluster = AcceleratorCluster::named("dgx-h100").unwrap();
    let question = AdviceQuestion {
        tokens: 5000,
        formats: vec![NumberFormat::Bf16],
        recompute: Recomputation::USUAL.to_vec(),
        stages: ZeroStage::ALL.to_vec(),
    };
    let why = advise(&model, &cluster, &question).unwrap_err();
    assert!(why.contains("give 8192"), "{why}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_sizes_give_a_model_or_an_error(
        sizes in prop::collection::vec(prop_oneof![0usize..70, Just(1 << 40), any::<usize>()], 10),
    ) {
        let names = ["layers", "width", "heads", "vocabulary", "sequence", "key-value-heads",
            "hidden", "experts", "experts-per-token", "dense-layers"];
        let lines = names.iter().zip(&sizes).map(|(name, size)| format!("{name} = {size}\n"));
        if let Ok(model) = ModelSizes::parse(&lines.collect::<String>()) {
            prop_assert!(model.parameters().is_finite() && model.operations_per_token() > 0.0);
        }
    }
}

//! Text that is no model or no cluster, and a strategy that does not go with the model, give an
//! error in a sentence.

use maypole_trainer::advise::cluster::{Accelerator, AcceleratorCluster};
use maypole_trainer::advise::search::{AdviceQuestion, advise};
use maypole_trainer::advise::strategy::{NumberFormat, ParallelStrategy, Recomputation, ZeroStage};
use maypole_trainer::advise::transformer::Transformer;
use maypole_trainer::pipeline_parallel::plan::PipelineSchedule;
use maypole_trainer::ranks::mesh::Mesh;
use proptest::prelude::*;
use std::fs::File;
use std::process::Command;

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
        let why = Transformer::parse(&text).unwrap_err();
        assert!(why.contains(part), "{why}");
    }
}

#[test]
fn a_mesh_that_does_not_divide_is_named() {
    let model = Transformer::preset("mixtral").unwrap();
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
    let model = Transformer::preset("7b").unwrap();
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

#[test]
fn the_command_reads_no_more_of_a_file_than_a_model_has() {
    let folder = tempfile::tempdir().unwrap();
    let large = folder.path().join("large.toml");
    File::create(&large).unwrap().set_len(50 << 20).unwrap();
    let train = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_train"));
        let output = command.args(words).current_dir(folder.path()).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(said).unwrap())
    };
    for (words, part) in [
        (&["memory", "--model", "large.toml"][..], "more than 64 KiB"),
        (&["advise", "--cluster", "@large.toml", "--accelerator", "h100"], "more than 2048 KiB"),
        (&["advise", "--cluster", "@large.toml"], "--accelerator"),
        (&["memory", "--model", "missing.toml"], "cannot read missing.toml"),
        (&["memory", "--model", "9b"], "no model is called '9b'"),
        (&["memory", "--preset", "7b", "--mesh", "tp=3"], "32 heads"),
        (&["advise", "--tokens", "0"], "no number of tokens"),
        (&["advise", "--memory=-1"], "above 0"),
        (&["advise", "--svg", "no/such/folder.svg"], "--svg"),
    ] {
        let (succeeded, said) = train(words);
        assert!(!succeeded && said.contains(part), "{words:?}: {said}");
        assert!(!said.contains("panicked"), "{said}");
    }
    let (succeeded, said) = train(&["memory", "--preset", "7b", "--mesh", "dp=8", "--json"]);
    assert!(succeeded, "{said}");
    let object: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(object["bytes"]["weights"], 2.0 * object["parameters"].as_f64().unwrap());
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
        if let Ok(model) = Transformer::parse(&lines.collect::<String>()) {
            prop_assert!(model.parameters().is_finite() && model.operations_per_token() > 0.0);
        }
    }
}

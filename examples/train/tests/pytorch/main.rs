//! The models of one process against PyTorch: loss and gradients in `f64`, the text of a model that was
//! exported, and the losses of whole runs. Skipped where there is no PyTorch.

#[path = "../../../../tests/common/skip.rs"]
mod skip;

use maypole_lab::export::ExportedConfig;
use maypole_trainer::model::axes::Axes;
use maypole_trainer::model::config::{Architecture, Config};
use maypole_trainer::model::layout::ParameterLayout;
use maypole_trainer::model::store::FlatStore;
use maypole_trainer::model::transformer::Transformer;
use maypole_trainer::tensor::random::centred;
use maypole_trainer::train::text::{RICHARD_III, Text};
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A Python that has these packages: the one that `PYTHON` names, or `python3`. Without one the
/// calling test is reported as skipped.
fn python(packages: &str) -> Option<Command> {
    let program = std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into());
    let mut command = Command::new(&program);
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    let tried = Command::new(&program).args(["-c", &format!("import {packages}")]).output();
    if tried.is_ok_and(|output| output.status.success()) {
        return Some(command);
    }
    skip::skipped(format_args!(
        "{} lacks one of {packages}: PYTHON=... names a Python that has them",
        program.display()
    ));
    None
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("pytorch").join(name)
}

fn said(output: &Output) -> String {
    [&*output.stdout, &*output.stderr].concat().into_iter().map(char::from).collect()
}

/// What scripts need that read tensors from files.
const OF_FILES: &str = "torch, numpy, safetensors";

const ROWS: usize = 3;

/// Writes a batch, the weights of a model of `config`, and the trainer's gradients.
fn write_gradients(config: &Config, file: &Path) {
    let layout = ParameterLayout::whole(config);
    let mut weights: Vec<f64> = layout.initial(1);
    // Away from where norms and biases are trivial.
    weights.iter_mut().enumerate().for_each(|(i, w)| *w = 2.0 * *w + 0.1 * centred(7, i as u64));
    let weight = 1.0 / (ROWS * config.context) as f64;
    let batch = Text::invented(config.context, 1).batch(0..ROWS as u64, weight);
    let mut gpt = Transformer::new(&layout, Axes::single_rank(config));
    let mut store = FlatStore::new(layout.clone(), weights);
    let loss = gpt.train(&mut store, &batch, true).unwrap();
    let rows = vec![ROWS, config.context];
    let integers = |all: &[u32]| -> Vec<u8> {
        all.iter().flat_map(|token| i64::from(*token).to_le_bytes()).collect()
    };
    let floats = |all: &[f64]| all.iter().flat_map(|number| number.to_le_bytes()).collect();
    let mut tensors: Vec<(String, Dtype, Vec<usize>, Vec<u8>)> = vec![
        ("tokens".to_owned(), Dtype::I64, rows.clone(), integers(&batch.tokens)),
        ("targets".to_owned(), Dtype::I64, rows, integers(&batch.targets)),
        ("loss".to_owned(), Dtype::F64, vec![1], floats(&[loss])),
    ];
    for entry in &layout.entries {
        let shape = if entry.full[1] == 1 { &entry.full[..1] } else { &entry.full };
        for (prefix, all) in [("", &store.weights), ("gradient.", &store.gradients)] {
            let name = format!("{prefix}{}", entry.name);
            tensors.push((name, Dtype::F64, shape.to_vec(), floats(&all[entry.range()])));
        }
    }
    let views = tensors.iter().map(|(name, kind, shape, bytes)| {
        (
            name,
            TensorView::new(*kind, shape.clone(), bytes).expect("as many bytes as the shape says"),
        )
    });
    let sizes = serde_json::to_string(&ExportedConfig::of(config)).unwrap();
    let metadata = HashMap::from([("config".to_owned(), sizes)]);
    fs::write(file, safetensors::serialize(views, Some(metadata)).unwrap()).unwrap();
}

#[test]
fn loss_and_gradients_are_those_of_pytorch() {
    let Some(mut python) = python(OF_FILES) else { return };
    let folder = tempfile::tempdir().unwrap();
    let llama = [6, 3, 1].map(|kv_heads| Architecture::Llama { kv_heads });
    let models = [Architecture::Gpt].into_iter().chain(llama);
    let files = models.enumerate().map(|(nth, architecture)| {
        let sizes = Config { context: 24, width: 48, heads: 6, layers: 3, ..Config::default() };
        let file = folder.path().join(format!("{nth}.safetensors"));
        write_gradients(&Config { architecture, ..sizes }, &file);
        file
    });
    let files: Vec<PathBuf> = files.collect();
    let output = python.arg(script("gradients.py")).args(&files).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    print!("{}", said(&output));
}

/// Trains on learnt tokens, exports, and has both write the likeliest text.
fn text_of_both(model: &[&str], mut python: Command) -> [String; 2] {
    let folder = tempfile::tempdir().unwrap();
    let train = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_train"));
        let output = command.args(words).current_dir(&folder).env("MAYPOLE_TUNE", "off").output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let play = RICHARD_III;
    fs::write(folder.path().join("text"), &play[..20_000]).unwrap();
    let sizes = ["--width", "32", "--context", "24", "--layers", "2", "--heads", "4"];
    let run = ["run", "--data", "text", "--bpe", "290", "--steps", "60", "--save", "saved"];
    let text = ["--temperature", "0", "--sample", "60"];
    let ours = train(&[&run[..], &sizes, &text, model].concat());
    train(&["export", "saved", "model.safetensors"]);
    let file = folder.path().join("model.safetensors");
    let output =
        python.arg(script("sample.py")).arg(&file).args(["--tokens", "60"]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let theirs = String::from_utf8_lossy(&output.stdout).into_owned();
    [ours, theirs]
}

#[test]
fn an_exported_model_with_learnt_tokens_writes_the_same_text_in_pytorch() {
    for model in [&["--model", "gpt"][..], &["--model", "llama", "--kv-heads", "2"]] {
        let Some(python) = python(OF_FILES) else { return };
        let [ours, theirs] = text_of_both(model, python);
        assert!(theirs.starts_with("KING.\n") && theirs.len() > 60, "{theirs}");
        assert!(ours.ends_with(&theirs), "{model:?}: the trainer wrote\n{ours}\nPyTorch\n{theirs}");
    }
}

/// What "equal to one process" cannot see, because both sides share the code: the meaning of a
/// micro-batch, of a mixture of experts, of 16 bits, and of a gradient that is not finite.
#[test]
fn the_losses_of_a_run_are_those_of_pytorch() {
    for options in [
        "--micros 4 --optimizer sgd --rate 0.1",
        "--experts 4 --micros 2 --overflow 3",
        "--experts 4 --mesh ep=2 --micros 4",
        "--precision bf16 --micros 8 --mesh dp=2",
        "--precision bf16 --overflow 2 --model llama",
    ] {
        let Some(mut python) = python("torch, numpy") else { return };
        let run = ["--steps", "8", "--width", "32", "--train", env!("CARGO_BIN_EXE_train")];
        let all = run.into_iter().chain(options.split_whitespace());
        let output = python.arg(script("compare.py")).args(all).output().unwrap();
        assert!(output.status.success(), "{options}: {}", said(&output));
    }
}

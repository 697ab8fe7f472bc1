//! `train export`, and the tokens of a checkpoint.

use maypole_trainer::train::bpe::Bpe;
use std::fs;
use std::process::Command;

/// Runs `train` with these words; returns whether it succeeded, and its output.
fn train(words: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_train"))
        .args(words)
        .env("MAYPOLE_TUNE", "off")
        .output()
        .unwrap();
    (
        output.status.success(),
        [output.stdout, output.stderr].concat().into_iter().map(char::from).collect(),
    )
}

#[test]
fn a_run_can_be_handed_to_other_tools_and_goes_on_with_its_own_tokens_only() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("rings"), "a ring of ranks, and a ring of rings. ".repeat(200)).unwrap();
    fs::write(path("trees"), "two trees, three trees, no tree more. ".repeat(200)).unwrap();
    let run = |text: &str, steps: &str| {
        let data = path(text);
        let save = path("saved");
        let small =
            ["--width", "16", "--context", "16", "--layers", "1", "--sample", "0", "--bpe", "260"];
        train(&[&["run", "--data", &data, "--save", &save, "--steps", steps], &small[..]].concat())
    };
    let (well, said) = run("rings", "2");
    assert!(well, "{said}");
    let (well, said) = run("trees", "4");
    assert!(!well && said.contains("vocabulary"), "{said}");
    let (well, said) = run("rings", "4");
    assert!(well && said.contains("step-00000002"), "{said}");

    let (well, said) = train(&["export", &path("saved"), &path("model.safetensors")]);
    assert!(well && said.contains("step-00000004"), "{said}");
    let bytes = fs::read(path("model.safetensors")).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(tensors.tensor("embed.token.weight").unwrap().shape(), [260, 16]);
    let seen: Vec<u8> = "a ring of ranks, and a ring of rings. ".repeat(200).into_bytes();
    let bpe = Bpe::learn(&seen[..seen.len() - seen.len() / 10], 260);
    let merges = format!(r#""merges":{}"#, serde_json::to_string(&bpe).unwrap());
    let (_, metadata) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    let told = &metadata.metadata().as_ref().unwrap()["config"];
    assert!(told.contains(&merges), "{told} has not {merges}");
    let (well, said) = train(&["export", folder.path().to_str().unwrap(), &path("nothing")]);
    assert!(!well && said.contains("no checkpoint"), "{said}");
}

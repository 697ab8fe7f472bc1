//! `train memory` and `train advise`: files that are no model and no cluster.

use std::fs::File;
use std::process::Command;

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

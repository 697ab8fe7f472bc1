//! The readers of topologies against public samples, and against texts written here for each way in which pasted ones
//! are damaged.

use maypole::topology::Description;
use maypole::topology::answers::{Answers, Nearest};
use maypole::topology::printed::Printed;
use maypole::topology::matrix::Matrix;
use maypole::topology::text::ReadError;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// Public samples, each with what is expected of it: they are not part of the project, so they may be absent.
fn samples() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/topologies");
    if !folder.is_dir() {
        eprintln!("SKIPPED: no samples at {}", folder.display());
        return None;
    }
    Some(folder)
}

fn words(links: &[Vec<Printed>]) -> Value {
    links.iter().map(|row| row.iter().map(Printed::to_string).collect::<Vec<_>>()).collect::<Vec<_>>().into()
}

fn nearest(nearest: &Nearest) -> Value {
    json!({ "class": nearest.class.to_string(), "nics": nearest.nics })
}

/// The answers as the samples write them.
fn object(answers: &Answers) -> Value {
    let near = answers.nearest_nics.as_ref().map(|all| all.iter().map(nearest).collect::<Vec<_>>());
    json!({
        "gpus": answers.gpus,
        "nics": answers.nics,
        "links": words(&answers.links),
        "nvlinks": answers.nvlinks,
        "nearest_nics": near,
    })
}

#[test]
fn every_sample_has_the_answers_that_are_expected_of_it() {
    let Some(folder) = samples() else { return };
    let mut read = 0;
    let mut wrong = Vec::new();
    for entry in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
        let name = entry.file_name().unwrap().to_str().unwrap();
        let Some(expected) = name.get(..3).map(|number| folder.join(format!("{number}.expect.json"))) else { continue };
        if !(name.ends_with(".txt") || name.ends_with(".xml")) || !expected.exists() {
            continue;
        }
        read += 1;
        let expected: Value = serde_json::from_str(&fs::read_to_string(expected).unwrap()).unwrap();
        match Description::read(&fs::read_to_string(&entry).unwrap()) {
            Err(error) => wrong.push(format!("{name}: {error}")),
            Ok(description) => {
                let found = object(&description.answers());
                let keys = ["gpus", "nics", "links", "nvlinks", "nearest_nics"];
                let differ = keys.iter().filter(|key| found[**key] != expected[**key]);
                wrong.extend(differ.map(|key| format!("{name}: {key} is {}, not {}", found[*key], expected[*key])));
                wrong.extend(description.notes().iter().map(|note| format!("{name}: a note: {note}")));
                if let (Description::System(system), Some(names)) = (&description, expected.get("nic_names")) {
                    assert_eq!(&json!(system.nic_names()), names, "{name}");
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {read} samples:\n{}", wrong.len(), wrong.join("\n"));
    assert!(read > 50, "only {read} samples");
}

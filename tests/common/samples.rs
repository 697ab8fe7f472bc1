//! Descriptions of machines, each with its expected reading.
//!
//! `tests/topologies` has the project's own: each named cluster as several tools print it, and
//! damaged ones. A larger collection from public sources is not part of the project. It is looked
//! for in `../shared/topologies`, or in the folder that `TOPOLOGY_SAMPLES` names.
#![allow(dead_code, reason = "not every test uses all of it")]

use crate::skip;
use maypole::topology::PathClass;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// One description and its expected reading.
pub(crate) struct Sample {
    /// The name of the expectation's file, without `.expect.json`.
    pub(crate) name: String,
    /// The description: `.txt`, `.xml` or `.log`.
    pub(crate) path: PathBuf,
    /// The expected reading: the fields of `maypole topo --json`, or `refused` with the line and a
    /// part of the error.
    pub(crate) expected: Value,
}

/// The least number of samples in the project's own folder.
pub(crate) const OWN: usize = 20;

impl Sample {
    pub(crate) fn text(&self) -> String {
        fs::read_to_string(&self.path).unwrap()
    }

    /// Whether the text describes a machine, rather than being a log of one.
    pub(crate) fn is_description(&self) -> bool {
        self.path.extension().is_some_and(|kind| kind == "txt" || kind == "xml")
    }

    /// Whether the description is expected to be refused.
    pub(crate) fn is_refused(&self) -> bool {
        self.expected["refused"].is_object()
    }

    /// The expected class of each pair of GPUs; empty if the sample has none.
    pub(crate) fn links(&self) -> Vec<Vec<PathClass>> {
        let rows = self.expected["links"].as_array().into_iter().flatten();
        rows.map(|row| row.as_array().unwrap().iter().map(class).collect()).collect()
    }

    /// The expected bottleneck of the best ring; `None` for a single GPU.
    pub(crate) fn ring_bottleneck(&self) -> Option<PathClass> {
        let bottleneck = &self.expected["ring_bottleneck"];
        (!bottleneck.is_null()).then(|| class(bottleneck))
    }

    /// Whether the sample is of the project itself.
    pub(crate) fn is_own(&self) -> bool {
        self.path.starts_with(own_folder())
    }
}

fn class(value: &Value) -> PathClass {
    match value.as_str().expect("a class is a word") {
        // Old drivers distinguish a switch on the board of two GPUs.
        "PSB" => PathClass::Pix,
        word => word.parse().unwrap(),
    }
}

/// The folder of the repository: this file is part of tests of several packages.
fn root() -> &'static Path {
    let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    folders.find(|folder| folder.join("tests/topologies").is_dir()).expect("the repository")
}

fn own_folder() -> PathBuf {
    root().join("tests/topologies")
}

/// All samples, the project's own first, each folder in the order of names.
pub(crate) fn samples() -> Vec<Sample> {
    let own = in_folder(&own_folder());
    assert!(own.len() >= OWN, "tests/topologies has only {} samples", own.len());
    let beside = || root().join("../shared/topologies");
    let larger = std::env::var_os("TOPOLOGY_SAMPLES").map_or_else(beside, PathBuf::from);
    if !larger.is_dir() {
        skip::skipped(format!(
            "looked at {} samples of its own alone: the larger collection is not at {}",
            own.len(),
            larger.display()
        ));
        return own;
    }
    own.into_iter().chain(in_folder(&larger)).collect()
}

fn in_folder(folder: &Path) -> Vec<Sample> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let expected = paths.iter().filter_map(|path| {
        let name = path.file_name()?.to_str()?.strip_suffix(".expect.json")?.to_owned();
        let expected = serde_json::from_str(&fs::read_to_string(path).unwrap());
        let expected = expected.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let described = described(&paths, &name)?.clone();
        Some(Sample { name, path: described, expected })
    });
    expected.collect()
}

/// `switch-tree.txt` for the name `switch-tree`, `002-dgx1.txt` for the name `002`.
fn described<'a>(paths: &'a [PathBuf], name: &str) -> Option<&'a PathBuf> {
    let is_text = |path: &&PathBuf| {
        let kind = path.extension().and_then(|kind| kind.to_str()).unwrap_or_default();
        ["txt", "xml", "log"].contains(&kind)
    };
    let stem = |path: &PathBuf| path.file_stem()?.to_str().map(str::to_owned);
    let is_named = |path: &&PathBuf| stem(path).is_some_and(|stem| stem == name);
    let is_numbered =
        |path: &&PathBuf| stem(path).is_some_and(|stem| stem.starts_with(&format!("{name}-")));
    let mut texts = paths.iter().filter(is_text);
    texts.clone().find(is_named).or_else(|| texts.find(is_numbered))
}

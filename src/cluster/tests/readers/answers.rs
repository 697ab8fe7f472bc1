//! Every sample has the summary and the graph of its file of expectations.

use crate::damage;
use crate::samples::{OWN, Sample, samples};
use maypole::topology::{NodeKind, PathClass};
use maypole_cluster::Description;
use maypole_cluster::read::printed::PrintedClass;
use maypole_cluster::read::summary::{DeviceSummary, NearestNics};
use maypole_cluster::read::text::ReadError;
use maypole_cluster::read::xml::nic_names;
use serde_json::{Value, json};

/// The classes of links, as the samples write them.
fn words(links: &[Vec<PrintedClass>]) -> Value {
    links
        .iter()
        .map(|row| row.iter().map(PrintedClass::to_string).collect::<Vec<_>>())
        .collect::<Vec<_>>()
        .into()
}

fn nearest(nearest: &NearestNics) -> Value {
    json!({ "class": nearest.class.to_string(), "nics": nearest.nics })
}

/// The summary as the samples write it.
fn object(summary: &DeviceSummary) -> Value {
    let near = summary.nearest_nics.as_ref();
    json!({
        "gpus": summary.gpus,
        "nics": summary.nics,
        "links": words(&summary.links),
        "nvlinks": summary.nvlinks,
        "nearest_nics": near.map(|all| all.iter().map(nearest).collect::<Vec<_>>()),
    })
}

/// The differences between the reading of a sample and its expected values, one line each.
fn faults(sample: &Sample) -> Vec<String> {
    let Sample { name, expected, .. } = sample;
    let description = match Description::read(&sample.text()) {
        Err(error) => return unexpected_error(sample, &error).into_iter().collect(),
        Ok(_) if sample.is_refused() => return vec![format!("{name}: was not refused")],
        Ok(description) => description,
    };
    let found = object(&description.summary());
    let keys = ["gpus", "nics", "links", "nvlinks", "nearest_nics"];
    let differ = keys.iter().filter(|key| found[**key] != expected[**key]);
    let mut wrong: Vec<String> = differ
        .map(|key| format!("{name}: {key} is {}, not {}", found[*key], expected[*key]))
        .collect();
    let notes = description.notes();
    let expected_notes: Vec<&str> =
        expected["notes"].as_array().into_iter().flatten().map(|it| it.as_str().unwrap()).collect();
    for missing in expected_notes.iter().filter(|part| !notes.iter().any(|it| it.contains(**part)))
    {
        wrong.push(format!("{name}: no note says {missing:?}: {notes:?}"));
    }
    if expected_notes.is_empty() {
        wrong.extend(notes.iter().map(|note| format!("{name}: a note: {note}")));
    }
    if let (Description::System(system), Some(names)) = (&description, expected.get("nic_names")) {
        assert_eq!(&json!(nic_names(system)), names, "{name}");
    }
    wrong
}

/// An error where the sample expects none, or another one.
fn unexpected_error(sample: &Sample, error: &ReadError) -> Option<String> {
    let refused = &sample.expected["refused"];
    let line = refused["line"].as_u64();
    let part = refused["expected"].as_str();
    let is_expected =
        line == Some(error.line as u64) && part.is_some_and(|part| error.expected.contains(part));
    (!is_expected).then(|| format!("{}: {error}", sample.name))
}

#[test]
fn every_sample_has_the_expected_answers() {
    let samples: Vec<Sample> =
        samples().into_iter().filter(|sample| sample.is_description()).collect();
    let wrong: Vec<String> = samples.iter().flat_map(faults).collect();
    assert!(wrong.is_empty(), "{} samples:\n{}", samples.len(), wrong.join("\n"));
    let larger = samples.iter().any(|sample| !sample.is_own());
    let least = if larger { OWN + 50 } else { OWN };
    assert!(samples.len() >= least, "only {} samples", samples.len());
}

#[test]
fn damaged_samples_read_the_same() {
    // A report that lost its end or some columns cannot be damaged further and read the same.
    let is_whole = |sample: &Sample| !sample.name.starts_with("damaged");
    let mut checked = 0;
    for sample in samples().iter().filter(|sample| is_whole(sample)) {
        let text = sample.text();
        let Ok(Description::Matrix(whole)) = Description::read(&text) else { continue };
        for (name, damaged) in damage::all(&text) {
            let read = Description::read(&damaged).map(|read| read.summary());
            assert_eq!(read, Ok(whole.summary()), "{name}: {}\n{damaged}", sample.name);
        }
        checked += 1;
    }
    assert!(checked >= 7, "only {checked} matrices");
}

/// Compares the graph of one sample with its summary.
fn check_graph(name: &str, description: &Description) {
    let summary = description.summary();
    let graph = description.topology();
    let gpus = graph.nodes_of(NodeKind::Gpu);
    let cards = graph.nodes_of(NodeKind::Nic);
    assert_eq!(gpus.len(), summary.gpus, "{name}");
    assert_eq!(cards.len(), summary.nics.unwrap_or(0), "{name}");
    // A matrix does not show the devices between two devices. Where two of its classes contradict
    // each other, the graph has the nearer one.
    let exact = matches!(description, Description::System(_));
    let agree =
        |found: PathClass, read: PathClass| if exact { found == read } else { found >= read };
    for (a, row) in summary.links.iter().enumerate() {
        for (b, printed) in row.iter().enumerate() {
            let class = graph.path(gpus[a], gpus[b]).unwrap().class;
            assert!(agree(class, printed.class()), "{name}: {a} to {b} is {class}, not {printed}");
            assert!(
                printed.direct_links() == 0 || class == printed.class(),
                "{name}: {a} to {b} is {class}, not {printed}"
            );
        }
    }
    for (gpu, near) in summary.nearest_nics.iter().flatten().enumerate() {
        let class = graph.path(gpus[gpu], cards[near.nics[0]]).unwrap().class;
        assert!(agree(class, near.class.class()), "{name}: {gpu} to its card is {class}");
    }
}

#[test]
fn a_graph_has_paths_of_the_classes_that_were_read() {
    // In a damaged sample the two directions of a pair may contradict each other. The graph has one
    // of them.
    let is_whole = |sample: &Sample| !sample.name.starts_with("damaged");
    let mut checked = 0;
    for sample in samples().into_iter().filter(is_whole) {
        let Ok(description) = Description::read(&sample.text()) else { continue };
        check_graph(&sample.name, &description);
        checked += 1;
    }
    assert!(checked >= 12, "only {checked} samples");
}

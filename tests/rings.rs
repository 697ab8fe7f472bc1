//! The ring search against machines that exist: their matrices, and the rings that other libraries
//! chose on them.
//!
//! The samples lie beside the project, in `../shared/topologies`, or where `MAYPOLE_TOPOLOGIES`
//! says; without them these tests say so and pass.

use maypole::topology::PathClass;
use maypole::topology::search::rings::{bottleneck, hops, ring};
use serde_json::Value;
use std::path::PathBuf;

/// All expectations, by the name of their file.
fn samples() -> Vec<(String, Value)> {
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/topologies");
    let folder = std::env::var_os("MAYPOLE_TOPOLOGIES").map_or_else(beside, PathBuf::from);
    let Ok(entries) = std::fs::read_dir(&folder) else {
        println!("SKIPPED: there are no samples in {}", folder.display());
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.to_string_lossy().ends_with(".expect.json"));
    paths.sort();
    let read = |path: PathBuf| {
        let name =
            path.file_name().unwrap().to_string_lossy().trim_end_matches(".expect.json").to_owned();
        (name, serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap())
    };
    paths.into_iter().map(read).collect()
}

/// The text of the sample of that number.
fn log(number: &str) -> String {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/topologies");
    let folder = std::env::var_os("MAYPOLE_TOPOLOGIES").map_or(folder, PathBuf::from);
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut wanted = paths.filter(|path| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.starts_with(&format!("{number}-")) && name.ends_with(".log")
    });
    std::fs::read_to_string(wanted.next().expect("an expectation has its sample")).unwrap()
}

fn class(value: &Value) -> PathClass {
    value.as_str().expect("a class is a word").parse().unwrap()
}

/// The classes of all pairs of GPUs; empty if the sample has none.
fn links(expectation: &Value) -> Vec<Vec<PathClass>> {
    let rows = expectation["links"].as_array().into_iter().flatten();
    rows.map(|row| row.as_array().unwrap().iter().map(class).collect()).collect()
}

fn assert_is_ring(order: &[usize], count: usize) {
    let mut sorted = order.to_vec();
    sorted.sort_unstable();
    assert!(
        sorted.iter().copied().eq(0..count),
        "{order:?} goes through each of {count} devices once"
    );
}

#[test]
fn every_machine_gets_the_ring_that_it_can_have() {
    let samples = samples();
    let mut checked = 0;
    for (name, expectation) in
        samples.iter().filter(|(_, expectation)| !links(expectation).is_empty())
    {
        let links = links(expectation);
        let found = ring(&links);
        assert_is_ring(&found.order, links.len());
        let expected = &expectation["ring_bottleneck"];
        let expected = (!expected.is_null()).then(|| class(expected));
        assert_eq!(found.bottleneck, expected, "{name}: {:?}", found.order);
        assert_eq!(bottleneck(&links, &found.order), expected, "{name}");
        if let Some(example) = expectation["ring_example"].as_array() {
            let example: Vec<usize> =
                example.iter().map(|device| device.as_u64().unwrap() as usize).collect();
            let kinds = |order: &[usize]| {
                let mut kinds: Vec<PathClass> = hops(order).map(|(a, b)| links[a][b]).collect();
                kinds.sort_unstable();
                kinds
            };
            assert!(
                kinds(&found.order) >= kinds(&example),
                "{name}: {:?} is worse than {example:?}",
                found.order
            );
        }
        checked += 1;
    }
    println!("{checked} machines");
    assert!(samples.is_empty() || checked >= 95, "{checked} machines");
}

/// The rings of the lines `Channel 00/08 :    0   1`.
fn channels(log: &str) -> Vec<Vec<usize>> {
    let after = |line: &str| {
        let (_, rest) = line.split_once("INFO Channel ")?;
        let (number, ring) = rest.split_once(" : ")?;
        number.split_once('/').filter(|(_, count)| count.len() == 2)?;
        ring.split_whitespace().map(|rank| rank.parse().ok()).collect::<Option<Vec<usize>>>()
    };
    log.lines().filter_map(after).collect()
}

#[test]
fn rings_that_others_chose_are_matched_or_beaten() {
    let samples = samples();
    let of = |number: usize| {
        &samples.iter().find(|(name, _)| *name == format!("{number:03}")).expect("the sample").1
    };
    for (name, expectation) in
        samples.iter().filter(|(_, expectation)| expectation["rings"].is_array())
    {
        let theirs = channels(&log(name));
        let listed = expectation["rings"].as_array().unwrap();
        assert_eq!(theirs.len(), listed.len(), "{name}: channels");
        // What the machine is; without a matrix of its own, one GPU on each of two hosts.
        let matrix = expectation["topology_sample"].as_u64().and_then(|machine| {
            samples
                .iter()
                .find(|(name, _)| *name == format!("{machine:03}"))
                .map(|(_, sample)| links(sample))
        });
        for theirs in theirs {
            let count = theirs.len();
            let links = matrix.as_ref().filter(|links| links.len() >= count).map_or_else(
                || vec![vec![PathClass::Net; count]; count],
                |links| links[..count].iter().map(|row| row[..count].to_vec()).collect(),
            );
            let ours = ring(&links);
            assert_is_ring(&ours.order, count);
            assert!(
                ours.bottleneck >= bottleneck(&links, &theirs),
                "{name}: {:?} and {theirs:?}",
                ours.order
            );
        }
    }
    if !samples.is_empty() {
        sixteen_dies_on_each_of_two_hosts(of(207));
    }
}

/// The log shows which pairs talk directly; all other pairs of a host are taken to be farther, as
/// they were to RCCL.
fn sixteen_dies_on_each_of_two_hosts(expectation: &Value) {
    let text = log("207");
    let mut links: Vec<Vec<PathClass>> = (0..32)
        .map(|a| {
            (0..32)
                .map(|b| if a / 16 == b / 16 { PathClass::Phb } else { PathClass::Net })
                .collect()
        })
        .collect();
    let mut direct = 0;
    for (a, b) in text.lines().filter_map(direct_pair) {
        (links[a][b], links[b][a]) = (PathClass::Xgmi(1), PathClass::Xgmi(1));
        direct += 1;
    }
    assert!(direct > 32, "the log names its direct pairs");
    let ours = ring(&links);
    assert_is_ring(&ours.order, 32);
    for prefix in expectation["ring_prefixes"].as_array().unwrap() {
        let theirs: Vec<usize> =
            prefix.as_array().unwrap().iter().map(|rank| rank.as_u64().unwrap() as usize).collect();
        assert!(channels(&text).contains(&theirs), "the log's own words");
        // Only its first twenty ranks were logged: a path, whose bottleneck no ring that contains
        // it beats.
        let worst = theirs.windows(2).map(|pair| links[pair[0]][pair[1]]).min();
        assert!(ours.bottleneck >= worst, "{:?} and {theirs:?}", ours.order);
    }
    let crossings = hops(&ours.order).filter(|&(a, b)| links[a][b] == PathClass::Net).count();
    let far = hops(&ours.order).filter(|&(a, b)| links[a][b] == PathClass::Phb).count();
    assert_eq!((crossings, far), (2, 0), "{:?}", ours.order);
}

/// `Channel 00/0 : 8[900000] -> 0[100000] via P2P/IPC`.
fn direct_pair(line: &str) -> Option<(usize, usize)> {
    let (_, rest) = line.split_once(" : ").filter(|_| line.contains("via P2P"))?;
    let (from, rest) = rest.split_once('[')?;
    let (_, to) = rest.split_once("-> ")?;
    Some((from.parse().ok()?, to.split_once('[')?.0.parse().ok()?))
}

//! The ring search against matrices of machines, and against the rings that other libraries chose.

use crate::samples::{OWN, Sample, samples};
use maypole::topology::PathClass;
use maypole::topology::rings::{bottleneck, hops};
use maypole_cluster::search::rings::ring;
use serde_json::Value;

fn assert_is_ring(order: &[usize], count: usize) {
    let mut sorted = order.to_vec();
    sorted.sort_unstable();
    assert!(
        sorted.iter().copied().eq(0..count),
        "{order:?} goes through each of {count} devices once"
    );
}

/// The classes of all hops of a ring, the worst first.
fn sorted_classes(links: &[Vec<PathClass>], order: &[usize]) -> Vec<PathClass> {
    let mut classes: Vec<PathClass> = hops(order).map(|(a, b)| links[a][b]).collect();
    classes.sort_unstable();
    classes
}

fn numbers(list: &Value) -> Vec<usize> {
    let numbers = list.as_array().unwrap().iter();
    numbers.map(|number| number.as_u64().unwrap() as usize).collect()
}

#[test]
fn every_machine_has_the_best_ring() {
    let samples = samples();
    let mut checked = 0;
    for sample in samples.iter().filter(|sample| !sample.links().is_empty()) {
        let name = &sample.name;
        let links = sample.links();
        let found = ring(&links);
        assert_is_ring(&found.order, links.len());
        let expected = sample.ring_bottleneck();
        assert_eq!(found.bottleneck, expected, "{name}: {:?}", found.order);
        assert_eq!(bottleneck(&links, &found.order), expected, "{name}");
        let example = &sample.expected["ring_example"];
        if example.is_array() {
            let example = numbers(example);
            assert!(
                sorted_classes(&links, &found.order) >= sorted_classes(&links, &example),
                "{name}: {:?} is worse than {example:?}",
                found.order
            );
        }
        checked += 1;
    }
    println!("{checked} machines");
    let larger = samples.iter().any(|sample| !sample.is_own());
    assert!(checked >= if larger { OWN + 75 } else { 15 }, "{checked} machines");
}

/// Three devices have one ring. Its worst link is the one by which the last device leads back to the
/// first, wherever the ring begins.
#[test]
fn the_link_that_closes_a_ring_counts() {
    for closing in [PathClass::Net, PathClass::Sys, PathClass::Pxb] {
        let mut links = vec![vec![PathClass::NvLink(4); 3]; 3];
        (0..3).for_each(|device| links[device][device] = PathClass::Same);
        links[2][0] = closing;
        links[0][2] = closing;
        assert_eq!(bottleneck(&links, &[0, 1, 2]), Some(closing));
        for order in [[1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            assert_eq!(bottleneck(&links, &order), Some(closing), "{order:?}");
        }
        assert_eq!(ring(&links).bottleneck, Some(closing));
    }
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

/// The links of the machine that wrote a log. If the samples have no matrix of that machine, each
/// GPU counts as a host of its own.
fn links_of_log(samples: &[Sample], log: &Sample, count: usize) -> Vec<Vec<PathClass>> {
    let machine = log.expected["topology_sample"].as_u64().map(|number| format!("{number:03}"));
    let matrix = samples.iter().find(|sample| Some(&sample.name) == machine.as_ref());
    match matrix.map(Sample::links).filter(|links| links.len() >= count) {
        Some(links) => links[..count].iter().map(|row| row[..count].to_vec()).collect(),
        None => vec![vec![PathClass::Net; count]; count],
    }
}

#[test]
fn rings_are_as_good_as_those_of_other_libraries() {
    let samples = samples();
    for log in samples.iter().filter(|sample| sample.expected["rings"].is_array()) {
        let name = &log.name;
        let theirs = channels(&log.text());
        let listed = log.expected["rings"].as_array().unwrap();
        assert_eq!(theirs.len(), listed.len(), "{name}: channels");
        for theirs in theirs {
            let links = links_of_log(&samples, log, theirs.len());
            let ours = ring(&links);
            assert_is_ring(&ours.order, theirs.len());
            assert!(
                ours.bottleneck >= bottleneck(&links, &theirs),
                "{name}: {:?} and {theirs:?}",
                ours.order
            );
        }
    }
    if let Some(log) = samples.iter().find(|sample| sample.name == "207") {
        sixteen_dies_on_each_of_two_hosts(log);
    }
}

/// The log shows which pairs of GPUs have direct paths. All other pairs of a host count as farther,
/// as RCCL counted them.
fn sixteen_dies_on_each_of_two_hosts(log: &Sample) {
    let text = log.text();
    let mut links: Vec<Vec<PathClass>> = (0..32)
        .map(|a| {
            (0..32)
                .map(|b| if a / 16 == b / 16 { PathClass::Phb } else { PathClass::Net })
                .collect()
        })
        .collect();
    let mut direct = 0;
    for (a, b) in text.lines().filter_map(direct_pair) {
        links[a][b] = PathClass::Xgmi(1);
        links[b][a] = PathClass::Xgmi(1);
        direct += 1;
    }
    assert!(direct > 32, "the log names its direct pairs");
    let ours = ring(&links);
    assert_is_ring(&ours.order, 32);
    for prefix in log.expected["ring_prefixes"].as_array().unwrap() {
        let theirs = numbers(prefix);
        assert!(channels(&text).contains(&theirs), "the log shows this ring");
        // Only the first twenty ranks of the ring were logged. No ring that contains this path has
        // a better bottleneck than the path.
        let worst = theirs.windows(2).map(|pair| links[pair[0]][pair[1]]).min();
        assert!(ours.bottleneck >= worst, "{:?} and {theirs:?}", ours.order);
    }
    let crossings = hops(&ours.order).filter(|&(a, b)| links[a][b] == PathClass::Net).count();
    let far = hops(&ours.order).filter(|&(a, b)| links[a][b] == PathClass::Phb).count();
    assert_eq!(crossings, 2, "{:?}", ours.order);
    assert_eq!(far, 0, "{:?}", ours.order);
}

/// `Channel 00/0 : 8[900000] -> 0[100000] via P2P/IPC`.
fn direct_pair(line: &str) -> Option<(usize, usize)> {
    let (_, rest) = line.split_once(" : ").filter(|_| line.contains("via P2P"))?;
    let (from, rest) = rest.split_once('[')?;
    let (_, to) = rest.split_once("-> ")?;
    Some((from.parse().ok()?, to.split_once('[')?.0.parse().ok()?))
}

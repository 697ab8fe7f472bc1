//! The ring search against matrices of machines.

use crate::samples::{OWN, samples};
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

//! `perf p2p`: messages between two ranks, and the matrix of all pairs.

use super::measuring::wrong;
use super::{objects, printed, run, text};
use serde_json::Value;
use std::collections::BTreeSet;

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn messages_are_measured_over_shared_memory_and_tcp() {
    let all = objects(&printed("perf p2p --budget 2 --sizes 1,1000,200K --json -"));
    assert_eq!(all.len(), 2 * 3 * 3, "two transports, three tests, three sizes");
    for object in &all {
        assert_eq!((&object["wrong"], &object["ranks"]), (&0.into(), &2.into()), "{object}");
        assert_eq!(object["pairs"], serde_json::json!([[0, 1]]));
        let both = if object["test"] == "bidirectional" { 2.0 } else { 1.0 };
        let rate = both * number(&object["bytes"]) / number(&object["time_us"]["p50"]) / 1e3;
        assert!((number(&object["rate_GBps"]) / rate - 1.0).abs() < 1e-9, "{object}");
        let window = if object["test"] == "latency" { 1 } else { 64 };
        assert_eq!(object["window"], window, "{object}");
    }
    let transports: BTreeSet<_> = all.iter().map(|it| it["transport"].as_str().unwrap()).collect();
    assert_eq!(transports, BTreeSet::from(["shm", "tcp"]));
}

#[test]
fn several_pairs_and_rings_are_measured_at_once() {
    let line = "perf latency bandwidth sendrecv exchange --threads -n 4 --transport shm --budget 2 \
                --sizes 64 --json -";
    let all = objects(&printed(line));
    let pairs = |test: &str| all.iter().find(|it| it["test"] == test).unwrap()["pairs"].clone();
    assert_eq!(pairs("bandwidth"), serde_json::json!([[0, 2], [1, 3]]));
    assert_eq!(pairs("exchange"), serde_json::json!([]), "a ring of all");
    assert!(all.iter().all(|object| object["wrong"] == 0), "{all:?}");
}

#[test]
fn a_message_left_out_in_fifty_is_noticed() {
    let output = run("perf latency bandwidth bidirectional sendrecv exchange --threads -n 2 \
                      --transport shm --sizes 8,32K --iters 100 --sabotage 50 --json -");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    let rows = objects(&text(&output.stdout));
    assert!(text(&output.stderr).contains(&format!(" {} elements were wrong", wrong(&rows))));
    assert_eq!(rows.len(), 5 * 2);
    assert!(rows.iter().all(|row| row["wrong"].as_u64().unwrap() > 0), "{rows:?}");
}

/// Four ranks, of which one computes before each message. Beside other programs another rank may be slow as
/// well, and is named, too; but not in each of some runs.
#[test]
fn a_slow_rank_is_named_in_the_matrix_of_all_pairs() {
    let mut seen = Vec::new();
    let is_found = |_| {
        let odd = odd_ranks_of_all_pairs();
        seen.push(odd.clone());
        odd.as_array().unwrap().len() == 1 && odd[0][0] == 2
    };
    assert!((0..5).any(is_found), "{seen:?}");
}

/// The odd ranks where rank 2 is slow. Checks the table, the rows and the picture.
fn odd_ranks_of_all_pairs() -> Value {
    let folder = tempfile::tempdir().unwrap();
    let table = printed(&format!(
        "perf latency --pairs all -n 4 --bind false --transport tcp --sizes 8 --budget 6 \
         --slow-rank 2 --report {}",
        folder.path().display()
    ));
    let read = |name| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let (all, page) = (objects(&read("results.json")), read("index.html"));
    let (rows, matrix) = all.split_at(6);
    assert!(rows.iter().all(|row| row["wrong"] == 0), "{table}");
    let [matrix] = matrix else { panic!("{all:?}") };
    let cells =
        matrix["matrix_us"].as_array().unwrap().iter().flat_map(|it| it.as_array().unwrap());
    assert_eq!(cells.filter(|cell| cell.is_number()).count(), 12);
    for rank in matrix["odd_ranks"].as_array().unwrap() {
        let named = format!("rank {} is odd", rank[0]);
        assert!(table.contains(&format!("# {named}: messages to and from it take")), "{table}");
        assert!(page.contains(&named), "{page}");
    }
    matrix["odd_ranks"].clone()
}

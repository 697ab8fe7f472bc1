//! `perf p2p`: messages between two ranks, and the matrix of all pairs.

use super::{objects, printed, run, text};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

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
fn a_message_left_out_in_a_hundred_is_noticed() {
    for test in ["latency", "bandwidth", "bidirectional", "sendrecv", "exchange"] {
        let line = format!(
            "perf {test} --threads -n 2 --transport shm --sizes 8,32K --iters 300 --sabotage 100"
        );
        let output = run(&line);
        assert_eq!(output.status.code(), Some(1), "{line}: {}", text(&output.stdout));
        assert!(text(&output.stderr).contains("elements were wrong"), "{test}");
    }
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

/// Microseconds of the best of some rows of round trips.
fn best_us(mut round_trip: impl FnMut()) -> f64 {
    const TRIPS: u32 = 200;
    let row = |round_trip: &mut dyn FnMut()| {
        let start = Instant::now();
        (0..TRIPS).for_each(|_| round_trip());
        start.elapsed().as_secs_f64() * 1e6 / f64::from(TRIPS)
    };
    (0..30).map(|_| row(&mut round_trip)).fold(f64::INFINITY, f64::min)
}

/// Half a round trip of eight bytes through a plain socket.
fn raw_tcp_us() -> f64 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut there, _) = listener.accept().unwrap();
    here.set_nodelay(true).unwrap();
    there.set_nodelay(true).unwrap();
    let answers = std::thread::spawn(move || {
        let mut bytes = [0; 8];
        while there.read_exact(&mut bytes).is_ok() {
            there.write_all(&bytes).unwrap();
        }
    });
    let mut bytes = [7; 8];
    let us = best_us(|| {
        here.write_all(&bytes).unwrap();
        here.read_exact(&mut bytes).unwrap();
    });
    drop(here);
    answers.join().unwrap();
    us / 2.0
}

/// The latency that `perf` prints is that of a ping-pong through plain sockets that was written for this
/// test, within a factor of four. Other programs disturb both, so the best of several tries counts.
#[test]
fn latencies_agree_with_an_independent_ping_pong() {
    let line = "perf latency --transport tcp --sizes 8 --budget 100 --json -";
    let is_near = |(us, raw): &(f64, f64)| (raw / 4.0..raw * 4.0).contains(us);
    let mut tries = Vec::new();
    while tries.len() < 4 && !tries.iter().any(is_near) {
        let us = number(&objects(&printed(line))[0]["time_us"]["min"]);
        tries.push((us, raw_tcp_us()));
    }
    assert!(tries.iter().any(is_near), "latency, and the raw one (us): {tries:?}");
}

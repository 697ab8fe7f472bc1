//! A trace continues after a process was admitted: in a file of its own, of old ranks and
//! newcomers.

use crate::spawn::{World, configuration, ranks};
use maypole::world::bootstrap::JoinConfig;
use maypole::{Admissions, Communicator, ReduceOp};
use std::net::TcpListener;
use std::time::Duration;

pub(crate) fn rank_process(_: &str) {
    let mut comm = match ranks()[0] {
        0 => admit(),
        _ => Communicator::from_env().unwrap(),
    };
    assert_eq!(comm.world(), 2);
    comm.all_reduce(&mut [1u8; 300], ReduceOp::Sum).unwrap();
    comm.close().unwrap();
}

/// A world of one, which becomes one of two.
fn admit() -> Communicator {
    let config = JoinConfig { world: 1, ..configuration(0) };
    let mut comm = Communicator::join_by_env(config).unwrap();
    comm.all_reduce(&mut [1u8; 200], ReduceOp::Sum).unwrap();
    let mut admissions = Admissions::from_env().unwrap().expect("a port is set");
    loop {
        if let Some(grown) = comm.admit(&mut admissions, Duration::from_secs(1)).unwrap() {
            return grown;
        }
    }
}

#[test]
fn a_trace_goes_on_with_the_ranks_that_were_admitted() {
    let folder = tempfile::tempdir().unwrap();
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let world =
        World::new("admitted", 2).set("MAYPOLE_TRACE", folder.path().join("t.json").display());
    let world = world.set("MAYPOLE_ADMISSION_PORT", port).set_of(1, "MAYPOLE_NEWCOMER", 1);
    world.start().succeed();
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    assert!(read("t.json").contains("all_reduce(200 x u8, sum)"));
    let text = read("t.1.json");
    let trace: serde_json::Value = serde_json::from_str(&text).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let is_call = |event: &&serde_json::Value| {
        event["name"].as_str().is_some_and(|name| name.starts_with("all_reduce(300 x u8, sum)"))
    };
    let mut lanes: Vec<String> =
        events.iter().filter(is_call).map(|event| event["tid"].to_string()).collect();
    lanes.sort_unstable();
    lanes.dedup();
    assert_eq!(lanes.len(), 2, "both ranks record the call: {text}");
}

//! Traces when a file cannot be written, and when a call fails.

use crate::spawn::World;
use maypole::{Communicator, ReduceOp};
use serde_json::Value;
use std::time::Duration;

/// Makes more calls than one write holds.
pub(crate) fn rank_process(_: &str) {
    let mut comm = Communicator::from_env().unwrap();
    for _ in 0..10_000 {
        comm.all_reduce(&mut [1u64; 4], ReduceOp::Sum).unwrap();
    }
}

#[test]
fn files_that_cannot_be_written_do_no_harm() {
    for file in ["/nonexistent/folder/trace.json", "/dev/full"] {
        let ended = World::new("much", 2).set("MAYPOLE_TRACE", file).start().succeed();
        let lines = ended.iter().flat_map(|ended| &ended.lines);
        let lines: Vec<_> = lines.filter(|line| line.contains(file)).collect();
        assert_eq!(lines.len(), 1, "said once: {lines:?}");
        assert!(lines[0].contains("nothing is traced: "), "{lines:?}");
    }
}

#[test]
fn a_disk_that_fills_ends_the_trace_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    // A limit on the size of files, in units of 512 bytes, stands for a small disk.
    let limited = ["sh", "-c", "ulimit -f 400; trap '' XFSZ; exec \"$0\" \"$@\""];
    let world = World::new("much", 1).by(0, &limited).set("MAYPOLE_TRACE", path.display());
    let lines = &world.start().succeed()[0].lines;
    let complaints = lines.iter().filter(|line| line.contains("the trace ends early"));
    assert_eq!(complaints.count(), 1, "{lines:?}");
    let file: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert!(file["traceEvents"].is_array());
}

#[test]
fn a_trace_that_is_full_says_so_and_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    Communicator::run_local(1, |mut comm| {
        comm.trace(&path.to_string_lossy()).unwrap();
        for _ in 0..maypole::execute::record::MOST {
            comm.all_reduce(&mut [1u64], ReduceOp::Sum).unwrap();
        }
    });
    let text = std::fs::read_to_string(&path).unwrap();
    let slices = text.matches("\"ph\":\"X\"").count();
    let most = maypole::execute::record::MOST;
    assert!((most..most + 3).contains(&slices), "{slices}");
    assert!(text.len() < 100 << 20, "{} bytes", text.len());
    serde_json::from_str::<Value>(&text).unwrap();
}

#[test]
fn a_wait_that_ends_in_an_error_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    Communicator::run_local(2, |mut comm| {
        comm.trace(&path.to_string_lossy()).unwrap();
        comm.barrier().unwrap();
        if comm.rank() == 1 {
            comm.set_timeout(Duration::from_secs(20));
            comm.all_reduce(&mut [1.0f32], ReduceOp::Sum).unwrap_err();
            // The trace is written before the communicator is dropped.
            let text = std::fs::read_to_string(&path).unwrap();
            serde_json::from_str::<Value>(&text).unwrap();
            assert!(text.contains("wait for 0 in vain"), "{text}");
        }
    });
}

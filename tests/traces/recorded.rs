//! Traces of real runs: between threads and processes, over boards and streams.

use crate::file::TraceFile;
use crate::over_processes;
use maypole::algorithms::Algorithm;
use maypole::schedule::Layout;
use maypole::schedule::collective::Collective;
use maypole::{CallPath, Communicator, Local, ReduceOp};
use maypole_pictures::clocks::{Cost, Ports, simulate};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const RANKS: usize = 3;
const COUNT: usize = 100_003;

pub(crate) fn rank_process(_: &str) {
    everything(&mut Communicator::from_env().unwrap());
}

/// Makes calls of several collectives and algorithms, with one window and with several, and calls
/// of a group.
fn everything(comm: &mut Communicator) {
    let mut data = vec![1f32; COUNT];
    for (collective, algorithm) in CALLS {
        comm.set_algorithm(Some(algorithm));
        match collective {
            Collective::Broadcast { root } => comm.broadcast(&mut data, root).unwrap(),
            Collective::AllGather => comm.all_gather(&mut data[..COUNT / RANKS * RANKS]).unwrap(),
            Collective::AllReduce => comm.all_reduce(&mut data, ReduceOp::Max).unwrap(),
            _ => comm.barrier().unwrap(),
        }
    }
    comm.set_algorithm(None);
    let mut pair = comm.split((comm.rank() < 2).then_some(7), 0).unwrap();
    for _ in 0..2 {
        if let Some(pair) = &mut pair {
            pair.all_reduce(&mut data[..5], ReduceOp::Sum).unwrap();
        }
        comm.all_reduce(&mut data[..5], ReduceOp::Sum).unwrap();
    }
}

const CALLS: [(Collective, Algorithm); 6] = [
    (Collective::AllReduce, Algorithm::Ring),
    (Collective::AllReduce, Algorithm::TwoShot),
    (Collective::Broadcast { root: 1 }, Algorithm::Tree),
    (Collective::AllGather, Algorithm::Bruck),
    (Collective::Barrier, Algorithm::Dissemination),
    (Collective::AllReduce, Algorithm::Tree),
];

/// By rank: bytes that the call sends, as the simulator counts them.
fn expected((collective, algorithm): (Collective, Algorithm)) -> Vec<usize> {
    let schedules = algorithm.schedules(collective, RANKS).unwrap();
    let count = match collective {
        Collective::Barrier => 0,
        Collective::AllGather => COUNT / RANKS * RANKS,
        _ => COUNT,
    };
    let layout = Layout::even(count, schedules[0].chunks);
    let cost = Cost { alpha: 1.0, beta: 1.0, gamma: 1.0, ports: Ports::Single };
    simulate(&schedules, &layout, size_of::<f32>(), 1, cost).unwrap().bytes_sent
}

fn read(path: &Path) -> TraceFile {
    TraceFile::read(&std::fs::read_to_string(path).unwrap())
}

/// Checks that the trace holds all calls of [`everything`].
fn check(file: &TraceFile) {
    let mut all = None;
    for rank in 0..RANKS {
        let owner = format!("rank {rank}");
        let lane = file
            .lanes
            .iter()
            .find(|(_, name)| **name == owner)
            .map(|(lane, _)| *lane)
            .expect("a lane a rank");
        let mut calls: Vec<_> =
            file.of(&owner, "call").into_iter().filter(|call| call.lane == lane).collect();
        calls.retain(|call| !call.facts["sequence"].is_null());
        calls.sort_by(|a, b| a.start.total_cmp(&b.start));
        let sequence: Vec<u64> = calls.iter().map(|call| call.number("sequence")).collect();
        // Operation 0 begins the trace. Agreements of the ranks have numbers, too: the costs of
        // slots, before the first call, the split after the last of CALLS, and whether ranks can
        // copy from one another.
        assert!(sequence.is_sorted_by(|one, next| one < next), "{owner}: {sequence:?}");
        assert!(sequence[0] <= 2, "{owner}: {sequence:?}");
        assert_eq!(sequence.len(), CALLS.len() + 2, "{owner}");
        assert_eq!(sequence, *all.get_or_insert_with(|| sequence.clone()), "{owner}");
        for (call, what) in calls.iter().zip(CALLS) {
            assert!(call.name.starts_with(what.0.name()), "{} is {what:?}", call.name);
            assert_eq!(call.facts["algorithm"], what.1.name());
            let within = |it: &&crate::file::Slice| {
                it.lane == lane
                    && it.start >= call.start
                    && it.end <= call.end
                    && !it.facts["to"].is_null()
            };
            let sent: u64 = file
                .slices
                .iter()
                .filter(within)
                .map(|fold| fold.number("bytes") * fold.count("to"))
                .sum();
            assert_eq!(sent, expected(what)[rank] as u64, "{owner} in {}", call.name);
            let windows =
                file.slices.iter().filter(within).map(|fold| fold.number("window") + 1).max();
            assert_eq!(windows.unwrap_or(1), call.number("windows"), "{owner} in {}", call.name);
        }
    }
    // Every message has an arrow with two ends.
    let received: u64 = file.slices.iter().map(|fold| fold.count("from")).sum();
    assert_eq!(received, file.arrows.len() as u64);
    let groups: Vec<_> = file.lanes.values().filter(|name| name.ends_with("group 1")).collect();
    assert_eq!(groups, ["rank 0 group 1", "rank 1 group 1"]);
}

#[test]
fn threads_over_boards_and_streams() {
    let folder = tempfile::tempdir().unwrap();
    for (nth, hosts) in [[0, 0, 0], [0, 1, 2], [0, 1, 1]].iter().enumerate() {
        let path = folder.path().join(format!("{nth}.json"));
        Local::new(RANKS).hosts(hosts).run(|mut comm| {
            comm.trace(&path.to_string_lossy()).unwrap();
            everything(&mut comm);
        });
        check(&read(&path));
    }
}

#[test]
fn processes_over_shared_memory_and_tcp() {
    over_processes("everything", RANKS, |path| check(&read(path)));
}

#[test]
fn every_rank_has_a_file_if_the_name_contains_the_rank() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().join("{rank}.json");
    Communicator::run_local(2, |mut comm| {
        comm.trace(&name.to_string_lossy()).unwrap();
        comm.barrier().unwrap();
    });
    for rank in 0..2 {
        let text = std::fs::read_to_string(folder.path().join(format!("{rank}.json"))).unwrap();
        let file: serde_json::Value = serde_json::from_str(&text).unwrap();
        let named = |event: &serde_json::Value| event["args"]["name"] == format!("rank {rank}");
        assert!(file["traceEvents"].as_array().unwrap().iter().any(named), "{text}");
    }
}

#[test]
fn waits_are_shown() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    let about_to = AtomicUsize::new(0);
    Communicator::run_local(2, |mut comm| {
        comm.trace(&path.to_string_lossy()).unwrap();
        comm.barrier().unwrap();
        if comm.rank() == 1 {
            about_to.store(1, Ordering::SeqCst);
        } else {
            let start = Instant::now();
            while about_to.load(Ordering::SeqCst) == 0
                || start.elapsed() < Duration::from_millis(200)
            {
                std::thread::yield_now();
            }
        }
        comm.all_reduce(&mut [1.0f64], ReduceOp::Sum).unwrap();
    });
    let file = read(&path);
    let [calls, waits] = ["call", "wait"].map(|kind| file.of("rank 1", kind));
    let call = calls.into_iter().find(|call| call.name.starts_with("all_reduce")).unwrap();
    let waits = waits.into_iter().filter(|wait| wait.start >= call.start && wait.end <= call.end);
    let waited: f64 =
        waits.filter(|wait| wait.facts["peer"] == 0).map(|wait| wait.end - wait.start).sum();
    assert!(waited > 10_000.0, "{waited} us, though rank 0 was 200 ms late");
}

/// Folds on registered memory name the ranks whose memory they reach.
#[test]
fn calls_on_registered_memory_are_shown_with_their_peers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    Local::new(RANKS).run(|mut comm| {
        comm.set_algorithm(Some(Algorithm::TwoShot));
        let arena = comm.arena(1 << 22).unwrap();
        let mut data = arena.alloc::<f32>(300_000);
        comm.trace(&path.to_string_lossy()).unwrap();
        comm.all_reduce(&mut data[..], ReduceOp::Sum).unwrap();
        assert_eq!(comm.last_call().unwrap().path, CallPath::Registered);
    });
    let file = read(&path);
    // A rank combines its part of all ranks, and writes it to the two others.
    let reaches_all = |it: &&crate::file::Slice| (it.count("from"), it.count("to")) == (2, 2);
    let reduced = file.slices.iter().filter(reaches_all);
    assert_eq!(reduced.map(|fold| fold.number("bytes")).sum::<u64>(), 4 * 300_000);
}

//! Calls that do not match, and ranks that are too late: every rank soon names the same first
//! cause, and its own aborted operation. Ranks are threads that share memory, threads joined by
//! streams, processes that share memory, and processes joined by TCP.

use crate::calls::{PAIRS, make};
use crate::report::await_failure;
use crate::skip;
use crate::spawn::{World, say};
use maypole::{Communicator, Error, Local, ReduceOp, Result};
use std::time::{Duration, Instant};

/// Far above what naming a mismatch takes, and far below [`TIMEOUT`].
const SOON: Duration = Duration::from_secs(15);
/// How long ranks would wait for one another if nothing was found out.
const TIMEOUT: Duration = Duration::from_secs(60);

/// One rank's part.
type Scenario = fn(Communicator) -> Result<()>;

/// The scenarios of rank processes, by name. Those of pairs of calls have the names of both.
const SCENARIOS: [(&str, Scenario); 7] = [
    ("other collective", other_collective),
    ("other root, then a call", other_root_then_a_call),
    ("other root, then close", other_root_then_close),
    ("late", late),
    ("both are root", both_are_root),
    ("each is root, then close", each_is_root_then_close),
    ("each is root, then drop", each_is_root_then_drop),
];

fn sum(comm: &mut Communicator, count: usize) -> Result<()> {
    comm.all_reduce(&mut vec![1u64; count], ReduceOp::Sum)
}

fn other_collective(mut comm: Communicator) -> Result<()> {
    sum(&mut comm, 10)?;
    match comm.rank() {
        1 => sum(&mut comm, 1000)?,
        _ => comm.barrier()?,
    }
    comm.barrier()
}

fn other_root(comm: &mut Communicator) -> Result<()> {
    let root = if comm.rank() == 2 { 1 } else { 0 };
    comm.broadcast(&mut [1u8; 100], root)
}

fn other_root_then_a_call(mut comm: Communicator) -> Result<()> {
    other_root(&mut comm)?;
    comm.barrier()
}

fn other_root_then_close(mut comm: Communicator) -> Result<()> {
    other_root(&mut comm)?;
    comm.close()
}

/// Rank 1 makes the call after the others have given up. What they had sent by then is still there.
fn late(mut comm: Communicator) -> Result<()> {
    comm.barrier()?;
    match comm.rank() {
        1 => await_failure(&comm),
        _ => comm.set_timeout(Duration::from_millis(500)),
    }
    sum(&mut comm, 4)
}

/// Both ranks send, and neither waits for the other.
fn both_are_root(mut comm: Communicator) -> Result<()> {
    let root = comm.rank();
    comm.broadcast(&mut [1u8; 100], root)?;
    unreachable!("the calls were compared before they ran")
}

/// Every rank sends, and no rank waits for another one.
fn each_is_root_then_close(mut comm: Communicator) -> Result<()> {
    let root = comm.rank();
    comm.broadcast(&mut [1u8; 100], root)?;
    comm.close()
}

/// As [`each_is_root_then_close`], in the world and in a group that was split from it, without a
/// close.
fn each_is_root_then_drop(mut comm: Communicator) -> Result<()> {
    let root = comm.rank();
    if std::env::var_os("TEST_IN_GROUP").is_some() {
        let mut group = comm.duplicate()?;
        return group.broadcast(&mut [1u8; 100], root);
    }
    comm.broadcast(&mut [1u8; 100], root)
}

/// The fields of an error that tests compare.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Told {
    /// The typed cause, printed with all of its fields.
    cause: String,
    /// The aborted operation.
    operation: String,
    sentence: String,
    took: Duration,
}

impl Told {
    fn by(result: Result<()>, took: Duration) -> Option<Self> {
        let error = result.err()?;
        let is_mismatch = matches!(error, Error::Mismatch { .. });
        assert!(!is_mismatch || !error.is_retryable(), "a mismatch will not pass: {error}");
        let cause = match &error {
            Error::Mismatch { cause, .. } => format!("{cause:?}"),
            Error::TimedOut { cause, .. } => format!("{cause:?}"),
            _ => "no typed cause".to_owned(),
        };
        let operation = error.operation().unwrap_or("no call").to_owned();
        Some(Self { cause, operation, sentence: error.to_string(), took })
    }
}

/// One rank's part in the scenario of this name.
fn play(name: &str, mut comm: Communicator) -> Result<()> {
    let Some((call, other)) = name.split_once(" against ") else {
        return SCENARIOS.iter().find(|(known, _)| *known == name).unwrap().1(comm);
    };
    let warm = call.strip_prefix("warm ");
    if warm.is_some() {
        sum(&mut comm, 1)?;
        comm.barrier()?;
    }
    let call = if comm.rank() == 1 { other } else { warm.unwrap_or(call) };
    // A rank that only sends may have ended its part. It learns of the failure in the barrier.
    (0..3).try_for_each(|_| make(call, &mut comm)).and_then(|()| comm.barrier())
}

pub(crate) fn rank_process(role: &str) {
    let comm = Communicator::from_env().unwrap();
    let start = Instant::now();
    if let Some(told) = Told::by(play(role, comm), start.elapsed()) {
        say("cause", told.cause);
        say("operation", told.operation);
        say("sentence", told.sentence);
        say("took", told.took.as_millis());
    }
}

/// Runs the scenario in all ways and returns, for each way, the error of each of the `world` ranks.
fn run(name: &str, world: usize, checked: bool) -> Vec<(String, Vec<Option<Told>>)> {
    let mut all = among_threads(name, world, checked);
    all.extend(among_processes(name, world, checked));
    all
}

/// The errors of ranks that are threads.
fn among_threads(name: &str, world: usize, checked: bool) -> Vec<(String, Vec<Option<Told>>)> {
    let mut all = Vec::new();
    for (way, hosts) in [("threads", vec![0; world]), ("streams", (0..world).collect())] {
        let told = Local::new(world).hosts(&hosts).timeout(TIMEOUT).run(|mut comm| {
            comm.set_checked(checked);
            let start = Instant::now();
            Told::by(play(name, comm), start.elapsed())
        });
        all.push((format!("{name} by {way}"), told));
    }
    all
}

/// The errors of ranks that are processes.
fn among_processes(name: &str, world: usize, checked: bool) -> Vec<(String, Vec<Option<Told>>)> {
    let mut all = Vec::new();
    for way in ["shm", "tcp"] {
        let mut world = World::new(name, world)
            .set("MAYPOLE_TRANSPORT", way)
            .set("MAYPOLE_TIMEOUT", TIMEOUT.as_secs());
        if checked {
            world = world.set("MAYPOLE_CHECK", 1);
        }
        let told = world.start().succeed().into_iter().map(|ended| {
            let one = |tag| ended.said(tag).first().map(|text| (*text).to_owned());
            let took = Duration::from_millis(one("took")?.parse().unwrap());
            let cause = one("cause")?;
            Some(Told { cause, operation: one("operation")?, sentence: one("sentence")?, took })
        });
        all.push((format!("{name} over {way}"), told.collect()));
    }
    all
}

/// Asserts that all ranks soon got the same cause, and returns the error of rank 0.
#[track_caller]
fn one_cause(way: &str, told: &[Option<Told>]) -> Told {
    let told: Vec<&Told> = told.iter().map(|it| it.as_ref().expect(way)).collect();
    for it in &told {
        assert_eq!(it.cause, told[0].cause, "{way}: {told:#?}");
        assert!(it.took < SOON, "{way}: {told:#?}");
    }
    told[0].clone()
}

#[test]
fn all_ranks_name_the_same_two_calls_and_what_they_gave_up() {
    for (way, told) in run("other collective", 3, false) {
        let cause = one_cause(&way, &told);
        assert!(cause.sentence.contains("all_reduce(1000 x u64, sum)"), "{way}: {cause:?}");
        assert!(cause.sentence.contains("calls barrier()"), "{way}: {cause:?}");
        assert!(cause.cause.contains("CallMismatch { sequence: 1, "), "{way}: {cause:?}");
        let gave_up = |rank: usize| told[rank].as_ref().unwrap().operation.clone();
        assert_eq!(gave_up(1), "all_reduce(1000 x u64, sum)", "{way}");
        for rank in [0, 2] {
            assert_eq!(gave_up(rank), "barrier()", "{way}");
        }
    }
}

#[test]
fn what_differs_is_named() {
    for (name, one, other) in [
        ("one-shot against ring", "algorithm (one-shot, ring)", "algorithm (ring, one-shot)"),
        (
            "counts 1 2 3 against counts 1 1 4",
            "counts of the ranks (1 2 3, 1 1 4)",
            "counts of the ranks (1 1 4, 1 2 3)",
        ),
        ("warm sum against max", "operation (sum, max)", "operation (max, sum)"),
        ("plus against times", "operation ('plus', 'times')", "operation ('times', 'plus')"),
        ("sum against deterministic sum", "(free, deterministic)", "(deterministic, free)"),
    ] {
        for (way, told) in run(name, 3, false) {
            let cause = one_cause(&way, &told).sentence;
            let differ = cause.split_once("they differ in ").expect(&cause).1;
            assert!(differ.contains(one) || differ.contains(other), "{way}: {cause}");
        }
    }
}

/// A drop cannot return the error, so a rank that leaves after another one prints it.
#[test]
fn a_mismatch_that_no_call_has_noticed_is_printed_by_a_drop() {
    for (transport, group) in [("shm", false), ("tcp", false), ("shm", true)] {
        let mut world =
            World::new("each is root, then drop", 2).set("MAYPOLE_TRANSPORT", transport);
        if group {
            world = world.set("TEST_IN_GROUP", 1);
        }
        let ended = world.start().end();
        let lines = || ended.iter().flat_map(|ended| &ended.lines);
        let is_printed = |line: &&String| {
            line.starts_with("maypole: ") && line.contains("ranks do not match: rank 0")
        };
        let printed = lines().find(is_printed);
        let printed = printed.unwrap_or_else(|| panic!("{transport}: {ended:?}"));
        assert!(printed.contains("they differ in root (0, 1)"), "{printed}");
        assert!(
            printed.ends_with("; no call has returned this, and close() would have"),
            "{printed}"
        );
    }
}

#[test]
fn calls_that_do_not_match_are_told_apart_at_once() {
    crate::skip::takes_turns!(2);
    let names = PAIRS.into_iter().flat_map(|(call, other)| {
        ["", "warm "].map(|warm| format!("{warm}{call} against {other}"))
    });
    let names: Vec<String> = names.collect();
    let some = skip::every_nth(5, &names);
    let threads = names.iter().map(|name| among_threads(name, 3, false));
    let processes = some.into_iter().map(|name| among_processes(name, 3, false));
    for (way, told) in threads.chain(processes).flatten() {
        let cause = one_cause(&way, &told).sentence;
        assert!(cause.starts_with("ranks do not match: rank "), "{way}: {cause}");
    }
}

#[test]
fn another_root_is_an_error_at_the_next_call_or_at_close() {
    for name in ["other root, then a call", "other root, then close", "each is root, then close"] {
        for (way, told) in run(name, 3, false) {
            let cause = one_cause(&way, &told);
            assert!(cause.sentence.starts_with("ranks do not match: rank "), "{way}: {cause:?}");
            assert!(cause.sentence.contains("they differ in root ("), "{way}: {cause:?}");
        }
    }
}

#[test]
fn a_rank_that_comes_after_the_others_gave_up_gets_their_error() {
    for (way, told) in run("late", 3, false) {
        let cause = one_cause(&way, &told);
        assert!(cause.cause.contains("peer: Some(1)"), "{way}: {cause:?}");
        assert!(cause.cause.contains("culprit: Some(1)"), "{way}: {cause:?}");
        assert!(cause.sentence.contains("waited 0.5 s for rank 1"), "{way}: {cause:?}");
    }
}

#[test]
fn checked_calls_fail_before_anything_is_sent() {
    for (way, told) in run("both are root", 2, true) {
        let cause = one_cause(&way, &told);
        let expected = "ranks do not match: rank 0 calls broadcast(100 x u8, root 0) as operation \
                        0, but rank 1 calls broadcast(100 x u8, root 1); they differ in root (0, 1)";
        assert_eq!(cause.sentence, expected, "{way}");
    }
    for (way, told) in run("barrier against split", 3, true) {
        let cause = one_cause(&way, &told);
        // The exchange names ranks 0 and 1. On a busy machine ranks 1 and 2 may have compared their
        // calls first.
        let told = ["calls split()", "calls barrier()"];
        assert!(told.iter().all(|call| cause.sentence.contains(call)), "{way}: {cause:?}");
    }
}

#[test]
fn checked_calls_that_match_work() {
    let sums = Local::new(3).timeout(TIMEOUT).run(|mut comm| {
        comm.set_checked(true);
        let mut pair = comm.split(Some(comm.rank() as u64 / 2), 0).unwrap().unwrap();
        let mut data = [0u64; 2];
        for _ in 0..3 {
            data = [1, comm.rank() as u64];
            comm.all_reduce(&mut data, ReduceOp::Sum).unwrap();
            pair.barrier().unwrap();
        }
        comm.close().unwrap();
        data
    });
    assert_eq!(sums, [[3, 3]; 3]);
}

/// The call before the mismatch stays `Ok`, and no call after it runs, also on a rank that only
/// sends.
#[test]
fn what_was_ok_stays_ok_and_the_communicator_is_failed_from_the_next_call() {
    let oks = Local::new(3).timeout(TIMEOUT).run(|mut comm| {
        let rank = comm.rank();
        let mut data = [rank as u64];
        comm.all_reduce(&mut data, ReduceOp::Sum).unwrap();
        assert_eq!(data, [3]);
        // Rank 0 sends its parts without waiting for a peer. The calls of the others do not match.
        let start = Instant::now();
        let error = loop {
            let root = if rank == 2 { 1 } else { 0 };
            match comm.broadcast(&mut [1u8; 100], root) {
                Ok(()) => assert!(start.elapsed() < SOON, "rank {rank} goes on sending"),
                Err(error) => break error,
            }
        };
        assert!(matches!(&error, Error::Mismatch { cause, .. } if cause.sequence == 1), "{error}");
        for later in [comm.barrier(), comm.send(&[1u8], 0, 0), comm.duplicate().map(drop)] {
            assert!(matches!(later, Err(Error::Failed { .. })), "{later:?}");
        }
        comm.close().is_ok()
    });
    assert_eq!(oks.len(), 3);
}

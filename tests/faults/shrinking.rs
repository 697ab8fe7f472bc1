//! Processes and threads die, leave, stop or abort. The other ranks shrink the communicator,
//! continue, and compute correct sums.
//!
//! `MAYPOLE_TEST_ROUNDS` sets how many worlds with random deaths are made.

use crate::report::{Member, die_if_told, linked, random, rounds};
use crate::skip;
use crate::spawn::{Ended, World, await_file, say};
use maypole::{Communicator, Error, Local};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Worlds with random deaths.
const ROUNDS: u64 = 3;
/// How long one of them may take on a busy machine.
const ROUND_LIMIT: Duration = Duration::from_secs(60);
/// Calls that the last survivors make.
const CALLS: usize = 20;

/// Sums until at most `last` ranks exist, and then [`CALLS`] times more.
fn work(survivor: &mut Member, last: usize) {
    let mut calls = 0;
    while calls < CALLS {
        let len = [1, 100, 30_000][calls % 3];
        match survivor.sum(len) {
            Ok(()) if survivor.ids.len() <= last => calls += 1,
            Ok(()) => {}
            Err(_) => survivor.go_on(),
        }
    }
}

pub(crate) fn rank_process(role: &str) {
    let mut comm = Communicator::from_env().unwrap();
    // On a busy machine, a rank may die at a random moment before all others have ended the barrier.
    let met = comm.barrier();
    assert!(met.is_ok() || role == "go on", "{met:?}");
    say("ready", "now");
    die_if_told();
    match role {
        "go on" => go_on(comm),
        "group" => groups(comm),
        "patience" => patience(comm),
        "abort" => abort(comm),
        "leave" => leave(comm),
        other => panic!("there is no role {other}"),
    }
}

fn go_on(comm: Communicator) {
    let last = std::env::var("TEST_SURVIVORS").unwrap().parse().unwrap();
    let mut survivor = Member::new(comm);
    work(&mut survivor, last);
    assert_eq!(services(), 1, "worlds that this process was in are left");
    say("ids", format!("{:?}", survivor.ids));
    survivor.comm.close().unwrap();
}

/// How many threads of this process serve a world. One of them serves each world with other ranks.
fn services() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default()
    };
    let serves = |name: &String| {
        let rank = name.trim().strip_prefix("maypole-");
        rank.is_some_and(|rank| rank.parse::<usize>().is_ok())
    };
    tasks.map(name).filter(serves).count()
}

/// The numbers that all survivors have reported, equal on all of them.
#[track_caller]
fn survivors(ended: &[Ended], victims: &[usize]) -> String {
    let mut reports: Vec<&str> = Vec::new();
    for rank in (0..ended.len()).filter(|rank| !victims.contains(rank)) {
        assert_eq!(ended[rank].code, Some(0), "rank {rank}: {ended:#?}");
        reports.extend(ended[rank].said("ids"));
    }
    assert_eq!(reports.len(), ended.len() - victims.len(), "{ended:#?}");
    reports.dedup();
    assert_eq!(reports.len(), 1, "{ended:#?}");
    reports[0].to_owned()
}

/// Six ranks, of which one to four die at random moments, some of them while others agree.
#[test]
fn survivors_of_random_deaths_compute_the_right_sums() {
    for round in 0..rounds(ROUNDS) {
        let begun = Instant::now();
        let mut order: Vec<usize> = (0..6).collect();
        order.sort_by_cached_key(|_| random(1 << 60));
        let victims = &order[..1 + random(4) as usize];
        let first = random(20_000);
        // Close together, so that ranks die while others agree, or one after the other.
        let spread = if round % 2 == 0 { 5000 } else { 150_000 };
        let mut world = World::new("go on", 6).set("TEST_SURVIVORS", 6 - victims.len());
        world = linked(world, round);
        for victim in victims {
            world = world.set_of(*victim, "TEST_DEATH", first + random(spread));
        }
        let ended = world.start().end();
        let mut alive: Vec<usize> = order[victims.len()..].to_vec();
        alive.sort_unstable();
        assert_eq!(survivors(&ended, victims), format!("{alive:?}"), "round {round}");
        assert!(begun.elapsed() < ROUND_LIMIT, "round {round} took {:?}", begun.elapsed());
    }
}

/// A rank leaves in order, without a failure before.
#[test]
fn a_rank_that_has_left_is_not_waited_for() {
    for leaver in [0, 1] {
        let worlds = Local::new(3).run(|mut comm| {
            if comm.rank() == leaver {
                return Vec::new();
            }
            comm.barrier().unwrap_err();
            let mut survivor = Member::new(comm);
            survivor.go_on();
            survivor.sum(1000).unwrap();
            survivor.ids
        });
        let alive: Vec<u64> = (0..3).filter(|rank| *rank != leaver as u64).collect();
        for (rank, ids) in worlds.into_iter().enumerate() {
            assert_eq!(ids, if rank == leaver { Vec::new() } else { alive.clone() });
        }
    }
}

#[test]
fn threads_go_on_without_threads_that_panic() {
    for round in 0..rounds(2 * ROUNDS) {
        let victims: Vec<usize> = (0..5).filter(|_| random(3) == 0).collect();
        let last = 5 - victims.len();
        let before = random(200) as usize;
        let ids = Local::new(5).hosts(&[0, 0, 1, 1, 1]).run(|comm| {
            let rank = comm.rank();
            let mut survivor = Member::new(comm);
            if victims.contains(&rank) {
                let panicked = catch_unwind(AssertUnwindSafe(move || {
                    (0..before + 10 * rank).try_for_each(|_| survivor.sum(10)).ok();
                    std::panic::resume_unwind(Box::new("as planned"));
                }));
                assert!(panicked.is_err());
                return None;
            }
            work(&mut survivor, last);
            Some(survivor.ids)
        });
        let alive = || (0..5).filter(|rank| !victims.contains(rank)).map(|rank| rank as u64);
        for ids in ids.into_iter().flatten() {
            assert_eq!(ids, alive().collect::<Vec<_>>(), "round {round}");
        }
    }
}

#[test]
fn all_ranks_go_on_if_none_has_failed() {
    Communicator::run_local(3, |mut comm| {
        let mut next = comm.shrink().unwrap();
        assert_eq!((next.rank(), next.world()), (comm.rank(), 3));
        next.barrier().unwrap();
        comm.barrier().unwrap();
    });
}

/// Even and odd ranks are groups. Rank 2 dies, and each group continues by itself.
fn groups(mut world: Communicator) {
    let me = world.rank();
    let comm = world.split(Some(me as u64 % 2), -(me as i64)).unwrap().unwrap();
    drop(world);
    let mut survivor = Member::new(comm);
    let last = survivor.comm.world() - usize::from(me.is_multiple_of(2));
    survivor.id = me as u64;
    survivor.ids = (0..6).rev().filter(|id| id % 2 == me as u64 % 2).collect();
    while survivor.sum(100).is_ok() {}
    // The group keeps its order, which is not that of the world.
    survivor.comm = survivor.comm.shrink().unwrap();
    survivor.ids.retain(|id| *id != 2);
    assert_eq!(survivor.comm.world(), last);
    assert_eq!(survivor.ids[survivor.comm.rank()], me as u64);
    (0..CALLS).for_each(|_| survivor.sum(1000).unwrap());
    // A survivor splits and continues as any communicator does.
    let rank = survivor.comm.rank();
    let mut half = survivor.comm.split(Some(rank as u64), 0).unwrap().unwrap();
    half.barrier().unwrap();
    say("ids", "done");
}

#[test]
fn groups_go_on_each_by_itself() {
    for way in ["shm", "tcp"] {
        let world = World::new("group", 6).set("MAYPOLE_TRANSPORT", way);
        let ended = world.set_of(2, "TEST_DEATH", 50_000).start().end();
        assert_eq!(survivors(&ended, &[2]), "done");
    }
}

/// All ranks are in two groups. One rank leaves the first and stays in the second, which shows the
/// others that it has left, before they continue.
fn leave(mut world: Communicator) {
    let variable = |name: &str| std::env::var(name).unwrap();
    let leaver: u64 = variable("TEST_LEAVER").parse().unwrap();
    let group = world.duplicate().unwrap();
    let (first, mut second) = match variable("TEST_LEAVES").as_str() {
        "world" => (world, group),
        _ => (group, world),
    };
    let mut survivor = Some(Member::new(first)).filter(|it| it.id != leaver);
    second.barrier().unwrap();
    if let Some(survivor) = &mut survivor {
        survivor.comm.set_timeout(Duration::from_secs(20));
        survivor.comm = survivor.comm.shrink().unwrap();
        survivor.ids.retain(|id| *id != leaver);
        survivor.sum(1000).unwrap();
    }
    // The process of the rank that has left lives until all others have gone on.
    second.barrier().unwrap();
    say("ids", "done");
}

/// If the leader of an agreement has left the group, the others query it; the leader queries a rank
/// that does not lead.
#[test]
fn a_process_that_has_left_a_group_says_so_when_others_go_on_from_it() {
    for (left, leaver) in [("group", 0), ("group", 1), ("world", 0), ("world", 1)] {
        let world = World::new("leave", 3).set("TEST_LEAVER", leaver);
        let ended = world.set("TEST_LEAVES", left).start().end();
        assert_eq!(survivors(&ended, &[]), "done", "rank {leaver} left the {left}");
    }
}

/// Calls until the stopped rank makes a call fail. Then shrinks repeatedly, until all ranks
/// participate.
fn patience(comm: Communicator) {
    let mut survivor = Member::new(comm);
    while survivor.sum(100).is_ok() {}
    // Rank 0 leads, and has a longer timeout than the others. It must still abort before they do,
    // or they would name rank 0 as the missing rank.
    let patience = if survivor.comm.rank() == 0 { 20 } else { 2 };
    survivor.comm.set_timeout(Duration::from_secs(patience));
    loop {
        match survivor.comm.shrink() {
            Ok(next) => {
                survivor.comm = next;
                break;
            }
            Err(error) => {
                assert!(matches!(error, Error::Connect { .. }), "{error}");
                say("missing", error);
            }
        }
    }
    survivor.comm.set_timeout(Duration::from_secs(60));
    survivor.ids.truncate(survivor.comm.world());
    survivor.sum(100).unwrap();
    say("ids", format!("{:?}", survivor.ids));
}

#[test]
fn a_stopped_rank_is_waited_for_and_named() {
    for victim in skip::every_nth(2, [0, 2]) {
        let world = World::new("patience", 3).set("MAYPOLE_TIMEOUT", 2);
        let mut running = world.start();
        running.wait_for("ready", &[0, 1, 2]);
        running.signal(victim, "STOP");
        let others: Vec<usize> = (0..3).filter(|rank| *rank != victim).collect();
        running.wait_for("missing", &others);
        running.signal(victim, "CONT");
        let ended = running.end();
        assert_eq!(survivors(&ended, &[]), "[0, 1, 2]");
        for rank in others {
            let missing = ended[rank].said("missing")[0];
            let text = format!("did not end in time; missing: rank {victim}");
            assert!(missing.ends_with(&text), "rank {rank}: {missing}");
        }
    }
}

/// All ranks call. Another thread of rank 2 aborts once the test has made a file.
fn abort(comm: Communicator) {
    let handle = comm.abort_handle();
    if comm.rank() == 2 {
        std::thread::spawn(move || {
            await_file("TEST_FILE");
            let begun = Instant::now();
            handle.abort("enough");
            assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
        });
    }
    let mut survivor = Member::new(comm);
    let error = loop {
        if let Err(error) = survivor.sum(100) {
            break error;
        }
    };
    say("error", &error);
    assert_eq!((error.culprit(), error.is_retryable()), (Some(2), false), "{error}");
    survivor.go_on();
    work(&mut survivor, 3);
    say("ids", format!("{:?}", survivor.ids));
}

/// All ranks wait for rank 0, which is stopped and cannot pass anything on.
#[test]
fn an_abort_frees_all_waiters_even_without_rank_0() {
    for way in ["shm", "tcp"] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("abort");
        let world = World::new("abort", 4).set("MAYPOLE_TRANSPORT", way);
        let mut running = world.set("TEST_FILE", file.display()).start();
        running.wait_for("ready", &[0, 1, 2, 3]);
        running.signal(0, "STOP");
        std::fs::write(&file, "now").unwrap();
        let begun = Instant::now();
        running.wait_for("error", &[1, 2, 3]);
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
        // The others are continuing; now they learn that rank 0 is gone.
        running.signal(0, "KILL");
        let ended = running.end();
        assert_eq!(survivors(&ended, &[0]), "[1, 2, 3]");
        for survivor in &ended[1..] {
            let error = survivor.said("error")[0];
            assert!(error.ends_with("because rank 2 aborted: enough"), "{error}");
        }
    }
}

#[test]
fn an_abort_after_the_end_does_nothing() {
    let comm = Communicator::local(1).remove(0);
    let handle = comm.abort_handle();
    drop(comm);
    handle.abort("too late");
}

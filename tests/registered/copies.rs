//! Large calls that only move bytes copy them from private memory to private memory. They have the
//! results of other calls, and never wrong ones.

use super::calls::run_cases;
use super::common::SeededRng;
use super::skip;
use crate::spawn::{World, say};
use maypole::schedule::collective::Collective;
use maypole::{CallPath, Communicator, Local};
use std::process::{Command, Stdio};
use std::time::Duration;

const ONE_WAY: [&str; 5] = ["broadcast", "gather", "all_gather", "scatter", "all_to_all"];

/// A world of processes in which every call copies that can.
fn world(role: &str, ranks: usize) -> World {
    World::new(role, ranks).set("MAYPOLE_WAY", "copied")
}

#[test]
fn calls_have_the_bits_of_the_oracle() {
    for world in [2].into_iter().chain(skip::every_nth(3, [3, 4, 7])) {
        let all = Local::new(world).way("copied");
        let covered =
            all.run(|mut comm| run_cases(&mut comm, 77 + world as u64, None, |since| since.copied));
        assert!(covered.iter().all(|its| *its == covered[0]), "ranks decide alike: {covered:?}");
        for collective in Collective::all(0) {
            let (copied, _) = covered[0][collective.name()];
            let is_one_way = ONE_WAY.contains(&collective.name());
            assert_eq!(copied > 0, is_one_way, "{world} ranks: {:?}", covered[0]);
        }
    }
}

/// Ranks keep few programs, and each keeps another number of them, so that they prepare calls anew at different
/// times.
#[test]
fn ranks_explore_in_the_same_calls_whatever_programs_they_keep() {
    crate::skip::takes_turns!(2);
    const LONGEST: usize = 256 << 10;
    let ranks = Local::new(3).run(|mut comm| {
        let me = comm.rank();
        comm.set_program_memory([1, 30_000, 1 << 20][me]);
        let mut rng = SeededRng::new(5);
        let (mut paths, mut all) = (Vec::new(), vec![0u8; 3 * LONGEST]);
        for nth in 0..1500 {
            let len = if nth % 3 == 0 { LONGEST - 8 * rng.below(900) } else { LONGEST };
            let mine: Vec<u8> = (0..len).map(|at| (at * 7 + me + nth) as u8).collect();
            comm.all_gather((&mine[..], &mut all[..3 * len])).unwrap();
            let is_right = |rank: usize| {
                let at = (nth * 31) % len;
                all[rank * len + at] == (at * 7 + rank + nth) as u8
            };
            assert!((0..3).all(is_right), "call {nth}");
            paths.push(comm.last_call().unwrap().path);
        }
        (paths, comm.counters().copied)
    });
    let (paths, copied) = &ranks[0];
    assert!(ranks.iter().all(|its| its == &ranks[0]), "ranks take the same paths");
    assert!((4..=1496).contains(copied), "slots and copies were compared: {copied}");
    assert_eq!(*copied, paths.iter().filter(|path| **path == CallPath::Copied).count() as u64);
}

#[test]
fn registered_memory_of_some_ranks_is_copied_too() {
    Local::new(3).way("copied").run(|mut comm| {
        let mut registered = comm.alloc::<u32>(3000).unwrap();
        let block = vec![comm.rank() as u32; 1000];
        let mut private = vec![0; 3000];
        let all = if comm.rank() == 1 { &mut registered[..] } else { &mut private[..] };
        comm.all_gather((&block, &mut *all)).unwrap();
        assert!(all.iter().enumerate().all(|(at, it)| *it == (at / 1000) as u32));
        assert_eq!(comm.last_call().unwrap().path, CallPath::Copied);
    });
}

#[test]
fn copied_bytes_count_as_payload() {
    Local::new(3).way("copied").run(|mut comm| {
        let before = comm.counters();
        comm.all_gather((&[1u32; 1000], &mut [0; 3000])).unwrap();
        let after = comm.counters();
        assert_eq!((after.copied, after.payload() - before.payload()), (1, 8000));
    });
}

#[test]
fn short_calls_and_reductions_do_not_ask() {
    Communicator::run_local(2, |mut comm| {
        comm.broadcast(&mut [1u8; 4096], 0).unwrap();
        assert_eq!(comm.last_call().unwrap().path, CallPath::Staged);
        comm.all_reduce(&mut vec![1f32; 1 << 20], maypole::ReduceOp::Sum).unwrap();
        assert_eq!(comm.last_call().unwrap().path, CallPath::Staged);
    });
}

/// The role of a rank process of these tests.
pub(crate) fn rank_process(role: &str) {
    match role {
        "one dies while others copy" => copy_until_one_dies(),
        "one gives up while others copy" => copy_from_one_that_gives_up(),
        "one cannot be read" => copy_unless_refused(),
        _ => panic!("there is no role {role}"),
    }
}

/// Elements of a block: copying one takes about a millisecond.
const BLOCK: usize = 1 << 20;

fn block_of(rank: usize, round: u32) -> Vec<u32> {
    (0..BLOCK as u32).map(|at| at ^ (round << 8) ^ rank as u32).collect()
}

/// All ranks gather from all, until rank 1 kills itself at some moment of a call.
fn copy_until_one_dies() {
    let mut comm = Communicator::from_env().unwrap();
    let rank = comm.rank();
    let delay: u64 = std::env::var("TEST_DELAY").unwrap().parse().unwrap();
    let mut all = vec![0; BLOCK * comm.world()];
    comm.all_gather((&block_of(rank, 0), &mut all)).unwrap();
    say("path", comm.last_call().unwrap().path.name());
    if rank == 1 {
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(delay));
            super::failures::end_as_killed()
        });
    }
    for round in 1.. {
        all.fill(0);
        let ended = comm.all_gather((&block_of(rank, round), &mut all));
        if let Err(error) = ended {
            say("culprit", format!("{:?}", error.culprit()));
            break;
        }
        let mut blocks = all.chunks(BLOCK).enumerate();
        assert!(blocks.all(|(from, it)| it == block_of(from, round)), "a wrong block is Ok");
    }
    let mut survivors = comm.shrink().unwrap();
    let mine = survivors.rank();
    let all = &mut all[..BLOCK * survivors.world()];
    survivors.all_gather((&block_of(mine, 1), &mut *all)).unwrap();
    let right = all.chunks(BLOCK).enumerate().all(|(from, it)| it == block_of(from, 1));
    say("right", format!("{right} {}", survivors.last_call().unwrap().path.name()));
}

#[test]
fn a_rank_that_is_killed_is_named_and_nothing_wrong_is_ok() {
    for delay in [0, 3_000, 10_000] {
        let world = world("one dies while others copy", 3);
        let ended = world.set("TEST_DELAY", delay).start().end();
        assert_eq!(ended[1].code, None, "rank 1 was killed: {ended:?}");
        for rank in [0, 2] {
            assert_eq!(ended[rank].said("path"), ["copied"], "{ended:?}");
            assert_eq!(ended[rank].said("culprit"), ["Some(1)"], "{ended:?}");
            assert_eq!(ended[rank].said("right"), ["true copied"], "{ended:?}");
        }
    }
}

/// Rank 0 stops rank 1 at some moment of a broadcast, aborts the call, writes to its buffer, and
/// continues rank 1. If rank 1's call succeeds, its result is rank 0's sent data.
fn copy_from_one_that_gives_up() {
    let mut comm = Communicator::from_env().unwrap();
    let delay: u64 = std::env::var("TEST_DELAY").unwrap().parse().unwrap();
    let mut x = vec![1u32; 16 * BLOCK];
    comm.broadcast(&mut x, 0).unwrap();
    say("path", comm.last_call().unwrap().path.name());
    let mut pid = [std::process::id() as i32];
    comm.broadcast(&mut pid, 1).unwrap();
    if comm.rank() == 1 {
        x.fill(0);
        let ended = comm.broadcast(&mut x, 0);
        assert!(ended.is_err() || x.iter().all(|it| *it == 5), "a wrong broadcast is Ok");
        say("ended", if ended.is_ok() { "right" } else { "failed" });
        return;
    }
    let signal = move |signal: &str| {
        let sent = Command::new("kill").args([signal, &pid[0].to_string()]).status();
        assert!(sent.unwrap().success(), "rank 1 exists");
    };
    x.fill(5);
    let stopper = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_micros(delay));
        signal("-STOP");
    });
    let ended = comm.within(Duration::from_millis(300)).broadcast(&mut x, 0);
    x.fill(77);
    stopper.join().unwrap();
    signal("-CONT");
    say("ended", if ended.is_ok() { "right" } else { "failed" });
}

#[test]
fn what_is_copied_late_is_right_or_an_error() {
    crate::skip::takes_turns!(2);
    for delay in [0, 2_000, 5_000, 9_000] {
        let world = world("one gives up while others copy", 2);
        let ended = world.set("TEST_DELAY", delay).start().end();
        for its in &ended {
            assert_eq!(its.said("path"), ["copied"], "{ended:?}");
            assert_eq!(its.said("ended").len(), 1, "{ended:?}");
        }
    }
}

/// Rank 1 is in another namespace of processes, so its process id means nothing to rank 0.
fn copy_unless_refused() {
    let mut comm = Communicator::from_env().unwrap();
    let mut all = vec![0; 2 * BLOCK];
    comm.all_gather((&block_of(comm.rank(), 3), &mut all)).unwrap();
    assert!(all[..BLOCK] == block_of(0, 3) && all[BLOCK..] == block_of(1, 3));
    say("path", comm.last_call().unwrap().path.name());
    let explained = comm.explain(Collective::AllGather, 8 * BLOCK).to_string();
    let line = explained.lines().find(|line| line.starts_with("copies of private memory"));
    say("explained", line.unwrap_or_default());
}

/// A command that starts a program in a namespace of process numbers of its own.
const NAMESPACE: [&str; 5] = ["unshare", "--pid", "--fork", "--kill-child", "--"];

#[test]
fn a_rank_that_cannot_be_read_keeps_calls_in_slots_and_explain_says_why() {
    let mut test = Command::new(NAMESPACE[0]);
    test.args(&NAMESPACE[1..]).arg("true").stderr(Stdio::null());
    if !test.status().is_ok_and(|status| status.success()) {
        return skip::skipped("no namespaces of process numbers here");
    }
    let world = world("one cannot be read", 2);
    let ended = world.by(1, &NAMESPACE).start().end();
    for its in &ended {
        assert_eq!(its.said("path"), ["staged"], "{ended:?}");
        let explained = its.said("explained").concat();
        let why = "never used, because rank 0 cannot read the memory of rank 1: ";
        assert!(explained.contains(why), "{explained}");
    }
}

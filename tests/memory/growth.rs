//! Nothing that a communicator keeps grows without bound: programs of ever new lengths, counts and
//! schedules, and groups that are made and dropped.
//!
//! Memory is measured from outside, by an allocator that counts live bytes.

use crate::counting::{LIVE, allocations};
use crate::spawn::{World, say};
use maypole::algorithms::Algorithm;
use maypole::schedule::collective::Collective;
use maypole::schedule::{Schedule, Step, input, output};
use maypole::tuner::Plan;
use maypole::{Communicator, Local, ReduceOp};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Blocks all other tests of this program, because tests count the bytes of the whole process. A
/// test that measures nothing takes it, too: its buffers would be counted by another one.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes. Far more than the sizes of lists and maps vary, and far less than any of these loops
/// would keep.
const SLACK: usize = 300_000;

/// Bytes that are allocated while all ranks are between two steps.
fn live(comm: &mut Communicator) -> usize {
    comm.barrier().unwrap();
    let live = LIVE.load(Ordering::Relaxed);
    comm.barrier().unwrap();
    live
}

/// Asserts that the last half of `steps` steps keeps no more memory than the first half did.
#[track_caller]
fn is_flat(local: &Local, steps: usize, step: impl Fn(&mut Communicator, usize) + Sync) {
    local.run(|mut comm| {
        (0..steps / 2).for_each(|number| step(&mut comm, number));
        let before = live(&mut comm);
        (steps / 2..steps).for_each(|number| step(&mut comm, number));
        let after = live(&mut comm);
        assert!(after < before + SLACK, "{before} bytes grew to {after}: {:?}", comm.programs());
    });
}

/// Two ranks joined by a board, and two joined by streams.
fn pairs() -> [Local; 2] {
    [Local::new(2), Local::new(2).hosts(&[0, 1])]
}

/// Reduces `data` by a plan that needs no prices, so that the tested code takes most of the time.
fn reduce(comm: &mut Communicator, data: &mut [f32]) {
    comm.set_plan(Some(Plan { algorithm: Algorithm::TwoShot, window: 32 << 10 }));
    comm.all_reduce(data, ReduceOp::Max).unwrap();
    comm.set_plan(None);
}

/// The number of lengths that a test goes through: enough to fill the budget several times, or
/// `TEST_LENGTHS`.
fn lengths() -> usize {
    std::env::var("TEST_LENGTHS").map_or(4000, |lengths| lengths.parse().unwrap())
}

/// Bytes of programs that a communicator may keep in these tests: fewer lengths than the default
/// fill them.
const BUDGET: usize = 1 << 20;

#[test]
fn a_new_length_every_step_keeps_no_more_memory() {
    let _alone = alone();
    for local in pairs() {
        let lengths = lengths();
        let data = Mutex::new(vec![vec![1.0f32; lengths]; 2]);
        is_flat(&local, lengths, |comm, number| {
            if number == 0 {
                comm.set_program_memory(BUDGET);
            }
            let mut mine = std::mem::take(&mut data.lock().unwrap()[comm.rank()]);
            reduce(comm, &mut mine[..number + 1]);
            data.lock().unwrap()[comm.rank()] = mine;
            let programs = comm.programs();
            let is_full = number < 3000 || programs.kept > 200;
            assert!(programs.bytes <= BUDGET && is_full, "{programs:?}");
            assert_eq!(programs.evicted, programs.lowered - programs.kept as u64);
        });
    }
}

/// The bytes that a program reports are those that the allocator counts, within a factor of two.
#[test]
fn a_program_takes_the_bytes_that_are_counted() {
    let _alone = alone();
    for local in pairs() {
        local.run(|mut comm| {
            let mut data = vec![1.0f32; 1000];
            reduce(&mut comm, &mut data);
            let (programs, before) = (comm.programs(), live(&mut comm));
            for length in 1..1000 {
                reduce(&mut comm, &mut data[..length]);
            }
            let (more, after) = (comm.programs(), live(&mut comm));
            assert_eq!(more.lowered - programs.lowered, 1000, "the barrier is one of them");
            let counted = 2 * (more.bytes - programs.bytes);
            let grown = after - before;
            assert!(counted < 2 * grown && grown < 2 * counted, "{counted} and {grown}");
            assert!(counted / 2000 < 2100, "{} bytes a program", counted / 2000);
        });
    }
}

/// The program of a recently used length is still kept: it is not lowered again, and the same
/// length twice in a row allocates nothing.
#[test]
fn the_second_use_of_a_recent_length_only_runs() {
    let _alone = alone();
    for local in pairs() {
        local.run(|mut comm| {
            comm.set_program_memory(BUDGET);
            let mut data = vec![1.0f32; 3000];
            for length in 1..3000 {
                reduce(&mut comm, &mut data[..length]);
            }
            let full = comm.programs();
            assert!(full.evicted > 1000, "{full:?}");
            for _ in 0..3 {
                for length in 2900..3000 {
                    reduce(&mut comm, &mut data[..length]);
                }
            }
            assert_eq!(comm.programs(), full);
            for _ in 0..3 {
                comm.barrier().unwrap();
            }
            reduce(&mut comm, &mut data[..2950]);
            reduce(&mut comm, &mut data[..2950]);
            let before = allocations();
            for _ in 0..100 {
                reduce(&mut comm, &mut data[..2950]);
            }
            assert_eq!(allocations(), before);
            // Both ranks are done with counting before either continues.
            reduce(&mut comm, &mut data[..2950]);
            reduce(&mut comm, &mut data[..1]);
            assert_eq!(comm.programs().lowered, full.lowered + 2, "the barrier, and the first");
        });
    }
}

#[test]
fn new_counts_every_step_keep_no_more_memory() {
    let _alone = alone();
    for local in pairs() {
        is_flat(&local, 1500, |comm, number| {
            if number == 0 {
                comm.set_program_memory(200_000);
                comm.set_algorithm(None);
            }
            let rank = comm.rank();
            let counts = [number, number / 2];
            let mine = vec![rank as u16; counts[rank]];
            let mut all = vec![7; number + number / 2];
            comm.all_gather((&mine, &mut all, &counts)).unwrap();
            assert!(all[..number].iter().all(|it| *it == 0));
            assert!(all[number..].iter().all(|it| *it == 1));
            let (sends, mut receives) = (vec![rank as u8; 2 * number], vec![7; 2 * number]);
            comm.all_to_all((&sends, &[number; 2], &mut receives, &[number; 2])).unwrap();
            assert!(receives[number..].iter().all(|it| *it == 1));
        });
    }
}

/// Two ranks swap ten chunks in an order that `number` chooses, and add the received ones to their
/// own.
fn swap(number: usize) -> impl Fn(usize) -> Schedule {
    move |rank| {
        let other = 1 - rank;
        let mut chunks: Vec<usize> = (0..10).collect();
        let mut left = number;
        for at in 1..10 {
            chunks.swap(at, left % (at + 1));
            left /= at + 1;
        }
        let steps = chunks.into_iter().flat_map(|chunk| {
            [
                Step::Send { from: input(chunk), to: other },
                Step::Copy { from: input(chunk), into: output(chunk) },
                Step::RecvReduce { into: output(chunk), from: other },
            ]
        });
        Schedule::new(10, steps.collect())
    }
}

#[test]
fn new_schedules_every_step_keep_no_more_memory() {
    let _alone = alone();
    for local in pairs() {
        is_flat(&local, 2400, |comm, number| {
            if number == 0 {
                comm.set_program_memory(200_000);
            }
            let mut data = [comm.rank() as u32 + 1; 30];
            comm.run(swap(number), Collective::AllReduce, &mut data, ReduceOp::Sum).unwrap();
            assert_eq!(data, [3; 30]);
        });
    }
}

/// Splits a group off, uses every tenth, and drops it.
fn split_and_drop(comm: &mut Communicator, number: usize) {
    let mut group = comm.split(Some(0), 0).unwrap().unwrap();
    if number.is_multiple_of(10) {
        // Groups that have links and boards, and messages that were not received.
        let mut sum = [1u32; 5];
        group.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
        assert_eq!(sum, [2; 5]);
        let other = 1 - group.rank();
        group.send(&[7u8; 10], other, 3).unwrap();
        if number.is_multiple_of(20) {
            group.recv(&mut [0u8; 10], other, 3).unwrap();
        }
        // No rank leaves while the other still sends.
        group.barrier().unwrap();
    }
    let since = Instant::now();
    drop(group);
    assert!(since.elapsed() < LEAVES_WITHIN, "left after {:?}", since.elapsed());
}

/// Leaving a group takes milliseconds, also if messages were not received. A rank that waits for a
/// peer that is gone already waits for 5 s.
const LEAVES_WITHIN: Duration = Duration::from_secs(3);

/// The number of groups that a test makes: 2,000, or `TEST_GROUPS`.
fn groups() -> usize {
    std::env::var("TEST_GROUPS").map_or(2000, |groups| groups.parse().unwrap())
}

#[test]
fn groups_that_are_split_off_and_dropped_leave_nothing() {
    let _alone = alone();
    for local in pairs() {
        is_flat(&local, 5 * groups(), split_and_drop);
    }
}

#[test]
fn groups_of_processes_that_are_split_off_and_dropped_leave_nothing() {
    let _alone = alone();
    for transport in ["shm", "tcp"] {
        let world = World::new("groups", 2).set("MAYPOLE_TRANSPORT", transport);
        for rank in world.start().succeed() {
            let memory = rank.said("memory");
            let memory: Vec<usize> = memory.iter().map(|bytes| bytes.parse().unwrap()).collect();
            assert!(memory[1] < memory[0] + SLACK, "{transport}: {memory:?} bytes are live");
            let files = rank.said("descriptors");
            let files: Vec<usize> = files.iter().map(|count| count.parse().unwrap()).collect();
            assert!(files[1] <= files[0] + KEPT_OPEN, "{transport}: {files:?} descriptors");
            println!("{transport}: {memory:?} bytes are live, {files:?} descriptors");
        }
    }
}

/// The most connections that came too late for their group and are kept open until others take
/// their place.
const KEPT_OPEN: usize = 16;

fn each_group(comm: &mut Communicator) {
    // A group of processes is agreed on by the control plane, which takes milliseconds.
    let groups = groups() / 10;
    for number in 0..=groups {
        split_and_drop(comm, number);
        if number == groups / 2 || number == groups {
            comm.barrier().unwrap();
            say("memory", LIVE.load(Ordering::Relaxed));
            say("descriptors", std::fs::read_dir("/proc/self/fd").unwrap().count());
            comm.barrier().unwrap();
        }
    }
}

pub(crate) fn rank_process(_: &str) {
    each_group(&mut Communicator::from_env().unwrap());
}

//! The roles of the rank processes of these tests.

use crate::case::{Case, Lengths, cases};
use crate::common::SeededRng;
use crate::fake_verbs::Controls;
use crate::spawn::say;
use maypole::schedule::collective::Collective;
use maypole::{Communicator, ReduceOp};
use maypole_tests::program::Program;
use std::process::Command;
use std::time::{Duration, Instant};

/// Bytes of the calls that are compared: less and more than a line, a packet,
/// the longest write, and the ring of a connection.
const SIZES: [usize; 6] = [1, 100, 4096, 64 << 10, 600_000, 8 << 20];
/// The index of the largest size. Only every third collective uses it, because the virtual machine
/// is slow.
const LARGEST: usize = SIZES.len() - 1;

/// A rank process.
pub(crate) fn rank_process(role: &str) {
    let comm = match Communicator::from_env() {
        Ok(comm) => comm,
        Err(error) => return say("refused", error),
    };
    match role {
        "join" => say("summary", comm.summary().replace('\n', " ")),
        "compare" => compare(comm),
        "messages" => messages(comm),
        "endless" => endless(comm),
        "count" => count(comm),
        "chosen" => chosen(comm),
        "flap" => flap(comm),
        "down" => down(comm),
        other => panic!("no role is called {other}"),
    }
}

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).map_or(otherwise, |value| value.parse().unwrap())
}

/// Runs every collective over the transport of the world, with the bits of the oracle.
fn compare(mut comm: Communicator) {
    let world = comm.world();
    let full = std::env::var("TEST_FULL").is_ok();
    let shift = number("TEST_SHIFT", 0) as usize;
    let mut rng = SeededRng::new(number("TEST_SEED", 7) * 1000 + world as u64);
    for (nth, collective) in Collective::all(0).into_iter().enumerate() {
        for (at, bytes) in SIZES.into_iter().enumerate() {
            // Six worlds with shifts from 0 to 5 call every collective with every size once.
            let is_due = at == (nth + shift) % SIZES.len() && (at != LARGEST || nth % 3 == 0);
            if full || is_due {
                let mut drawn = std::iter::repeat_with(|| rng.sample(&cases(world)));
                let is_of = |case: &Case| case.collective.name() == collective.name();
                let mut case = drawn.find(is_of).expect("every collective is drawn");
                let share = bytes.div_ceil(world * case.kind.size());
                if collective != Collective::Barrier {
                    case.lengths = Lengths::Even(share);
                }
                case.run(&mut comm);
            }
        }
    }
    for _ in 0..number("TEST_CASES", 4) {
        rng.sample(&cases(world)).run(&mut comm);
    }
    comm.close().unwrap();
}

/// Random messages of all sizes among all ranks.
fn messages(mut comm: Communicator) {
    let (rank, mut rng) = (comm.rank(), SeededRng::new(3));
    for _ in 0..8 {
        let program = Program::draw_up_to(40_000, comm.world(), &mut rng);
        program.run_on(&mut comm).unwrap_or_else(|failure| panic!("{failure:?} in {program:?}"));
    }
    comm.set_algorithm(None);
    // A short message leaves though its receiver is not there yet.
    if rank == 0 {
        comm.send(&[5u8; 10], 1, 3).unwrap();
    }
    comm.barrier().unwrap();
    if rank == 1 {
        let mut early = [0u8; 10];
        comm.recv(&mut early, 0, 3).unwrap();
        assert_eq!(early, [5; 10]);
    }
    comm.close().unwrap();
}

/// Calls until a call fails, and reports how.
fn endless(mut comm: Communicator) {
    let mut sums = vec![1u8; number("TEST_BYTES", 5000) as usize];
    let mut calls = 0;
    let error = loop {
        let done = comm.all_reduce(&mut sums, ReduceOp::Max).and_then(|()| comm.barrier());
        if let Err(error) = done {
            break error;
        }
        calls += 1;
        if calls == 2 {
            say("ready", "now");
        }
    };
    say("error", &error);
    say("culprit", error.culprit().map_or("none".to_owned(), |rank| rank.to_string()));
    comm.close().unwrap();
}

/// The kernel's objects of this process: queue pairs, completion queues, registrations.
fn resources() -> [usize; 3] {
    ["qp", "cq", "mr"].map(|kind| {
        // The kernel shows the id of the thread that made a resource.
        let threads = std::fs::read_dir("/proc/self/task").unwrap();
        let number = |thread: std::io::Result<std::fs::DirEntry>| thread.unwrap().file_name();
        let threads: Vec<_> = threads.map(|thread| number(thread).into_string().unwrap()).collect();
        let of = |line: &&str| {
            let (_, rest) = line.split_once(" pid ")?;
            Some(rest.split(' ').next()?.to_owned())
        };
        let shown = shown(kind);
        let made_by = shown.lines().filter_map(|line| of(&line));
        made_by.filter(|thread| threads.contains(thread)).count()
    })
}

fn shown(kind: &str) -> String {
    let shown = Command::new("rdma").args(["resource", "show", kind]).output().unwrap();
    assert!(shown.status.success(), "{shown:?}");
    String::from_utf8(shown.stdout).unwrap()
}

/// Makes 1,000 operations on short-lived groups, and counts the kernel's objects of this process
/// after each group.
fn count(mut comm: Communicator) {
    // Connects the world itself. Its stream stays.
    comm.barrier().unwrap();
    let mut operations = 0;
    let mut before = None;
    while operations < 1000 {
        let mut group = comm.duplicate().unwrap();
        for _ in 0..50 {
            let mut sum = [1u64; 64];
            group.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
            operations += 1;
        }
        let within = resources();
        assert!(within.iter().all(|count| *count > 0), "{within:?}: {:?}", shown("qp"));
        group.close().unwrap();
        comm.barrier().unwrap();
        let after = resources();
        assert!(after.iter().zip(within).all(|(after, within)| *after < within));
        assert_eq!(*before.get_or_insert(after), after, "after {operations} operations");
    }
    say("counted", operations);
    comm.close().unwrap();
}

/// The devices of the fake library that this process has.
fn fake_devices() -> Vec<String> {
    let text = std::env::var("FAKE_VERBS_DEVICES").unwrap();
    text.split(';')
        .filter_map(|device| Some(device.split_whitespace().next()?.to_owned()))
        .collect()
}

/// Prints the devices of a call.
fn chosen(mut comm: Communicator) {
    let controls = Controls::here();
    let sent = || -> Vec<_> {
        fake_devices().iter().map(|device| controls.counter(device, "sends")).collect()
    };
    let before = sent();
    let mut sums = vec![1u32; 1000];
    comm.all_reduce(&mut sums, ReduceOp::Sum).unwrap();
    assert_eq!(sums, vec![comm.world() as u32; 1000]);
    let after = sent();
    let used = fake_devices().into_iter().zip(before.iter().zip(after));
    used.filter(|(_, (before, after))| after > before).for_each(|(device, _)| say("uses", device));
    comm.close().unwrap();
}

/// Calls while the port of rank 1 is down for a second.
fn flap(mut comm: Communicator) {
    let (rank, world) = (comm.rank(), comm.world());
    let mut call = |number: u64| {
        let mut sums: Vec<u64> = (0..20_000).map(|at| at * number + rank as u64).collect();
        comm.all_reduce(&mut sums, ReduceOp::Sum).unwrap();
        let ranks = world as u64;
        let expected = (0..20_000).map(|at| at * number * ranks + ranks * (ranks - 1) / 2);
        assert!(sums.into_iter().eq(expected), "call {number}");
    };
    call(1);
    std::thread::scope(|threads| {
        if rank == 1 {
            let device = fake_devices().remove(0);
            Controls::here().set(&device, "state", "1");
            threads.spawn(move || {
                std::thread::sleep(Duration::from_secs(1));
                Controls::here().set(&device, "state", "4");
            });
        }
        let begun = Instant::now();
        (2..20).for_each(&mut call);
        say("took", begun.elapsed().as_millis());
    });
    comm.close().unwrap();
}

/// Calls without end, while the port of rank 1 goes down for good.
fn down(comm: Communicator) {
    if comm.rank() == 1 {
        let device = fake_devices().remove(0);
        Controls::here().set(&device, "state", "1");
    }
    endless(comm);
}

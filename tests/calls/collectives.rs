//! Every collective over real processes and threads, compared bit by bit with a naive computation.
//!
//! `TEST_SEED` chooses other random cases. `TEST_CASES` sets the number of cases for each world.

use crate::case::cases as random_cases;
use crate::common::SeededRng;
use crate::random_cases::variable;
use crate::spawn::{World, as_each_rank};
use maypole::{Communicator, Local, Transport};
use std::time::Duration;

fn seed() -> u64 {
    variable("TEST_SEED").unwrap_or(20)
}

fn cases(default: u64) -> u64 {
    variable("TEST_CASES").unwrap_or(default)
}

/// Runs `count` cases on each of `ways`, communicators of one world over different transports, and
/// compares the results that ranks must have equal.
fn all_cases(seed: u64, count: u64, ways: &mut [(&str, Communicator)]) {
    let world = ways[0].1.world();
    let mut rng = SeededRng::new(seed.wrapping_mul(1000) + world as u64);
    let mut equal = Vec::new();
    for nth in 0..count {
        let case = rng.sample(&random_cases(world)).in_any_form(&mut rng);
        for (name, comm) in &mut *ways {
            let run = std::panic::AssertUnwindSafe(|| case.run(comm));
            match std::panic::catch_unwind(run) {
                Ok(hash) => equal.push(hash),
                Err(_) => panic!("case {nth} over {name}, TEST_SEED={seed}"),
            }
        }
    }
    let mut everybodys = vec![0; world * equal.len()];
    let comm = &mut ways[0].1;
    comm.set_algorithm(None);
    comm.all_gather((&equal, &mut everybodys)).unwrap();
    for (rank, theirs) in everybodys.chunks(equal.len().max(1)).enumerate() {
        assert_eq!(theirs, equal, "rank {rank} has other bits, TEST_SEED={seed}");
    }
}

pub(crate) fn rank_process(role: &str) {
    let count = cases(0);
    match role {
        "shm and tcp" => {
            let mut comm = Communicator::from_env().unwrap();
            let (shm, tcp) =
                (comm.over(Transport::Shm).unwrap(), comm.over(Transport::Tcp).unwrap());
            all_cases(seed(), count, &mut [("shm", shm), ("tcp", tcp)]);
        }
        "threads" => as_each_rank(|mut comm| {
            let tcp = comm.over(Transport::Tcp).unwrap();
            all_cases(seed(), count, &mut [("auto", comm), ("tcp", tcp)]);
        }),
        other => panic!("there is no role {other}"),
    }
}

#[test]
fn processes_with_encrypted_links() {
    for world in [2, 4, 5] {
        let world = World::new("shm and tcp", world).set("MAYPOLE_ENCRYPT", 1);
        world.set("TEST_CASES", cases(100)).start().succeed();
    }
}

#[test]
fn threads_and_processes_in_one_world() {
    let world =
        World::new("threads", 5).processes(&[&[0, 1], &[2], &[3, 4]]).hosts(&[0, 0, 0, 1, 1]);
    world.set("TEST_CASES", cases(120)).start().succeed();
}

#[test]
fn threads_alone() {
    for (hosts, capacity) in
        [(&[0][..], 1), (&[0; 3], 1), (&[0; 13], 1), (&[0, 1, 2], 1 << 16), (&[0, 1, 1, 0], 4099)]
    {
        let local = Local::new(hosts.len())
            .hosts(hosts)
            .stream_capacity(capacity)
            .timeout(Duration::from_secs(60));
        local.run(|comm| all_cases(seed(), cases(120), &mut [("local", comm)]));
    }
}

/// An algorithm may leave out credits for slots that the next algorithm needs: their rings of slots
/// have different lengths, and their publications have different readers.
#[test]
fn algorithms_take_turns_on_one_board() {
    use maypole::{ReduceOp::Sum, algorithms::Algorithm::*};
    for world in 2..=5 {
        Local::new(world).timeout(Duration::from_secs(60)).run(|mut comm| {
            let mut rng = SeededRng::new(seed());
            for call in 0..400 {
                comm.set_algorithm(Some([OneShot, TwoShot, Tree, Ring][rng.below(4)]));
                let mut data = vec![call + comm.rank() as u64; [1, 100, 500, 3000][rng.below(4)]];
                comm.all_reduce(&mut data, Sum)
                    .unwrap_or_else(|error| panic!("call {call}: {error}"));
                let sum = world as u64 * call + (world * (world - 1) / 2) as u64;
                assert!(data.iter().all(|it| *it == sum), "call {call} of {world} ranks");
            }
        });
    }
}

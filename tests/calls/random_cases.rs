//! Thousands of random calls, and random programs of messages and requests, over real processes and threads,
//! compared bit by bit with a naive computation.
//!
//! Eight processes split into groups of 1 to 8 ranks, whose ranks are shuffled. Each group runs its
//! cases over shared memory and TCP in turns, or over both between pretended hosts. Smaller worlds
//! have encrypted links, or ranks that are threads. A case that fails prints the line that runs it
//! alone, such as `TEST_CASE="tcp 5 81985529216486895" cargo test --test calls`. `TEST_SEED` selects
//! other cases. `TEST_CASES` is their number for each group and transport; `TESTS=all` runs ten
//! thousand among the groups, four times as many as are run otherwise.

use crate::case::{Case, Form, Lengths, cases, kinds};
use crate::common::SeededRng;
use crate::skip;
use crate::spawn::{Ended, World, as_each_rank, say};
use maypole::algorithms::Algorithm;
use maypole::{Communicator, Factor, Local, ReduceOp, Transport};
use maypole_tests::program::Program;
use std::collections::HashMap;
use std::time::Duration;

const RANKS: usize = 8;
/// The sizes of the first group. The two groups of a split together have every world from 1 to 8.
const SPLITS: [usize; 5] = [8, 7, 6, 5, 4];
/// The cases of each group and transport. 18 over one transport alone and 9 over both are more than
/// 10,000, of which a run has a quarter unless it is to have all.
fn most_cases() -> u64 {
    if skip::runs_all() { 375 } else { 94 }
}

fn variable<T: std::str::FromStr>(name: &str) -> Option<T> {
    Some(std::env::var(name).ok()?.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

fn seed() -> u64 {
    variable("TEST_SEED").unwrap_or(1)
}

/// The cases of each transport of the smaller worlds.
fn fewer_cases() -> u64 {
    variable("TEST_CASES").unwrap_or(80)
}

/// The group of this rank. `first` ranks, drawn at random, are one group, and the others another
/// group.
fn group(comm: &mut Communicator, first: usize, rng: &mut SeededRng) -> Communicator {
    let mut shuffled: Vec<usize> = (0..RANKS).collect();
    (1..RANKS).for_each(|last| shuffled.swap(last, rng.below(last + 1)));
    let place = shuffled[comm.rank()];
    comm.split(Some(u64::from(place < first)), place as i64)
        .unwrap()
        .expect("every rank has a colour")
}

/// Runs the cases of one group over one transport.
struct CaseRunner {
    name: &'static str,
    comm: Communicator,
    seeds: SeededRng,
    /// The hashes of the results, which all ranks must have equal.
    hashes: Vec<u64>,
}

impl CaseRunner {
    fn new(name: &'static str, comm: Communicator, seed: u64) -> Self {
        let number = seed.wrapping_mul(1000) + (comm.world() * 10 + name.len()) as u64;
        Self { name, comm, seeds: SeededRng::new(number), hashes: Vec::new() }
    }

    /// The next case, or the one that is to be run again.
    fn next(&mut self) {
        let seed = self.seeds.next_u64();
        let Ok(only) = std::env::var("TEST_CASE") else { return self.run(seed) };
        let seed = only.strip_prefix(&format!("{} {} ", self.name, self.comm.world()));
        if let Some(seed) = seed {
            self.run(seed.parse().expect("the last word of TEST_CASE is a number"));
        }
    }

    fn run(&mut self, seed: u64) {
        let Self { name, comm, hashes, .. } = self;
        let world = comm.world();
        let mut rng = SeededRng::new(seed);
        let case = rng.sample(&cases(world)).in_any_form(&mut rng);
        let run = std::panic::AssertUnwindSafe(|| case.run(comm));
        let Ok(hash) = std::panic::catch_unwind(run) else {
            panic!("again: TEST_CASE=\"{name} {world} {seed}\" cargo test --test calls");
        };
        hashes.push(hash);
        if comm.rank() == 0 {
            say("ran", CaseLabel { way: format!("{name} {world}"), case: &case });
        }
    }

    /// Runs messages, requests, scopes, values and groups among calls.
    fn program(&mut self) {
        let mut rng = SeededRng::new(self.seeds.next_u64());
        // Streams between threads may hold a byte.
        let longest = if self.name == "local" { 5000 } else { 40_000 };
        let program = Program::draw_up_to(longest, self.comm.world(), &mut rng);
        let ended = program.run_on(&mut self.comm);
        assert!(ended.is_ok(), "{ended:?} over {}: {program:?}", self.name);
    }

    /// Runs `cases` cases and some programs over each of `ways` in turns, and compares the results of the ranks.
    fn run_all(cases: u64, mut ways: Vec<Self>) {
        (0..cases).for_each(|_| ways.iter_mut().for_each(Self::next));
        if std::env::var_os("TEST_CASE").is_none() {
            (0..cases / 10).for_each(|_| ways.iter_mut().for_each(Self::program));
        }
        for Self { name, mut comm, hashes, .. } in ways {
            comm.set_algorithm(None);
            let all = comm.all_gather_values(&hashes).unwrap();
            assert!(all.iter().all(|it| *it == hashes), "ranks have other bits over {name}");
        }
    }
}

/// The label of a case, by which cases are counted.
struct CaseLabel<'a> {
    way: String,
    case: &'a Case,
}

impl std::fmt::Display for CaseLabel<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Case {
            collective, kind, op, lengths, in_place, algorithm, deterministic, form, ..
        } = self.case;
        let blocks = match lengths {
            Lengths::Even(_) if *in_place => "in-place",
            Lengths::Even(_) => "apart",
            Lengths::Blocks(_) | Lengths::Pairs(_) => "variable",
        };
        let algorithm = algorithm.map_or("auto", Algorithm::name);
        let algorithm = if *deterministic { "deterministic" } else { algorithm };
        let collective = collective.name();
        write!(f, "{} {collective} {algorithm} {} {op} {blocks} {form:?}", self.way, kind.name())
    }
}

/// A communicator over shared memory, and one over TCP.
fn shm_and_tcp(mut comm: Communicator, seed: u64) -> Vec<CaseRunner> {
    vec![
        CaseRunner::new("shm", comm.over(Transport::Shm).unwrap(), seed),
        CaseRunner::new("tcp", comm.over(Transport::Tcp).unwrap(), seed + 1),
    ]
}

pub(crate) fn rank_process(role: &str) {
    if role == "threads" {
        return as_each_rank(|mut comm| {
            let tcp = comm.over(Transport::Tcp).unwrap();
            let ways = [("auto", comm), ("tcp", tcp)];
            let runners = ways.map(|(name, comm)| CaseRunner::new(name, comm, seed() + 20));
            CaseRunner::run_all(fewer_cases(), runners.into());
        });
    }
    let mut comm = Communicator::from_env().unwrap();
    if role == "encrypted" {
        assert!(comm.is_encrypted());
        return CaseRunner::run_all(fewer_cases(), shm_and_tcp(comm, seed() + 20));
    }
    let cases = variable("TEST_CASES").unwrap_or_else(most_cases);
    let mut rng = SeededRng::new(seed());
    for first in SPLITS {
        let group = group(&mut comm, first, &mut rng);
        let ways = match role {
            "one host" => shm_and_tcp(group, seed()),
            _ => vec![CaseRunner::new("mixed", group, seed())],
        };
        CaseRunner::run_all(cases, ways);
    }
}

/// Runs `world` with the variables of this test.
fn start(world: World) -> Vec<Ended> {
    let set = |world: World, name| match std::env::var(name) {
        Ok(value) => world.set(name, value),
        Err(_) => world,
    };
    ["TEST_SEED", "TEST_CASES", "TEST_CASE"].into_iter().fold(world, set).start().succeed()
}

#[test]
fn thousands_of_cases() {
    let mut ended = start(World::new("one host", RANKS));
    ended.extend(start(World::new("hosts", RANKS).hosts(&[0, 0, 0, 1, 1, 2, 3, 3])));
    if std::env::vars().all(|(name, _)| !name.starts_with("TEST_CASE")) {
        check_coverage(&ended);
    }
}

#[test]
fn encrypted_links_and_threads_in_several_processes() {
    crate::skip::takes_turns!(2);
    for world in [2, 4, 5] {
        start(World::new("encrypted", world).set("MAYPOLE_ENCRYPT", 1));
    }
    let processes: [&[usize]; 3] = [&[0, 1], &[2], &[3, 4]];
    start(World::new("threads", 5).processes(&processes).hosts(&[0, 0, 0, 1, 1]));
}

#[test]
fn threads_alone() {
    let worlds = [
        (&[0][..], 1),
        (&[0; 3], 1),
        (&[0; 13], 1),
        (&[0, 1, 2], 1),
        (&[0, 1, 2], 1 << 16),
        (&[0, 1, 1, 0], 4099),
        (&[0, 0, 1, 1, 2, 2], 500),
    ];
    for (hosts, capacity) in skip::every_nth(4, worlds) {
        let world = Local::new(hosts.len()).hosts(hosts).stream_capacity(capacity);
        world.timeout(Duration::from_secs(60)).run(|mut comm| {
            if hosts.len() % 2 == 1 {
                // Programs are dropped all the time.
                comm.set_program_memory(3000);
            }
            CaseRunner::run_all(fewer_cases(), vec![CaseRunner::new("local", comm, seed() + 20)]);
        });
    }
}

/// Checks that the cases cover every combination.
fn check_coverage(ended: &[Ended]) {
    let cases = ended.iter().flat_map(|ended| ended.said("ran"));
    let cases: Vec<Vec<&str>> = cases.map(|words| words.split(' ').collect()).collect();
    assert_eq!(cases.len() as u64, 27 * most_cases());
    let drawn = |of: fn(&[&str]) -> String| {
        let mut counts: HashMap<String, usize> = HashMap::new();
        cases.iter().for_each(|case| *counts.entry(of(case)).or_default() += 1);
        counts
    };
    let ways = drawn(|case| case[..2].join(" "));
    assert_eq!(ways.len(), 3 * RANKS, "{ways:?}");
    let algorithms = drawn(|case| case[2..4].join(" "));
    for algorithm in Algorithm::named() {
        for collective in algorithm.collectives() {
            let pair = format!("{} {algorithm}", collective.name());
            assert!(algorithms.contains_key(&pair), "{pair} was never drawn");
        }
    }
    let types = drawn(|case| case[4..6].join(" "));
    for kind in kinds() {
        let scaled = ReduceOp::PreMulSum(Factor::new(1.0));
        let all = ReduceOp::ALL.iter().copied().chain([scaled]);
        for op in all.filter(|op| op.supports(kind)).map(ReduceOp::name) {
            assert!(
                types.contains_key(&format!("{} {op}", kind.name())),
                "{op} of {} was never drawn",
                kind.name()
            );
        }
    }
    let forms = drawn(|case| format!("{} {} {}", case[2], case[6], case[7]));
    // A barrier has no buffers, a broadcast one, and the five that have blocks have the third form.
    assert_eq!(forms.len(), Form::ALL.len() * (2 * 11 + 5), "{forms:?}");
}

//! Thousands of random calls over real processes, compared bit by bit with a naive computation.
//!
//! Eight processes split into groups of 1 to 8 ranks, whose ranks are shuffled. Each group runs its
//! cases over shared memory and TCP in turns, or over both between pretended hosts. A case that
//! fails prints the line that runs it alone, such as `TEST_CASE="tcp 5 81985529216486895" cargo
//! test --test calls`. `TEST_SEED` selects other cases. `TEST_CASES` is their number for each group
//! and transport; `TESTS=all` runs ten thousand in all, four times as many as are run otherwise.

use crate::case::{Case, Form, Lengths, cases, kinds};
use crate::common::SeededRng;
use crate::skip;
use crate::spawn::{Ended, World, say};
use maypole::algorithms::Algorithm;
use maypole::{Communicator, Factor, ReduceOp, Transport};
use std::collections::HashMap;

const RANKS: usize = 8;
/// The sizes of the first group. The two groups of a split together have every world from 1 to 8.
const SPLITS: [usize; 5] = [8, 7, 6, 5, 4];
/// The cases of each group and transport. 18 over one transport alone and 9 over both are more than
/// 10,000, of which a run has a quarter unless it is to have all.
fn most_cases() -> u64 {
    if skip::runs_all() { 375 } else { 94 }
}

pub(crate) fn variable<T: std::str::FromStr>(name: &str) -> Option<T> {
    Some(std::env::var(name).ok()?.parse().unwrap_or_else(|_| panic!("{name} is a number")))
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
}

impl CaseRunner {
    fn new(name: &'static str, comm: Communicator, seed: u64) -> Self {
        let number = seed.wrapping_mul(1000) + (comm.world() * 10 + name.len()) as u64;
        Self { name, comm, seeds: SeededRng::new(number) }
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
        let Self { name, comm, .. } = self;
        let world = comm.world();
        let mut rng = SeededRng::new(seed);
        let case = rng.sample(&cases(world)).in_any_form(&mut rng);
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| case.run(comm))).is_err() {
            panic!("again: TEST_CASE=\"{name} {world} {seed}\" cargo test --test calls");
        }
        if comm.rank() == 0 {
            say("ran", CaseLabel { way: format!("{name} {world}"), case: &case });
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

pub(crate) fn rank_process(role: &str) {
    let seed = variable("TEST_SEED").unwrap_or(1);
    let cases = variable("TEST_CASES").unwrap_or_else(most_cases);
    let mut comm = Communicator::from_env().unwrap();
    let mut rng = SeededRng::new(seed);
    for first in SPLITS {
        let mut group = group(&mut comm, first, &mut rng);
        let mut ways = match role {
            "one host" => vec![
                CaseRunner::new("shm", group.over(Transport::Shm).unwrap(), seed),
                CaseRunner::new("tcp", group.over(Transport::Tcp).unwrap(), seed + 1),
            ],
            _ => vec![CaseRunner::new("mixed", group, seed)],
        };
        for _ in 0..cases {
            ways.iter_mut().for_each(CaseRunner::next);
        }
    }
}

#[test]
fn thousands_of_cases() {
    let start = |world: World| {
        ["TEST_SEED", "TEST_CASES", "TEST_CASE"]
            .into_iter()
            .fold(world, |world, name| {
                std::env::var(name).into_iter().fold(world, |world, value| world.set(name, value))
            })
            .start()
            .succeed()
    };
    let mut ended = start(World::new("one host", RANKS));
    ended.extend(start(World::new("hosts", RANKS).hosts(&[0, 0, 0, 1, 1, 2, 3, 3])));
    if std::env::vars().all(|(name, _)| !name.starts_with("TEST_CASE")) {
        check_coverage(&ended);
    }
}

/// Checks that the cases cover every combination.
fn check_coverage(ended: &[Ended]) {
    let cases: Vec<Vec<&str>> = ended
        .iter()
        .flat_map(|ended| ended.said("ran"))
        .map(|words| words.split(' ').collect())
        .collect();
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

//! The tuner chooses an algorithm that was measured to be the fastest or nearly so. It chooses the
//! same on every host, and quickly.

use crate::large_worlds;
use maypole::algorithms::Algorithm;
use maypole::schedule::collective::Collective;
use maypole::schedule::hosts::{Boards, Hosts};
use maypole::topology::StreamLinks;
use maypole::tuner::{
    CandidateVerdict, CostTable, Costs, Explanation, Network, Plan, PlanOverride, Question,
    UnsupportedAlgorithm, choose, plan, rows,
};
use std::time::Duration;

const TABLE: CostTable = CostTable::BUILT_IN;
const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

fn question(
    collective: Collective,
    boards: &Boards,
    crowding: usize,
    bytes: usize,
) -> Question<'_> {
    Question { collective, boards, bytes, crowding, gpus: None }
}

fn chosen(collective: Collective, boards: &Boards, crowding: usize, bytes: usize) -> Plan {
    plan(&question(collective, boards, crowding, bytes), None, &TABLE).unwrap()
}

fn one_board(world: usize) -> Boards {
    Boards::new(&vec![0; world])
}

/// `world` ranks, `each` of them on a board.
fn boards_of(each: usize, world: usize) -> Boards {
    Boards::new(&(0..world).map(|rank| rank / each).collect::<Vec<_>>())
}

#[test]
fn choices_agree_with_what_was_measured() {
    let mut wrong = Vec::new();
    for row in include_str!("measured.txt").lines().filter(|row| !row.starts_with('#')) {
        let [world, link, bytes, best] = row.split(' ').collect::<Vec<_>>()[..] else {
            panic!("four words: {row}")
        };
        let [world, bytes] = [world, bytes].map(|number| number.parse::<usize>().unwrap());
        let best: Algorithm = best.parse().unwrap();
        let boards = if link == "streams" { Boards::separate(world) } else { one_board(world) };
        let question = question(Collective::AllReduce, &boards, world.div_ceil(2), bytes);
        let choice = choose(&question, None, &TABLE).unwrap();
        let price = |algorithm| {
            let rows = choice.candidates.iter().filter(|row| row.plan.algorithm == algorithm);
            rows.map(|row| row.predicted_ns).min().unwrap()
        };
        // An algorithm within 25 % of the best may be chosen instead: measurements vary as much.
        if 4 * price(best) > 5 * price(choice.plan.algorithm) {
            wrong.push(format!("{best} expected:\n{}", explanation(&question, None)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn many_hosts_do_not_all_talk_to_each_other_at_once() {
    for world in [48, 64] {
        for bytes in [256 * KIB, MIB] {
            let plan = chosen(Collective::AllReduce, &Boards::separate(world), 1, bytes);
            let few_links = ![Algorithm::OneShot, Algorithm::TwoShot].contains(&plan.algorithm);
            assert!(few_links, "{world} hosts, {bytes} bytes: {}", plan.algorithm);
        }
    }
}

#[test]
fn hosts_far_apart_take_few_hops_and_hosts_of_one_machine_few_bytes() {
    let on = |collective, hosts, bytes, machines| {
        let network = Network { machines, .."2ms,10Gbit".parse().unwrap() };
        let boards = Boards::separate(hosts);
        let crowding = if machines == 0 { 1 } else { hosts / 2 };
        let question = question(collective, &boards, crowding, bytes);
        plan(&question, None, &CostTable { network, ..TABLE }).unwrap().algorithm
    };
    // Measured with `cargo bench --bench far` among 16 hosts of one machine: 6 ms by two-shot, 22 by one-shot.
    assert_eq!(on(Collective::AllReduce, 16, 64 * KIB, 0), Algorithm::OneShot);
    assert_eq!(on(Collective::AllReduce, 16, 64 * KIB, 1), Algorithm::TwoShot);
    for machines in [0, 1] {
        assert_eq!(on(Collective::Barrier, 16, 0, machines), Algorithm::OneShot);
        assert_eq!(on(Collective::Broadcast { root: 0 }, 8, 64 * KIB, machines), Algorithm::Linear);
    }
}

#[test]
fn the_root_serves_a_board_itself() {
    for world in [4, 8] {
        let plan = chosen(
            Collective::Broadcast { root: 1 },
            &one_board(world),
            world.div_ceil(2),
            64 * KIB,
        );
        assert_eq!(plan.algorithm, Algorithm::Linear, "{world} ranks");
    }
}

/// Boards of `world` ranks: one board, a board for each rank, and a board for each pair.
fn layouts(world: usize) -> [Boards; 3] {
    [one_board(world), Boards::separate(world), boards_of(2, world)]
}

#[test]
fn every_question_has_an_answer_and_prices_grow_with_bytes() {
    for world in [1, 2, 3, 5, 8] {
        for boards in layouts(world) {
            for collective in Collective::all(world - 1) {
                let mut before = 0;
                for bytes in [0, 8, 4 * KIB, 64 * KIB, MIB, 64 * MIB] {
                    let question = question(collective, &boards, world.div_ceil(2), bytes);
                    let choice = choose(&question, None, &TABLE).unwrap();
                    assert_eq!(plan(&question, None, &TABLE), Ok(choice.plan));
                    assert!(rows(&question, None).contains(&choice.plan));
                    let best = choice.candidates.iter().map(|one| one.predicted_ns).min().unwrap();
                    // Windows are uneven and cores take turns, so a price may fall a little as
                    // bytes grow.
                    assert!(
                        best + best / 4 + TABLE.switch / 250 >= before,
                        "{collective:?} {boards:?} {bytes}: {best} after {before}"
                    );
                    before = best;
                }
            }
        }
    }
}

#[test]
fn prices_are_the_same_everywhere() {
    // Computed once. Every host must compute the same prices, to the last digit.
    let golden = include_str!("../golden/prices.txt");
    let mut text = String::new();
    for (collective, boards, crowding, bytes) in [
        (Collective::AllReduce, one_board(4), 2, 64 * KIB),
        (Collective::AllReduce, Boards::separate(4), 1, MIB),
        (Collective::Broadcast { root: 1 }, boards_of(2, 4), 1, 100_000),
        (Collective::AllGather, one_board(3), 2, 1000),
    ] {
        let question = question(collective, &boards, crowding, bytes);
        for one in choose(&question, None, &TABLE).unwrap().candidates {
            text += &format!(
                "{} {} {} {}\n",
                collective.name(),
                one.plan.algorithm,
                one.plan.window,
                one.predicted_ns
            );
        }
    }
    same(golden, &text, "prices.txt");
}

#[test]
fn a_named_algorithm_is_taken_or_refused() {
    let boards = one_board(4);
    let question = question(Collective::AllReduce, &boards, 1, 8);
    let ring = Some(PlanOverride::from(Algorithm::Ring));
    let choice = choose(&question, ring, &TABLE).unwrap();
    assert_eq!(choice.plan.algorithm, Algorithm::Ring);
    assert!(choice.candidates.iter().any(|one| one.verdict == CandidateVerdict::NotAsked));
    let odd = Plan { algorithm: Algorithm::Ring, window: 1000 };
    assert_eq!(plan(&question, Some(odd.into()), &TABLE), Ok(odd));
    assert_eq!(choose(&question, Some(odd.into()), &TABLE).unwrap().plan, odd);
    let refusal = choose(&question, Some(Algorithm::Pairwise.into()), &TABLE).unwrap_err();
    assert_eq!(
        refusal,
        UnsupportedAlgorithm { algorithm: Algorithm::Pairwise, collective: Collective::AllReduce }
    );
    assert!(
        refusal
            .to_string()
            .starts_with("'pairwise' does not implement all_reduce; these do: ring, tree"),
        "{refusal}"
    );
}

#[test]
fn choosing_is_fast() {
    // Generous limits, for builds that are not optimized and machines that are busy.
    let generous = if cfg!(debug_assertions) { 20 } else { 3 };
    for (world, most) in [(8, Duration::from_millis(3)), (64, Duration::from_millis(100))] {
        for boards in layouts(world) {
            for collective in Collective::all(0) {
                let question = question(collective, &boards, world / 2, MIB);
                let took = (0..3).map(|_| timed(&question)).min().unwrap();
                assert!(took < generous * most, "{collective:?} on {world} ranks took {took:?}");
            }
        }
    }
}

/// How long this thread computes for it. The time in which other tests have the core does not count.
fn timed(question: &Question<'_>) -> Duration {
    large_worlds::timed(|| plan(question, None, &TABLE).unwrap()).1
}

#[test]
fn large_worlds_are_priced_too() {
    let boards = boards_of(8, 512);
    let plan = chosen(Collective::Broadcast { root: 511 }, &boards, 1, MIB);
    assert!(plan.algorithm.supports(Collective::Broadcast { root: 0 }));
}

#[test]
fn absurd_costs_and_sizes_are_priced_too() {
    const A: u64 = 100_000_000_000;
    let all = Costs { alpha: A, beta: A, gamma: A };
    let absurd = CostTable { tiny: all, small: all, chunk: all, tcp: all, ..CostTable::BUILT_IN };
    let absurd = CostTable { copy: all, switch: A, wake: A, ..absurd };
    for boards in layouts(8) {
        for collective in Collective::all(0) {
            for crowding in [1, 8] {
                let question = question(collective, &boards, crowding, 1 << 50);
                let odd = Plan {
                    algorithm: plan(&question, None, &absurd).unwrap().algorithm,
                    window: 1 << 45,
                };
                choose(&question, Some(odd.into()), &absurd).unwrap();
            }
        }
    }
}

fn explanation(question: &Question<'_>, wanted: Option<PlanOverride>) -> Explanation {
    let hosts = Hosts::new(question.boards.numbers());
    let links = StreamLinks::undecided();
    Explanation::new(question, &hosts, &links, wanted, choose(question, wanted, &TABLE))
}

#[test]
fn explanations_read_like_this() {
    let boards = boards_of(2, 4);
    let question = question(Collective::AllReduce, &boards, 1, 64 * KIB);
    let texts = [
        explanation(&question, None).to_string(),
        explanation(&question, Some(Algorithm::Tree.into())).to_string(),
        explanation(&question, Some(Algorithm::Binomial.into())).to_string(),
    ];
    same(include_str!("../golden/explanation.txt"), &texts.join("\n"), "explanation.txt");
}

/// Compares with a golden file; `UPDATE=1` writes it instead.
fn same(golden: &str, text: &str, name: &str) {
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR")), text)
            .unwrap();
        return;
    }
    assert_eq!(golden, text, "tests/golden/{name} differs; UPDATE=1 writes it anew");
}

//! Hierarchical algorithms implement their collective, however ranks are spread over hosts.

use crate::common::SeededRng;
use maypole::Local;
use maypole::algorithms::Algorithm;
use maypole::algorithms::hierarchical::{Levels, schedule};
use maypole::schedule::collective::Collective;
use maypole::schedule::hosts::Boards;
use maypole::schedule::verify::{Proof, verify};
use maypole::schedule::{Layout, Placement, Schedule};
use maypole::tuner::{CostTable, Question, choose, rows};
use maypole_pictures::clocks::{Cost, Ports, simulate};

fn schedules(collective: Collective, hosts: &[usize], levels: Levels) -> Option<Vec<Schedule>> {
    (0..hosts.len()).map(|rank| schedule(collective, hosts, rank, levels)).collect()
}

/// Proves every collective that has schedules, apart and in place; returns how many there were.
fn prove(hosts: &[usize], levels: Levels, root: usize) -> usize {
    let all = Collective::all(root).into_iter();
    all.filter(|&collective| prove_one(collective, hosts, levels).is_some()).count()
}

fn prove_one(collective: Collective, hosts: &[usize], levels: Levels) -> Option<Proof> {
    let schedules = schedules(collective, hosts, levels)?;
    let check = |placement| {
        let proof = verify(collective, &schedules, placement);
        proof.unwrap_or_else(|flaw| {
            panic!("{collective:?}, {levels:?}, {placement:?}, hosts {hosts:?}: {flaw}")
        })
    };
    check(Placement::InPlace);
    Some(check(Placement::Apart))
}

fn levels() -> impl Iterator<Item = Levels> {
    let all = || Algorithm::ALL.into_iter();
    all().flat_map(move |local| all().map(move |across| Levels { local, across }))
}

/// Random hosts of `world` ranks: in a row or mixed, of any sizes.
fn spread(world: usize, rng: &mut SeededRng) -> Vec<usize> {
    let most = 1 + rng.below(world);
    let mut hosts: Vec<usize> = (0..world).map(|_| rng.below(most)).collect();
    if rng.below(2) == 0 {
        hosts.sort_unstable();
    }
    hosts
}

#[test]
fn every_pair_of_algorithms_is_right_on_small_worlds() {
    let mut proved = 0;
    for world in 1..=6_usize {
        // Every way to put the ranks on up to three hosts, with rank 0 on the first; of 5 and 6
        // ranks, every seventh way.
        for spread in 0..3_usize.pow(world as u32) {
            let hosts: Vec<usize> =
                (0..world).map(|rank| spread / 3_usize.pow(rank as u32) % 3).collect();
            if hosts[0] == 0 && (world < 5 || spread % 7 == 0) {
                proved +=
                    levels().map(|levels| prove(&hosts, levels, spread % world)).sum::<usize>();
            }
        }
    }
    println!("{proved} proved");
    assert!(proved > 10_000);
}

#[test]
fn worlds_up_to_64_are_right_however_they_are_spread() {
    let mut rng = SeededRng::new(11);
    let choices: Vec<Levels> = levels().collect();
    for world in 1..=64 {
        for _ in 0..6 {
            let hosts = spread(world, &mut rng);
            let root = rng.below(world);
            let levels = choices[rng.below(choices.len())];
            prove(&hosts, levels, root);
            // All of these implement the collectives of a hierarchy except, for some, all-gather or
            // reduce-scatter.
            let across =
                [Algorithm::Ring, Algorithm::RecursiveDoubling, Algorithm::Linear][rng.below(3)];
            let local = [Algorithm::Linear, Algorithm::Binomial][rng.below(2)];
            assert!(prove(&hosts, Levels { local, across }, root) >= 3);
        }
    }
}

#[test]
fn levels_that_lack_a_part_have_no_schedule() {
    let levels = Levels { local: Algorithm::Pairwise, across: Algorithm::Ring };
    assert_eq!(schedule(Collective::AllReduce, &[0, 0, 1], 2, levels), None);
    let levels = Levels { local: Algorithm::Linear, across: Algorithm::Pairwise };
    assert_eq!(schedule(Collective::AllReduce, &[0, 0, 1], 1, levels), None);
}

#[test]
fn ranks_in_a_row_are_combined_in_their_order_by_parts_that_do_so() {
    let hosts = [0, 0, 0, 1, 1, 2, 2, 2];
    let levels = Levels { local: Algorithm::Linear, across: Algorithm::TwoShot };
    let proof =
        prove_one(Collective::AllReduce, &hosts, levels).expect("both algorithms implement it");
    assert!(proof.keeps_rank_order && !proof.left_to_right);
}

/// Between hosts, every rank sends its share and no more.
#[test]
fn all_leaders_share_the_wires() {
    let hosts: Vec<usize> = (0..32).map(|rank| rank / 8).collect();
    let levels = Levels { local: Algorithm::Linear, across: Algorithm::Ring };
    let all =
        schedules(Collective::AllReduce, &hosts, levels).expect("both algorithms implement it");
    let h = 4;
    let m = 8;
    let elements = 3200;
    let cost = Cost { alpha: 1.0, beta: 1.0, gamma: 0.0, ports: Ports::Single };
    let estimate =
        simulate(&all, &Layout::even(elements, all[0].chunks), 1, 1, cost).expect("it is proved");
    let within = 2 * (m - 1) * elements / m;
    let across = 2 * (h - 1) * elements / m / h;
    assert_eq!(estimate.bytes_sent, [within + across; 32]);
}

#[test]
fn the_usual_levels_are_right_however_ranks_are_spread() {
    let mut rng = SeededRng::new(12);
    for world in 1..=64 {
        for _ in 0..3 {
            let hosts = spread(world, &mut rng);
            let root = rng.below(world);
            for collective in Collective::all(root) {
                let schedules = Algorithm::Hierarchical.schedules_on(collective, &hosts);
                assert_eq!(
                    schedules.is_some(),
                    Algorithm::Hierarchical.supports(collective),
                    "{collective:?}"
                );
                for placement in [Placement::Apart, Placement::InPlace] {
                    let proof = schedules
                        .as_ref()
                        .map_or(Ok(()), |it| verify(collective, it, placement).map(drop));
                    proof.unwrap_or_else(|flaw| {
                        panic!("{collective:?}, {placement:?}, hosts {hosts:?}: {flaw}")
                    });
                }
            }
        }
    }
}

#[test]
fn levels_are_chosen_where_they_pay_and_explained_where_they_cannot() {
    let boards = Boards::new(&(0..15).map(|rank| rank / 5).collect::<Vec<_>>());
    let one_board = Boards::new(&[0, 0]);
    let question = |boards| Question {
        collective: Collective::AllReduce,
        boards,
        bytes: 1 << 20,
        crowding: 1,
        gpus: None,
    };
    let chosen = choose(&question(&boards), None, &CostTable::BUILT_IN).unwrap().plan;
    assert_eq!(chosen.algorithm, Algorithm::Hierarchical);
    let told =
        Local::new(2).run(|mut comm| comm.explain(Collective::AllReduce, 1 << 20).to_string());
    assert!(told[0].contains("hierarchical          needs several hosts"), "{}", told[0]);
    Local::new(3).hosts(&[0, 1, 0]).run(|mut comm| {
        comm.set_algorithm(Some(Algorithm::Hierarchical));
        let refused = comm.all_to_all((&[0u8; 3], &mut [0u8; 3])).unwrap_err();
        assert!(refused.to_string().contains("hierarchical"), "{refused}");
    });
    let offered = rows(&question(&one_board), None);
    assert!(offered.iter().all(|row| row.algorithm != Algorithm::Hierarchical));
    assert!(!rows(&question(&one_board), Some(Algorithm::Hierarchical)).is_empty());
}

//! The deterministic mode: which algorithms it allows, and which calls it refuses. `random_cases`
//! compares its results with the plain loop over the ranks, and those of every algorithm with the
//! order of its schedules.

use crate::common::SeededRng;
use crate::common::world::TIMEOUT;
use maypole::algorithms::Algorithm;
use maypole::schedule::Placement;
use maypole::schedule::collective::Collective;
use maypole::schedule::verify::verify;
use maypole::{Communicator, DataType, Local, Operation, ReduceOp};
use std::collections::HashSet;

fn reductions(root: usize) -> impl Iterator<Item = Collective> {
    Collective::all(root).into_iter().filter(|collective| collective.reduces())
}

/// `tests/proofs` shows that this order is the plain loop.
#[test]
fn the_choice_goes_from_left_to_right_in_the_order_of_the_ranks() {
    let mut chosen = HashSet::new();
    for world in [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 31, 64] {
        for hosts in
            [vec![0; world], (0..world).collect(), (0..world).map(|rank| rank / 8).collect()]
        {
            let mut comm = Local::new(world).hosts(&hosts).build().swap_remove(world / 2);
            comm.set_deterministic(true);
            for (collective, count) in
                reductions(world / 3).flat_map(|it| [1, 1 << 20].map(|count| (it, count)))
            {
                chosen.insert((
                    world,
                    collective,
                    comm.algorithm(collective, count, DataType::F32).unwrap(),
                ));
            }
        }
    }
    for (world, collective, algorithm) in chosen {
        let proof =
            verify(collective, &algorithm.schedules(collective, world).unwrap(), Placement::Apart)
                .unwrap();
        assert!(
            proof.keeps_rank_order && proof.left_to_right,
            "{algorithm}, {collective:?}, {world} ranks"
        );
    }
}

#[test]
fn an_explanation_says_what_the_mode_rules_out() {
    let mut comm = Communicator::local(4).swap_remove(0);
    for (deterministic, bytes) in [(false, 8), (true, 8), (true, 1 << 20)] {
        comm.set_deterministic(deterministic);
        let text = comm.explain(Collective::Reduce { root: 2 }, bytes).to_string();
        let ruled_out = text.matches("combines the ranks in another order").count();
        assert_eq!(ruled_out > 3, deterministic, "{text}");
        let chosen = text.lines().find(|line| line.starts_with('*')).unwrap();
        assert!(!deterministic || chosen.starts_with("* linear"), "{text}");
    }
}

/// Element `at` of the contribution of `rank`. Sums depend on the order of the terms.
fn brings(rank: usize, at: usize) -> f32 {
    let word = SeededRng::new((rank * 1_000_003 + at) as u64).next_u64();
    (word >> 40) as f32 / (1u32 << (word & 15)) as f32
}

fn all_of(rank: usize, count: usize) -> Vec<f32> {
    (0..count).map(|at| brings(rank, at)).collect()
}

/// The sums of four ranks, one rank after the other.
fn plain_loop(count: usize) -> Vec<f32> {
    (0..count).map(|at| (1..4).fold(brings(0, at), |sum, rank| sum + brings(rank, at))).collect()
}

/// Otherwise the deterministic cases of `random_cases` would pass without the mode, too.
#[test]
fn the_plain_loop_has_bits_of_its_own() {
    let rings = Communicator::run_local(4, |mut comm| {
        comm.set_algorithm(Some(Algorithm::Ring));
        let mut data = all_of(comm.rank(), 100);
        comm.all_reduce(&mut data, ReduceOp::Sum).unwrap();
        data
    });
    let differ =
        rings[0].iter().zip(plain_loop(100)).filter(|(ring, plain)| *ring != plain).count();
    assert!(differ > 10, "{differ} of 100");
    assert!(rings.iter().all(|ring| *ring == rings[0]), "one result for all ranks");
}

#[test]
fn own_operations_go_from_left_to_right_too() {
    let add = Operation::new("add", true, |left: &[f32], right: &mut [f32]| {
        left.iter().zip(right).for_each(|(left, right)| *right += *left);
    });
    for hosts in [&[0; 4][..], &[0, 1, 2, 3]] {
        Local::new(4).hosts(hosts).timeout(TIMEOUT).run(|mut comm| {
            comm.set_deterministic(true);
            for count in [3, 20_000] {
                let mut data = all_of(comm.rank(), count);
                comm.reduce(&mut data, &add, 0).unwrap();
                assert!(comm.rank() > 0 || data == plain_loop(count), "{count} elements");
            }
        });
    }
}

#[test]
fn a_named_algorithm_in_another_order_is_refused_where_bits_may_differ() {
    Communicator::run_local(3, |mut comm| {
        comm.set_deterministic(true);
        comm.set_algorithm(Some(Algorithm::Ring));
        let error = comm.all_reduce(&mut [1f32], ReduceOp::Sum).unwrap_err();
        assert!(error.is_harmless());
        let why = "algorithm 'ring' does not combine the ranks one by one from left to right, as a \
                   deterministic call needs; leave the choice to 'auto'";
        assert_eq!(error.to_string(), format!("rank {}: all_reduce: {why}", comm.rank()));
        comm.all_reduce(&mut [1u8], ReduceOp::Sum).unwrap();
        comm.all_reduce(&mut [1f32], ReduceOp::Max).unwrap();
        comm.all_gather((&[1f32], &mut [0.0; 3])).unwrap();
    });
}

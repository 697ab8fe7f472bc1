//! The collectives of variable counts, against the plain loop, over boards and streams.

use maypole::{Communicator, Error, Local, ReduceOp};
use std::time::Duration;

/// Counts that differ from rank to rank, some of them zero and one longer than a slot.
fn counts(world: usize, seed: usize) -> Vec<usize> {
    (0..world).map(|rank| [0, 3, 1, 20_011, 7][(rank + seed) % 5]).collect()
}

fn block(rank: usize, len: usize) -> Vec<u32> {
    (0..len as u32).map(|i| i.wrapping_mul(2_654_435_761) ^ rank as u32).collect()
}

fn everywhere(check: impl Fn(&mut Communicator) + Sync) {
    for world in 1..=5 {
        for hosts in
            [vec![0; world], (0..world).collect(), (0..world).map(|rank| rank / 2).collect()]
        {
            let local = Local::new(world)
                .hosts(&hosts)
                .stream_capacity(1000)
                .timeout(Duration::from_secs(60));
            local.run(|mut comm| check(&mut comm));
        }
    }
}

#[test]
fn all_gather_v_gathers_blocks_of_any_length() {
    everywhere(|comm| {
        for seed in 0..5 {
            let counts = counts(comm.world(), seed);
            let mine = block(comm.rank(), counts[comm.rank()]);
            let mut all = vec![0; counts.iter().sum()];
            comm.all_gather_v(&mine, &mut all, &counts).unwrap();
            assert_eq!(
                all,
                counts.iter().enumerate().flat_map(|(r, n)| block(r, *n)).collect::<Vec<_>>()
            );
        }
    });
}

#[test]
fn reduce_scatter_v_combines_and_scatters() {
    everywhere(|comm| {
        for seed in 0..5 {
            let world = comm.world();
            let counts = counts(comm.world(), seed);
            let whole: usize = counts.iter().sum();
            let mut mine = vec![0; counts[comm.rank()]];
            comm.reduce_scatter_v(&block(comm.rank(), whole), &mut mine, &counts, ReduceOp::Sum)
                .unwrap();
            let start: usize = counts[..comm.rank()].iter().sum();
            let sum =
                |i: usize| (0..world).fold(0u32, |sum, r| sum.wrapping_add(block(r, whole)[i]));
            let ends = [0, mine.len() / 2, mine.len().saturating_sub(1)];
            ends.iter()
                .filter(|i| **i < mine.len())
                .for_each(|i| assert_eq!(mine[*i], sum(start + i)));
        }
    });
}

#[test]
fn scatter_v_undoes_gather_v() {
    everywhere(|comm| {
        for root in 0..comm.world() {
            let counts = counts(comm.world(), root);
            let known = if comm.rank() == root { counts.clone() } else { Vec::new() };
            let mine = block(comm.rank(), counts[comm.rank()]);
            let mut all = vec![0; if comm.rank() == root { counts.iter().sum() } else { 0 }];
            comm.gather_v(&mine, &mut all, &known, root).unwrap();
            if comm.rank() == root {
                assert_eq!(
                    all,
                    counts.iter().enumerate().flat_map(|(r, n)| block(r, *n)).collect::<Vec<_>>()
                );
            }
            let mut back = vec![0; mine.len()];
            comm.scatter_v(&all, &known, &mut back, root).unwrap();
            assert_eq!(back, mine);
        }
    });
}

#[test]
fn all_to_all_v_delivers_every_pair() {
    everywhere(|comm| {
        let world = comm.world();
        let rank = comm.rank();
        let count = |from: usize, to: usize| [0, 5, 9000, 1][(3 * from + to) % 4];
        let part = |from: usize, to: usize| block(from * 100 + to, count(from, to));
        let (sends, receives): (Vec<_>, Vec<_>) =
            (0..world).map(|peer| (count(rank, peer), count(peer, rank))).unzip();
        let input: Vec<u32> = (0..world).flat_map(|to| part(rank, to)).collect();
        let mut output = vec![0; receives.iter().sum()];
        for _ in 0..3 {
            comm.all_to_all_v(&input, &sends, &mut output, &receives).unwrap();
        }
        assert_eq!(output, (0..world).flat_map(|from| part(from, rank)).collect::<Vec<_>>());
    });
}

#[test]
fn lengths_that_contradict_one_another_are_refused_everywhere_and_harmless() {
    everywhere(|comm| {
        if comm.world() < 2 {
            return;
        }
        let mine = vec![1u32; comm.rank() + usize::from(comm.rank() == 1)];
        let counts: Vec<usize> = (0..comm.world()).collect();
        let mut all = vec![0; counts.iter().sum()];
        let error = comm.gather_v(&mine, &mut all, &counts, 0).unwrap_err();
        assert!(
            matches!(&error, Error::Invalid { why, .. } if why.contains("rank 1 has 2 elements")),
            "{error}"
        );
        comm.barrier().unwrap();
        let (sends, receives) =
            (vec![1; comm.world()], vec![usize::from(comm.rank() != 0); comm.world()]);
        let mut output = vec![0u32; receives.iter().sum()];
        let error =
            comm.all_to_all_v(&vec![7; comm.world()], &sends, &mut output, &receives).unwrap_err();
        assert!(error.to_string().contains("which expects 0"), "{error}");
        comm.barrier().unwrap();
    });
}

#[test]
fn programs_of_many_different_counts_are_dropped() {
    Communicator::run_local(2, |mut comm| {
        for n in 0..600 {
            let counts = [n, 1];
            let mine = block(comm.rank(), counts[comm.rank()]);
            let mut all = vec![0; n + 1];
            comm.all_gather_v(&mine, &mut all, &counts).unwrap();
            assert_eq!(all[n], block(1, 1)[0]);
        }
    });
}

//! The same seed gives the same run, turn by turn, and different seeds give different runs.

use crate::common::SeededRng;
use crate::program::{Program, draw_world};
use std::collections::HashSet;

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..60 {
        let mut rng = SeededRng::new(seed);
        let ranks = 2 + rng.below(6);
        let mut world = draw_world(seed, ranks, &mut rng);
        if seed % 3 > 0 {
            world = world.drop_peer(rng.below(ranks));
        }
        if seed % 3 > 1 {
            world = world.corrupt_head();
        }
        let program = Program::draw(ranks, &mut rng);
        let first = world.run(|comm| program.run(comm));
        let again = world.run(|comm| program.run(comm));
        // Results, turns, the clock, and the hash of all decisions.
        assert_eq!(first, again, "seed {seed}: {program:?}");
    }
}

#[test]
fn different_seeds_give_different_runs() {
    let program = Program::draw_collectives(3, &mut SeededRng::new(5));
    let trace = |seed| {
        let world = draw_world(seed, 3, &mut SeededRng::new(5));
        world.run(|comm| program.run(comm)).trace()
    };
    let traces: HashSet<u64> = (0..40).map(trace).collect();
    assert_eq!(traces.len(), 40);
}

/// Ranks on hosts of their own receive messages in different orders: each peer is the sender of the
/// first message that a rank takes in some run.
#[test]
fn links_overtake_each_other() {
    let first = |seed| {
        let world = maypole_testing::SimulatedWorld::new(seed).ranks(4);
        let run = world.run(|mut comm| {
            if comm.rank() > 0 {
                comm.send(&[0u8], 0, 0).unwrap();
                return 0;
            }
            let order = [(); 3].map(|()| comm.recv_any(&mut [0u8], 0).unwrap().0);
            order[0]
        });
        run.into_values()[0]
    };
    let firsts: HashSet<usize> = (0..60).map(first).collect();
    assert_eq!(firsts, HashSet::from([1, 2, 3]));
}

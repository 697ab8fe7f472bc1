//! Schedules that complete in the order of the proof complete in every conflict order, with the
//! same bits.

use crate::common::random::{Chunks, schedules};
use crate::common::walked::walked;
use crate::common::{Executor, Memory, SeededRng, home, works_in_place};
use maypole::algorithms::Algorithm;
use maypole::schedule::{Layout, Placement, Schedule, input, output, scratch};
use maypole_pictures::clocks::{Cost, Ports, StepOrder, simulate_in};
use proptest::prelude::*;

/// Neither commutes nor associates, so every order of combination gives other bits.
fn op(a: u64, b: u64) -> u64 {
    a.rotate_left(7).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ b
}

/// A number in every span of every rank.
fn start(schedules: &[Schedule], placement: Placement) -> Memory {
    let spans = |rank: usize| {
        let Schedule { chunks, scratch: of_scratch, .. } = schedules[rank];
        let both = (0..chunks).flat_map(|chunk| [input(chunk), output(chunk)]);
        both.chain((0..of_scratch).map(scratch)).map(move |span| (rank, home(span, placement)))
    };
    let mut rng = SeededRng::new(schedules.len() as u64);
    (0..schedules.len()).flat_map(spans).map(|span| (span, rng.next_u64())).collect()
}

/// Checks `schedules` if they complete in the order of the proof; false if they do not.
fn check(schedules: &[Schedule], placement: Placement, rng: &mut SeededRng) -> bool {
    let memory = start(schedules, placement);
    let Ok(end) = walked(schedules, placement, memory.clone(), |a, b| op(*a, b)) else {
        return false;
    };
    for _ in 0..4 {
        let mut executor = Executor::new(schedules, placement, op, memory.clone());
        assert!(executor.run(rng), "stuck in conflict order: {schedules:#?}");
        assert_eq!(executor.memory, end, "{schedules:#?}");
    }
    if placement == Placement::Apart {
        price(schedules, rng);
    }
    true
}

/// Checks that the simulator completes in both orders, in one window and in three, and that no rank
/// finishes after the whole.
fn price(schedules: &[Schedule], rng: &mut SeededRng) {
    let ports = [Ports::Single, Ports::PerLink][rng.below(2)];
    let cost = Cost {
        alpha: rng.below(3) as f64,
        beta: rng.below(3) as f64,
        gamma: rng.below(3) as f64,
        ports,
    };
    let layout = Layout::even(12 * schedules[0].chunks, schedules[0].chunks);
    for order in [StepOrder::Conflict, StepOrder::List] {
        for windows in [1, 3] {
            let estimate =
                simulate_in(order, schedules, &layout, 1, windows, cost).expect("it completes");
            assert!(
                estimate.seconds >= 0.0
                    && estimate.finish.iter().all(|&finish| finish <= estimate.seconds)
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000, failure_persistence: None, ..ProptestConfig::default()
    })]
    #[test]
    fn random_schedules_that_complete_do_so_in_any_conflict_order(
        world in 2..6usize, events in 1..24usize, seed: u64, in_place: bool,
    ) {
        let mut rng = SeededRng::new(seed);
        let placement = if in_place { Placement::InPlace } else { Placement::Apart };
        check(&rng.sample(&schedules(world, events, Chunks::Mixed)), placement, &mut rng);
    }
}

/// The property above would mean little if few random schedules completed.
#[test]
fn enough_random_schedules_complete() {
    let mut rng = SeededRng::new(1);
    let complete = (0..500).filter(|_| {
        let world = 2 + rng.below(4);
        let events = 1 + rng.below(23);
        let schedules = rng.sample(&schedules(world, events, Chunks::Mixed));
        check(&schedules, Placement::Apart, &mut rng)
    });
    let complete = complete.count();
    assert!(complete > 150, "only {complete} of 500");
}

#[test]
fn every_algorithm_gives_the_same_bits_in_any_conflict_order() {
    let mut rng = SeededRng::new(2);
    for algorithm in Algorithm::ALL {
        for &collective in algorithm.collectives() {
            for world in [2, 3, 5, 8] {
                let schedules = algorithm.schedules(collective, world).expect("it is in the table");
                assert!(check(&schedules, Placement::Apart, &mut rng));
                let completes = check(&schedules, Placement::InPlace, &mut rng);
                assert!(completes || !works_in_place(algorithm, collective));
            }
        }
    }
}

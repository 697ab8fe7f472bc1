//! Deaths at random places of random steps.

use crate::mortal::Mortals;
use maypole_lab::survivors::kept::RecoveryError;
use maypole_trainer::data_parallel::sharding::Sharding;
use maypole_trainer::tensor::random::random;
use std::time::{Duration, Instant};

/// Calls of a store in 8 steps of 6 units: forward, backward (twice a unit), keeping, and 4 more.
const CALLS: u64 = 8 * (4 * 6 + 4);

/// Longer than any of these may take: below the deadline of a call.
const BOUND: Duration = Duration::from_secs(20);

/// Runs, and compares with ranks of which none dies. Returns the worlds that there were.
fn right(case: &Mortals) -> Vec<(usize, u64)> {
    let start = Instant::now();
    let seen = case.run();
    assert!(start.elapsed() < BOUND, "{case:?} took {:?}", start.elapsed());
    let mut left = seen.into_iter().flatten().map(|seen| seen.unwrap());
    let first = left.next().expect("a rank is left");
    for other in left {
        assert_eq!(other.losses, first.losses, "{case:?}");
        assert_eq!(other.worlds, first.worlds, "{case:?}");
    }
    assert_eq!(first.losses, case.expected(&first.worlds), "{case:?}: {:?}", first.worlds);
    first.worlds
}

fn kills(from: u64, count: u64) {
    let forms = [Sharding::Zero1, Sharding::Zero2, Sharding::default()];
    // Rows that the ranks that are left divide evenly, and rows that they do not.
    let sizes = [(2, 6), (3, 6), (4, 8)];
    let mut disturbed = 0;
    for nth in from..from + count {
        let sharding = forms[nth as usize % 3];
        let (ranks, rows) = sizes[nth as usize / 3 % 3];
        let victim = random(1, nth) as usize % ranks;
        let deaths = vec![(victim, random(2, nth) % CALLS)];
        let worlds = right(&Mortals { ranks, sharding, rows, deaths });
        disturbed += usize::from(worlds.len() == 2);
    }
    assert!(disturbed as u64 >= count * 8 / 10, "{disturbed} of {count} deaths came in time");
}

#[test]
fn kills_at_random_places_leave_the_losses_of_the_smaller_world() {
    kills(0, 18);
}

#[test]
fn more_kills() {
    crate::skip::takes_turns!(4);
    kills(18, 16);
}

#[test]
fn still_more_kills() {
    crate::skip::takes_turns!(4);
    kills(34, 16);
}

#[test]
fn ranks_die_one_after_another_until_one_is_left() {
    let deaths = vec![(2, 40), (0, 90), (3, 150)];
    for sharding in [Sharding::Zero1, Sharding::Zero2] {
        let case = Mortals { ranks: 4, sharding, rows: 12, deaths: deaths.clone() };
        let worlds = right(&case);
        let ranks: Vec<usize> = worlds.iter().map(|world| world.0).collect();
        assert_eq!(ranks, [4, 3, 2, 1], "{worlds:?}");
    }
}

#[test]
fn two_that_are_no_neighbours_may_die_at_once_and_neighbours_may_not() {
    crate::skip::takes_turns!(4);
    let case = |deaths: Vec<(usize, u64)>| {
        let sharding = Sharding::Zero1;
        Mortals { ranks: 4, sharding, rows: 12, deaths }
    };
    for pair in [[0, 2], [1, 3]] {
        let worlds = right(&case(pair.map(|rank| (rank, 57)).to_vec()));
        assert_eq!(worlds.last().unwrap().0, 2);
    }
    // Copies are with the next rank: the last one's with the first.
    for pair in [[1, 2], [3, 0]] {
        let start = Instant::now();
        let seen = case(pair.map(|rank| (rank, 57)).to_vec()).run();
        assert!(start.elapsed() < BOUND);
        for error in seen.into_iter().flatten().map(|seen| seen.err().unwrap()) {
            assert!(
                matches!(error, RecoveryError::Lost { first, second } if [first, second] == pair),
                "{error}"
            );
            assert!(error.to_string().contains("go on from the last checkpoint"), "{error}");
        }
    }
    // Replicas have nothing that one rank alone has.
    let replicated = Mortals { sharding: Sharding::default(), ..case(vec![(1, 57), (2, 57)]) };
    assert_eq!(right(&replicated).last().unwrap().0, 2);
}

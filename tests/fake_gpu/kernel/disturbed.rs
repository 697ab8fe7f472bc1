//! Calls that fail, that do not match, or that overlap: no rank accepts wrong bytes, in any order
//! of events.

use super::case::Case;
use super::emulator::{Disturbance, Emulator, Failure, Machine, Protocol};
use super::{GRIDS, emulator};
use crate::skip;
use maypole::algorithms::Algorithm;
use maypole::schedule::collective::Collective;
use maypole_kernels::{BinaryOp, DataType};

/// `Status` in `program.h`.
const ABORTED: u16 = 1;
const MISMATCH: u16 = 3;
const OVERLAP: u16 = 4;

/// A way to disturb calls, and how the calls may end then.
pub(crate) struct Scenario {
    cases: fn(u64) -> Vec<Case>,
    disturbance: fn(u64) -> Disturbance,
    /// Every run must end with one of these.
    statuses: &'static [u16],
    /// A run may end without a failure, with right outputs.
    may_succeed: bool,
}

fn case(algorithm: Algorithm, collective: Collective, count: usize, salt: u64) -> Case {
    let schedules = algorithm.schedules(collective, 2).unwrap();
    let made = Case::new(collective, schedules, count, 200, salt);
    made.with_type(DataType::F32, BinaryOp::Sum)
}

/// The scenarios that mistakes name.
pub(crate) const SCENARIOS: [(&str, &Scenario); 7] = [
    ("barriers", &BARRIERS),
    ("crossed", &CROSSED),
    ("failure", &FAILURE),
    ("many_steps", &MANY_STEPS),
    ("overlapping", &OVERLAPPING),
    ("refused", &REFUSED),
    ("unequal", &UNEQUAL),
];

/// The same call twice, with other numbers. Kernels compare the lower half of a fingerprint.
fn sums(salt: u64) -> Vec<Case> {
    let of = |nth: u64| {
        let fingerprint = ((salt * 10 + nth) << 40) | 7;
        case(Algorithm::OneShot, Collective::AllReduce, 40, fingerprint)
    };
    (0..2).map(of).collect()
}

/// A broadcast and a sum, as long as each other.
fn broadcast_and_sum(salt: u64) -> Vec<Case> {
    let broadcast = case(Algorithm::Linear, Collective::Broadcast { root: 0 }, 40, salt * 10);
    let sum = case(Algorithm::OneShot, Collective::AllReduce, 40, salt * 10 + 1);
    vec![Case { slots: sum.slots, ..broadcast }, sum]
}

/// A short and a long message.
fn unequal_messages(salt: u64) -> Vec<Case> {
    let of = |count, nth| {
        case(Algorithm::Linear, Collective::Broadcast { root: 0 }, count, salt * 10 + nth)
    };
    let long = of(40, 1);
    vec![Case { slots: long.slots, ..of(20, 0) }, long]
}

/// Sums of many windows, which pass through few slots.
fn long_sums(salt: u64) -> Vec<Case> {
    (0..2).map(|nth| case(Algorithm::Ring, Collective::AllReduce, 1500, salt * 10 + nth)).collect()
}

/// The host of a rank asks it to give up in one of many steps.
const MANY_STEPS: Scenario = Scenario {
    cases: long_sums,
    disturbance: |seed| Disturbance {
        asked: Some((seed as usize % 2, seed * 97 % 2000)),
        ..Disturbance::default()
    },
    statuses: &[ABORTED],
    may_succeed: true,
};

/// The host of a rank asks it to give up a call, behind which it has another one.
const FAILURE: Scenario = Scenario {
    cases: sums,
    disturbance: |seed| Disturbance {
        asked: Some((seed as usize % 2, seed * 37 % 400)),
        ..Disturbance::default()
    },
    ..MANY_STEPS
};

/// One rank broadcasts and sums, the other one sums and receives the broadcast.
const CROSSED: Scenario = Scenario {
    cases: broadcast_and_sum,
    disturbance: |_| Disturbance { made: vec![vec![0, 1], vec![1, 0]], ..Disturbance::default() },
    statuses: &[MISMATCH],
    may_succeed: false,
};

/// A message is shorter than its receiver expects.
const UNEQUAL: Scenario = Scenario {
    cases: unequal_messages,
    disturbance: |_| Disturbance { made: vec![vec![0, 0], vec![1, 1]], ..Disturbance::default() },
    ..CROSSED
};

/// Each rank makes two calls at the same time.
const OVERLAPPING: Scenario = Scenario {
    cases: sums,
    disturbance: |_| Disturbance { at_once: true, ..Disturbance::default() },
    statuses: &[OVERLAP, MISMATCH],
    may_succeed: true,
};

/// The hosts have ended all walks before.
const REFUSED: Scenario = Scenario {
    cases: sums,
    disturbance: |_| Disturbance { refused: true, ..Disturbance::default() },
    statuses: &[ABORTED],
    may_succeed: false,
};

/// Barriers of all algorithms in a row.
fn barriers(salt: u64) -> Vec<Case> {
    let schedules = |algorithm: &Algorithm| algorithm.schedules(Collective::Barrier, 3);
    let made = Algorithm::ALL.iter().filter_map(schedules).zip(salt * 100..);
    made.map(|(schedules, salt)| {
        let barrier = Case::new(Collective::Barrier, schedules, 0, 200, salt);
        barrier.with_type(DataType::F32, BinaryOp::Sum)
    })
    .collect()
}

/// Some ranks are later than others.
const BARRIERS: Scenario = Scenario {
    cases: barriers,
    disturbance: |_| Disturbance::default(),
    statuses: &[],
    may_succeed: true,
};

impl Scenario {
    /// The first run of `seeds` that does not end as it should.
    pub(crate) fn first_failure(
        &self,
        emulator: &Emulator,
        protocol: Protocol,
        seeds: impl IntoIterator<Item = u64>,
    ) -> Option<(u64, Result<(), Failure>)> {
        seeds.into_iter().find_map(|seed| {
            let grid = GRIDS[seed as usize % GRIDS.len()];
            let cases = (self.cases)(seed);
            let machine = Machine { grid, protocol, seed, before: 0 };
            let end = emulator.run_disturbed(&cases, machine, &(self.disturbance)(seed));
            let is_right = match &end {
                Ok(()) => self.may_succeed,
                Err(Failure::GaveUp { status, .. }) => self.statuses.contains(status),
                Err(_) => false,
            };
            (!is_right).then_some((seed, end))
        })
    }
}

#[test]
fn disturbed_calls_are_right_or_an_error_emulated() {
    let Some(emulator) = emulator() else { return };
    for (name, it) in SCENARIOS {
        for protocol in [Protocol::Simple, Protocol::LowLatency] {
            let failure = it.first_failure(emulator, protocol, skip::every_nth(8, 0..40));
            assert!(failure.is_none(), "{name}, {protocol:?}: {failure:?}");
        }
    }
}

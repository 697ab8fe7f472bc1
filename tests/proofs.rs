//! Every algorithm, collective, root and world up to 64 keeps its promise.

use maypole::algorithms::Algorithm;
use maypole::collective::Collective;
use maypole::schedule::{Placement, Schedule, Step, input, output};
use maypole::verify::{Flaw, verify};

const WORLDS: std::ops::RangeInclusive<usize> = 1..=64;

fn roots(collective: Collective, world: usize) -> std::ops::Range<usize> {
    0..if collective.root().is_some() { world } else { 1 }
}

/// Calls `check` for every algorithm, collective, root and world of `worlds`.
fn everything(
    worlds: impl IntoIterator<Item = usize>,
    mut check: impl FnMut(Algorithm, Collective, &[Schedule], &str),
) {
    for world in worlds {
        for algorithm in Algorithm::ALL {
            for &collective in algorithm.collectives() {
                for root in roots(collective, world) {
                    let collective = collective.with_root(root);
                    let schedules = algorithm.schedules(collective, world).expect("it is in the table");
                    check(algorithm, collective, &schedules, &format!("{algorithm} {collective:?}, world {world}"));
                }
            }
        }
    }
}

#[test]
fn what_claims_to_work_in_place_does() {
    everything(WORLDS, |algorithm, collective, schedules, case| {
        if algorithm.works_in_place(collective) {
            verify(collective, schedules, Placement::InPlace).unwrap_or_else(|flaw| panic!("{case}: {flaw}"));
        }
    });
}

#[test]
fn the_others_do_not_work_in_place() {
    let mut fails = Vec::new();
    everything(1..=16, |algorithm, collective, schedules, _| {
        let fail = (algorithm, collective.with_root(0));
        if verify(collective, schedules, Placement::InPlace).is_err() && !fails.contains(&fail) {
            fails.push(fail);
        }
    });
    let mut expected = [
        (Algorithm::Ring, Collective::Scan),
        (Algorithm::Ring, Collective::ExclusiveScan),
        (Algorithm::Bruck, Collective::AllToAll),
        (Algorithm::Pairwise, Collective::AllToAll),
        (Algorithm::OneShot, Collective::AllReduce),
        (Algorithm::TwoShot, Collective::AllReduce),
        (Algorithm::Direct, Collective::ReduceScatter),
        (Algorithm::Direct, Collective::AllToAll),
        (Algorithm::Linear, Collective::Reduce { root: 0 }),
        (Algorithm::Dissemination, Collective::Barrier),
    ];
    fails.sort_by_key(|(algorithm, collective)| (algorithm.name(), collective.name()));
    expected.sort_by_key(|(algorithm, collective)| (algorithm.name(), collective.name()));
    assert_eq!(fails, expected);
}

#[test]
fn every_schedule_is_right_and_keeps_rank_order_where_its_page_says_so() {
    everything(WORLDS, |algorithm, collective, schedules, case| {
        let proof = verify(collective, schedules, Placement::Apart);
        let proof = proof.unwrap_or_else(|flaw| panic!("{case}: {flaw}"));
        use Algorithm::{Binomial, DoubleTree, Pairwise, ReduceScatterGather, Ring, Tree};
        let world = schedules.len();
        let expected = match (algorithm, collective) {
            (Ring | Tree | DoubleTree | Binomial, Collective::Reduce { root }) => root == 0,
            (Ring, Collective::AllReduce | Collective::ReduceScatter) => world == 1,
            (Pairwise, Collective::ReduceScatter) => world == 1,
            (ReduceScatterGather, _) => world.is_power_of_two(),
            _ => true,
        };
        assert_eq!(proof.keeps_rank_order, expected, "{case}");
        assert!(proof.left_to_right || !adds_left_to_right(algorithm, collective), "{case}");
    });
}

/// What is the plain loop over the ranks, bit by bit.
fn adds_left_to_right(algorithm: Algorithm, collective: Collective) -> bool {
    match algorithm {
        Algorithm::OneShot | Algorithm::TwoShot | Algorithm::Direct | Algorithm::Linear => true,
        Algorithm::Ring => matches!(collective, Collective::Scan | Collective::ExclusiveScan),
        _ => false,
    }
}

fn schedule(steps: &[Step]) -> Schedule {
    Schedule::new(1, steps.to_vec())
}

fn flaw(collective: Collective, ranks: &[&[Step]]) -> Flaw {
    let schedules: Vec<_> = ranks.iter().map(|steps| schedule(steps)).collect();
    verify(collective, &schedules, Placement::Apart).expect_err("this is wrong")
}

const BROADCAST: Collective = Collective::Broadcast { root: 0 };
const OWN: Step = Step::Copy { from: input(0), into: output(0) };

#[test]
fn each_flaw_has_its_name() {
    let send = Step::Send { from: input(0), to: 1 };
    let receive = Step::Recv { into: output(0), from: 0 };
    let check = |ranks: &[&[Step]], text: &str| assert_eq!(flaw(BROADCAST, ranks).to_string(), text);
    check(&[], "the root is rank 0, but there are only 0 ranks");
    check(
        &[&[OWN], &[OWN]],
        "rank 1, step 0: broadcast gives this rank no in0; use scratch for what is only passed on",
    );
    check(&[&[OWN, Step::Send { from: input(0), to: 2 }], &[]], "rank 0, step 1: there is no rank 2 in a world of 2");
    check(&[&[OWN, send], &[]], "stuck: rank 1 never takes what rank 0 sent");
    check(&[&[OWN], &[receive]], "stuck: rank 1 waits at its step 0 for ever");
    check(&[&[OWN], &[]], "rank 1 never gets chunk 0 of its output");
    check(
        &[&[Step::Send { from: output(0), to: 1 }, OWN], &[receive]],
        "rank 0, step 0: reads out0, which holds nothing yet",
    );
    check(
        &[&[OWN, Step::Recv { into: input(0), from: 1 }], &[]],
        "rank 0, step 1: writes in0, but the input is never written; copy it to output or scratch",
    );
    check(
        &[&[OWN, Step::Send { from: input(0), to: 0 }], &[]],
        "rank 0, step 1: talks to itself; no link leads there, use a copy or a reduce",
    );
    check(
        &[&[Step::Copy { from: input(0), into: output(3) }], &[]],
        "rank 0, step 0: out3 is out of range, that buffer has 1 chunks",
    );
}

#[test]
fn adding_twice_and_leaving_out_are_named() {
    let again = Step::Reduce { from: input(0), into: output(0) };
    let twice = flaw(Collective::AllReduce, &[&[OWN, again]]);
    assert_eq!(twice.to_string(), "rank 0, step 1: out0 gets chunk 0 of rank 0 a second time");
    let alone = flaw(Collective::AllReduce, &[&[OWN], &[OWN]]);
    assert_eq!(alone.to_string(), "rank 0 ends with a wrong chunk 0: it lacks chunk 0 of rank 1");
}

#[test]
fn ranks_must_agree_about_chunks() {
    let two = Schedule::new(2, vec![]);
    let flaw = verify(Collective::AllReduce, &[two, schedule(&[OWN])], Placement::Apart).unwrap_err();
    assert_eq!(flaw, Flaw::Chunks { rank: 1, chunks: 1, expected: 2 });
    let blocks = verify(Collective::AllGather, &[schedule(&[]), schedule(&[])], Placement::Apart).unwrap_err();
    assert_eq!(blocks, Flaw::Chunks { rank: 0, chunks: 1, expected: 2 });
}

#[test]
fn different_chunks_need_not_be_equally_long() {
    let mixed = Schedule::new(2, vec![Step::Copy { from: input(0), into: output(1) }]);
    let flaw = verify(Collective::AllReduce, &[mixed.clone(), mixed], Placement::Apart).unwrap_err();
    assert_eq!(flaw, Flaw::Length { rank: 0, step: 0, from: input(0), into: output(1) });
}

#[test]
fn a_message_must_land_where_it_fits() {
    let one = Schedule::new(2, vec![Step::Send { from: input(0), to: 1 }]);
    let other = Schedule::new(2, vec![Step::Recv { into: output(1), from: 0 }]);
    let flaw = verify(Collective::AllReduce, &[one, other], Placement::Apart).unwrap_err();
    assert_eq!(flaw, Flaw::Mismatch { rank: 1, step: 0, from: 0, sent: input(0), into: output(1) });
}

//! Every algorithm implements each of its collectives, at every root and in every world up to 64.

use crate::common::walked::walked;
use crate::common::works_in_place;
use crate::skip;
use maypole::algorithms::Algorithm;
use maypole::schedule::collective::Collective;
use maypole::schedule::verify::{Flaw, verify};
use maypole::schedule::{Placement, Schedule, Step, input, output};
use std::collections::HashSet;
use std::rc::Rc;

/// Worlds of up to 16 ranks, and a third of those up to 64.
fn worlds() -> impl Iterator<Item = usize> {
    (1..=16).chain(skip::every_nth(3, 17..=64))
}

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
                    let schedules =
                        algorithm.schedules(collective, world).expect("it is in the table");
                    check(
                        algorithm,
                        collective,
                        &schedules,
                        &format!("{algorithm} {collective:?}, world {world}"),
                    );
                }
            }
        }
    }
}

/// Those of which `works_in_place` says so, and no others.
#[test]
fn algorithms_that_claim_to_work_in_place_do() {
    crate::skip::takes_turns!(2);
    let mut fails = HashSet::new();
    everything(worlds(), |algorithm, collective, schedules, case| {
        let proof = verify(collective, schedules, Placement::InPlace);
        if let Err(flaw) = proof {
            assert!(!works_in_place(algorithm, collective), "{case}: {flaw}");
            fails.insert((algorithm, collective.name()));
        }
    });
    for algorithm in Algorithm::ALL {
        let is_other = |it: &&Collective| !works_in_place(algorithm, **it);
        for collective in algorithm.collectives().iter().filter(is_other) {
            assert!(fails.contains(&(algorithm, collective.name())), "{algorithm} {collective:?}");
        }
    }
}

#[test]
fn every_schedule_is_right_and_keeps_rank_order_where_its_page_says_so() {
    everything(worlds(), |algorithm, collective, schedules, case| {
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

/// True if the algorithm gives the bits of the plain loop over the ranks.
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
    let check =
        |ranks: &[&[Step]], text: &str| assert_eq!(flaw(BROADCAST, ranks).to_string(), text);
    check(&[], "the root is rank 0, but there are only 0 ranks");
    check(
        &[&[OWN], &[OWN]],
        "rank 1, step 0: broadcast gives this rank no in0; use scratch for chunks \
         that are only passed on",
    );
    check(
        &[&[OWN, Step::Send { from: input(0), to: 2 }], &[]],
        "rank 0, step 1: there is no rank 2 in a world of 2",
    );
    check(&[&[OWN, send], &[]], "stuck: rank 1 never takes what rank 0 sent");
    check(&[&[OWN], &[receive]], "stuck: rank 1 waits at its step 0 for ever");
    check(&[&[OWN], &[]], "rank 1: no step writes chunk 0 of the output");
    check(
        &[&[Step::Send { from: output(0), to: 1 }, OWN], &[receive]],
        "rank 0, step 0: reads out0, into which nothing was written yet",
    );
    check(
        &[&[OWN, Step::Recv { into: input(0), from: 1 }], &[]],
        "rank 0, step 1: writes in0, but the input is never written; copy it to output or scratch",
    );
    check(
        &[&[OWN, Step::Send { from: input(0), to: 0 }], &[]],
        "rank 0, step 1: sends to itself or receives from itself; use a copy or a reduce",
    );
    check(
        &[&[Step::Copy { from: input(0), into: output(3) }], &[]],
        "rank 0, step 0: out3 is out of range: that buffer has 1 chunks",
    );
}

#[test]
fn adding_twice_and_leaving_out_are_named() {
    let again = Step::Reduce { from: input(0), into: output(0) };
    let twice = flaw(Collective::AllReduce, &[&[OWN, again]]);
    assert_eq!(
        twice.to_string(),
        "rank 0, step 1: out0 already holds chunk 0 of rank 0, and it is combined a second time"
    );
    let alone = flaw(Collective::AllReduce, &[&[OWN], &[OWN]]);
    assert_eq!(alone.to_string(), "rank 0 ends with a wrong chunk 0: it lacks chunk 0 of rank 1");
}

#[test]
fn ranks_must_agree_about_chunks() {
    let two = Schedule::new(2, vec![]);
    let flaw =
        verify(Collective::AllReduce, &[two, schedule(&[OWN])], Placement::Apart).unwrap_err();
    assert_eq!(flaw, Flaw::Chunks { rank: 1, chunks: 1, expected: 2 });
    let blocks = verify(Collective::AllGather, &[schedule(&[]), schedule(&[])], Placement::Apart)
        .unwrap_err();
    assert_eq!(blocks, Flaw::Chunks { rank: 0, chunks: 1, expected: 2 });
}

#[test]
fn different_chunks_need_not_be_equally_long() {
    let mixed = Schedule::new(2, vec![Step::Copy { from: input(0), into: output(1) }]);
    let flaw =
        verify(Collective::AllReduce, &[mixed.clone(), mixed], Placement::Apart).unwrap_err();
    assert!(flaw.to_string().starts_with("rank 0, step 0: in0 and out1 are different chunks"));
}

#[test]
fn a_message_must_land_where_it_fits() {
    let one = Schedule::new(2, vec![Step::Send { from: input(0), to: 1 }]);
    let other = Schedule::new(2, vec![Step::Recv { into: output(1), from: 0 }]);
    let flaw = verify(Collective::AllReduce, &[one, other], Placement::Apart).unwrap_err();
    let sent = input(0);
    let into = output(1);
    assert_eq!(flaw, Flaw::Mismatch { rank: 1, step: 0, from: 0, sent, into, chunks: 2 });
    let text = "rank 1, step 0 expects chunk 1, but the next message from rank 0 carries chunk 0; \
                messages on one link arrive in sending order";
    assert_eq!(flaw.to_string(), text);
}

/// For chunk 7 of three ranks: `((0.7+1.7)+2.7)`, where `1.7` is chunk 7 of rank 1.
fn plain_loop(ranks: usize, chunk: usize) -> String {
    (1..ranks).fold(format!("0.{chunk}"), |sum, rank| format!("({sum}+{rank}.{chunk})"))
}

/// The order of additions, with brackets, of the first output chunk that is not the plain loop. It
/// follows from the steps without the checker's help.
fn first_other(collective: Collective, schedules: &[Schedule]) -> Option<String> {
    let world = schedules.len();
    let chunks = schedules[0].chunks;
    let places = (0..world).flat_map(|rank| (0..chunks).map(move |chunk| (rank, chunk)));
    let own = places
        .clone()
        .map(|(rank, chunk)| ((rank, input(chunk)), Rc::<str>::from(format!("{rank}.{chunk}"))));
    let made = walked(schedules, Placement::Apart, own, |a, b| format!("({a}+{b})").into());
    let made = made.expect("it is proved");
    let held = places.filter(|(rank, chunk)| collective.output(*rank).contains(*chunk));
    held.map(|(rank, chunk)| {
        let ranks = match collective {
            Collective::Scan => rank + 1,
            Collective::ExclusiveScan => rank,
            _ => world,
        };
        (made[&(rank, output(chunk))].to_string(), plain_loop(ranks, chunk))
    })
    .find_map(|(made, plain)| (made != plain).then_some(made))
}

/// Deterministic calls choose the cheapest of these algorithms, so each of them must be the plain
/// loop.
#[test]
fn what_the_checker_calls_left_to_right_is_the_plain_loop_in_worlds_up_to_64() {
    for world in worlds() {
        for collective in Collective::all(world / 3).into_iter().filter(|it| it.reduces()) {
            let mut answers = 0;
            for algorithm in Algorithm::ALL.into_iter().filter(|it| it.supports(collective)) {
                let schedules = algorithm.schedules(collective, world).unwrap();
                let proof = verify(collective, &schedules, Placement::Apart).unwrap();
                if proof.keeps_rank_order && proof.left_to_right {
                    assert_eq!(
                        first_other(collective, &schedules),
                        None,
                        "{algorithm}, {collective:?}, {world} ranks"
                    );
                    answers += 1;
                }
            }
            assert!(answers > 0, "nothing does {collective:?} of {world} ranks from left to right");
        }
    }
}

/// The property would mean little if all algorithms had it.
#[test]
fn other_algorithms_are_no_plain_loop() {
    let other = |algorithm: Algorithm, collective| {
        first_other(collective, &algorithm.schedules(collective, 4).unwrap())
    };
    let from_the_right = Some("(0.0+(1.0+(2.0+3.0)))".to_owned());
    assert_eq!(other(Algorithm::Ring, Collective::Reduce { root: 0 }), from_the_right);
    let in_pairs = Some("((0.0+1.0)+(2.0+3.0))".to_owned());
    assert_eq!(other(Algorithm::RecursiveDoubling, Collective::AllReduce), in_pairs);
}

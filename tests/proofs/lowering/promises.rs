//! Guarantees of lowering: the fewest folds, publications and counters.

use super::WINDOW;
use crate::common::SeededRng;
use crate::common::world::{Operation, World};
use maypole::algorithms::Algorithm;
use maypole::execute::Executor;
use maypole::lower::Program;
use maypole::schedule::collective::Collective;
use maypole::schedule::{Layout, Placement};

fn all_reduce(algorithm: Algorithm, world: usize, count: usize) -> Operation {
    let schedules = algorithm.schedules(Collective::AllReduce, world).expect("it is in the table");
    Operation::new(Collective::AllReduce, schedules, count, WINDOW, 1)
}

fn programs(operation: &Operation, hosts: &[usize]) -> Vec<Program> {
    (0..hosts.len()).map(|me| operation.lower::<u64>(hosts, me, Placement::Apart)).collect()
}

fn published(program: &Program) -> usize {
    program.folds.iter().filter(|fold| fold.audience != 0).count()
}

#[test]
fn fusing_leaves_the_fewest_folds_and_publications() {
    for n in 2..=8 {
        let expected = [
            // One fold publishes the vector to all ranks; a second one combines all vectors.
            (Algorithm::OneShot, 2, 1),
            // A fold for the chunk of each other rank; one that combines the contributions of all
            // ranks and sends the result to all; one for the result of each other rank.
            (Algorithm::TwoShot, 2 * n - 1, n),
            // The first send; then each receive is fused with the send that follows.
            (Algorithm::Ring, 2 * n - 1, 2 * n - 2),
        ];
        for (algorithm, folds, publications) in expected {
            for program in programs(&all_reduce(algorithm, n, 1000), &vec![0; n]) {
                assert_eq!(
                    (program.folds.len(), published(&program)),
                    (folds, publications),
                    "{algorithm}, {n} ranks"
                );
            }
        }
    }
}

#[test]
fn broadcasts_publish_once_for_all() {
    let schedules = Algorithm::Linear
        .schedules(Collective::Broadcast { root: 1 }, 5)
        .expect("it is in the table");
    let collective = Collective::Broadcast { root: 1 };
    let layout = Layout::even(10, 1);
    let operation = Operation { collective, schedules, layout, window: WINDOW, fingerprint: 1 };
    let programs = programs(&operation, &[0; 5]);
    assert_eq!((programs[1].folds.len(), programs[1].folds[0].audience), (1, 0b11101));
    assert!(programs.iter().all(|program| program.folds.len() == 1 && program.streams.is_empty()));
}

#[test]
fn flat_plans_need_no_counters() {
    for n in 2..=8 {
        for algorithm in [Algorithm::OneShot, Algorithm::TwoShot] {
            let small = programs(&all_reduce(algorithm, n, n), &vec![0; n]);
            assert!(small.iter().all(|program| program.self_crediting), "{algorithm}, {n} ranks");
        }
        let windows = programs(&all_reduce(Algorithm::OneShot, n, 100_000), &vec![0; n]);
        assert!(
            windows.iter().all(|program| program.windows > 1 && !program.self_crediting),
            "{n} ranks"
        );
    }
    let chain = all_reduce(Algorithm::Ring, 4, 4);
    assert!(
        programs(&chain, &[0; 4]).iter().all(|program| !program.self_crediting),
        "in a ring, no reader publishes to its writer"
    );
}

#[test]
fn a_program_is_as_long_for_many_windows_as_for_few() {
    let size = |program: &Program| {
        let numberings = program
            .numberings
            .iter()
            .map(|numbering| format!("{numbering:?}").matches(',').count());
        (
            program.folds.len(),
            program.sources.len(),
            program.first_of.len(),
            numberings.sum::<usize>(),
        )
    };
    for algorithm in [Algorithm::Ring, Algorithm::Tree, Algorithm::OneShot, Algorithm::TwoShot] {
        for hosts in [[0; 6], [0, 1, 2, 3, 4, 5], [0, 0, 0, 1, 1, 1]] {
            let of = |windows: usize| {
                programs(&all_reduce(algorithm, 6, windows * 6 * WINDOW / 8), &hosts)
            };
            let few = of(2);
            let many = of(1000);
            assert!(many.iter().all(|program| program.windows >= 1000), "{algorithm}");
            assert!(few.iter().map(size).eq(many.iter().map(size)), "{algorithm}, {hosts:?}");
        }
    }
}

/// Programs with and without counters may follow one another in any order, also if a rank has other
/// neighbours in each of them.
#[test]
fn programs_with_and_without_counters_may_take_turns() {
    let flat = [Algorithm::TwoShot, Algorithm::Tree, Algorithm::OneShot, Algorithm::Ring];
    for (ranks, count) in [(2, 300), (3, 1), (3, 300), (3, 30_000)] {
        let hosts = vec![0; ranks];
        let operations: Vec<_> = (0..4)
            .map(|nth| Operation {
                fingerprint: nth as u64 + 1,
                ..all_reduce(flat[nth], ranks, count)
            })
            .collect();
        let rank = |me: usize, executor: &mut Executor| {
            let programs: Vec<_> =
                operations.iter().map(|it| it.lower::<u64>(&hosts, me, Placement::Apart)).collect();
            let mut rng = SeededRng::new(9);
            for turn in 0..60 {
                let which = rng.below(4);
                for _ in 0..rng.below(9) {
                    let mut out = vec![0; count];
                    let end = operations[which].apart(
                        executor,
                        &programs[which],
                        &vec![me as u64 + 1; count],
                        &mut out,
                    );
                    end.map_err(|failure| {
                        format!("{ranks} ranks, turn {turn}, {}: {failure:?}", flat[which])
                    })?;
                    assert!(
                        out.iter().all(|sum| *sum == (ranks * (ranks + 1) / 2) as u64),
                        "turn {turn}"
                    );
                }
            }
            Ok(())
        };
        World { hosts: hosts.clone(), capacity: 1 }.run(rank).unwrap();
    }
}

//! The pipeline against one process, bit for bit.

use crate::skip;
use crate::support::{Recipe, Run, alone, full, mesh, small, train, train_by};
use half::bf16;
use maypole::Communicator;
use maypole_lab::replay::{TraceFigures, equal_stages, simulate};
use maypole_lab::theory::RankTheory;
use maypole_trainer::expert_parallel::layer::RoutingRecord;
use maypole_trainer::pipeline_parallel::plan::{PassKind, PipelineSchedule};
use maypole_trainer::train::optim::Rule;
use maypole_trainer::train::parallelism::Parallelism;
use maypole_trainer::train::schedule::RateSchedule;
use maypole_trainer::train::trainer::Trainer;

const SCHEDULES: [PipelineSchedule; 3] = [
    PipelineSchedule::GPipe,
    PipelineSchedule::OneForwardOneBackward,
    PipelineSchedule::Interleaved(2),
];

fn setup(ranks: usize, schedule: PipelineSchedule, micros: usize) -> Parallelism {
    Parallelism { schedule, micros, ..mesh(&format!("pp={ranks}")) }
}

/// One process that adds the gradients of the same micro-batches in place, in the same order.
fn reference(task: &Recipe, micros: usize) -> Run<f32> {
    train(task, &Parallelism { micros, ..Parallelism::default() })
}

#[test]
fn every_schedule_has_the_bits_of_one_process() {
    let adam =
        Recipe { rule: Rule::ADAMW, schedule: RateSchedule::constant(1e-2), steps: 5, ..small() };
    for (task, micros) in [(small(), 4), (adam, 8)] {
        let reference = reference(&task, micros);
        for ranks in [2, 4] {
            for schedule in SCHEDULES {
                // Eight stages share four layers: some stages have none.
                let run = train(&task, &setup(ranks, schedule, micros));
                assert!(
                    run.same_bits(&reference),
                    "{} on {ranks} ranks: {:?}",
                    schedule.name(),
                    run.difference(&reference)
                );
            }
        }
    }
}

#[test]
fn twenty_steps_of_the_full_model_have_the_bits_of_one_process() {
    crate::skip::takes_turns!(4);
    let task = full();
    let reference = reference(&task, 4);
    for schedule in skip::every_nth(2, SCHEDULES) {
        let run: Run<f32> = train(&task, &setup(2, schedule, 4));
        assert!(run.same_bits(&reference), "{}", schedule.name());
    }
    let (loss, weights) =
        reference.difference(&train(&task, &alone(&setup(1, PipelineSchedule::GPipe, 1))));
    assert!(
        loss < 1e-6 && weights < 1e-6,
        "micro-batches are the batch: loss {loss:e}, weights {weights:e}"
    );
}

/// Layers give 16-bit numbers, so that messages of half the bytes lose nothing.
#[test]
fn sixteen_bits_have_the_bits_of_one_process_and_travel_as_such() {
    let task = small();
    let run = |setup: &Parallelism| {
        let rank = |comm| {
            let schedule = task.schedule;
            let mut trainer =
                Trainer::new(comm, &task.config, setup.clone(), 7, (task.rule, schedule)).unwrap();
            trainer.narrow::<bf16>(7).unwrap();
            let losses = (0..6).map(|_| trainer.step(&task.text(), task.rows).unwrap().report.loss);
            (losses.collect::<Vec<_>>(), trainer.sent().pp)
        };
        Communicator::run_local(setup.mesh.world(), rank)
    };
    let alone = run(&Parallelism { micros: 4, ..Parallelism::default() }).swap_remove(0).0;
    for schedule in SCHEDULES {
        let setup = setup(2, schedule, 4);
        for (rank, (losses, sent)) in run(&setup).into_iter().enumerate() {
            assert_eq!(losses, alone, "{}", schedule.name());
            let place = setup.mesh.place(rank);
            let config = &task.config;
            let theory = RankTheory {
                config,
                setup: &setup,
                place,
                rows: task.rows,
                element: 2,
                recompute: false,
            }
            .traffic(&RoutingRecord::default());
            assert_eq!(sent, 6 * theory.pp, "{}", schedule.name());
        }
    }
}

/// The reason for the fixed order of backward passes: the same sum in another order has other bits.
#[test]
fn backwards_in_another_order_end_in_other_bits() {
    let reverse = |trainer: &mut Trainer<f32>| {
        let plan = &mut trainer.parts.pipeline.plan;
        for ops in &mut plan.ops {
            let first = ops.iter().position(|op| op.pass == PassKind::Backward).unwrap();
            ops[first..].reverse();
            let micros = plan.micros;
            ops[first..]
                .iter_mut()
                .enumerate()
                .for_each(|(nth, op)| assert_eq!(op.micro, micros - 1 - nth));
        }
    };
    let task = Recipe { steps: 1, ..small() };
    let right: Run<f32> = train(&task, &setup(2, PipelineSchedule::GPipe, 4));
    let reversed: Run<f32> = train_by(&task, &setup(2, PipelineSchedule::GPipe, 4), reverse);
    assert_eq!(right.outcome.losses, reversed.outcome.losses);
    let (_, weights) = right.difference(&reversed);
    assert!(weights > 0.0 && weights < 1e-5, "the same but for rounding: {weights:e}");
}

/// The bytes that wait are those of the formula's number of micro-batches.
#[test]
fn waiting_activations_are_those_of_the_plan() {
    let task = Recipe { steps: 1, ..small() };
    let config = &task.config;
    for (ranks, micros) in [(2, 4), (2, 8), (4, 8)] {
        for schedule in SCHEDULES {
            if schedule.chunks() * ranks > config.layers {
                continue;
            }
            let run: Run<f32> = train(&task, &setup(ranks, schedule, micros));
            let plan = schedule.plan(ranks, micros).unwrap();
            let trace = simulate(&plan, equal_stages(&plan)).unwrap();
            let setup = setup(ranks, schedule, micros);
            for (rank, seen) in run.seen.iter().enumerate() {
                let place = setup.mesh.place(rank);
                let site = RankTheory {
                    config,
                    setup: &setup,
                    place,
                    rows: task.rows,
                    element: 4,
                    recompute: false,
                };
                let held = site.activations(&RoutingRecord::default());
                let name = schedule.name();
                assert_eq!(seen.outcome.peaks.activations, held, "{name} rank {rank} of {ranks}");
            }
            assert_eq!(trace.held(0), schedule.held(ranks, micros));
        }
    }
}

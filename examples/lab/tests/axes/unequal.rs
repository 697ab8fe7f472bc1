//! Unequal shares train as one process does, on every mesh, and follow the speed of ranks.

use crate::support::{SEED, Task, alone, mesh, router, text, train};
use maypole::Communicator;
use maypole_trainer::data_parallel::sharding::Sharding;
use maypole_trainer::pipeline_parallel::plan::PipelineSchedule;
use maypole_trainer::train::schedule::RateSchedule;
use maypole_trainer::train::setup::{ContextExchange, Setup};
use maypole_trainer::train::trainer::Trainer;
use maypole_trainer::unequal_ranks::layers::LayerDivision;
use maypole_trainer::unequal_ranks::rows::{RowDivision, SpeedClock};

fn by_speed(text: &str, seconds: &[f64]) -> Setup {
    let clock = SpeedClock::Pretended(seconds.to_vec());
    Setup { rows: RowDivision::BySpeed { every: 1, clock }, ..mesh(text) }
}

/// The rows of each replica before each step, as every rank sees them.
fn rows(setup: &Setup, steps: u64) -> Vec<Vec<usize>> {
    let task = Task::small();
    let text = text(&task.config);
    let rank = |comm| {
        let rule = (task.rule, RateSchedule::constant(task.rate));
        let mut trainer =
            Trainer::<f32>::new(comm, &task.config, setup.clone(), SEED, rule).unwrap();
        let step = |_| {
            trainer.step(&text, task.rows).unwrap();
            trainer.parts.rows.each().to_vec()
        };
        (0..steps).map(step).collect::<Vec<_>>()
    };
    let mut ranks = Communicator::run_local(setup.mesh.world(), rank);
    assert!(ranks.iter().all(|seen| *seen == ranks[0]), "all ranks decide alike");
    ranks.swap_remove(0)
}

#[test]
fn unequal_rows_train_as_one_process() {
    let fsdp = Sharding::Fsdp { prefetch: true };
    let slow = [1.0, 3.0];
    for setup in [
        by_speed("dp=2", &slow),
        by_speed("dp=4", &[1.0, 2.0, 4.0, 1.0]),
        Setup { micros: 2, ..by_speed("dp=2", &slow) },
        Setup { sharding: Sharding::Zero1, ..by_speed("dp=2", &slow) },
        Setup { sharding: Sharding::Zero2, micros: 2, ..by_speed("dp=2", &slow) },
        Setup { sharding: fsdp, ..by_speed("dp=2,tp=2", &slow) },
        Setup { sequence: true, ..by_speed("dp=2,tp=2", &slow) },
        Setup { micros: 2, ..by_speed("dp=2,pp=2", &slow) },
        Setup { exchange: ContextExchange::Ulysses, ..by_speed("dp=2,cp=2", &slow) },
    ] {
        let task = Task::small();
        let run = train::<f64>(&task, &setup);
        let reference = train::<f64>(&task, &alone(&setup));
        let (loss, weights) = run.difference(&reference);
        assert!(loss < 1e-12 && weights < 1e-12 && run.agreed, "{setup:?}: {loss} {weights}");
    }
}

#[test]
fn experts_take_tokens_of_unequal_rows() {
    let task = Task::small().with_experts(4);
    let setup = Setup { router: Some(router(4)), ..by_speed("dp=2,ep=2", &[1.0, 2.0, 1.0, 4.0]) };
    let run = train::<f64>(&task, &setup);
    let reference = train::<f64>(&task, &alone(&setup));
    let (loss, weights) = run.difference(&reference);
    assert!(loss < 1e-12 && weights < 1e-12 && run.agreed, "{loss} {weights}");
}

#[test]
fn unequal_layers_are_bitwise_one_process() {
    let task = Task { steps: 4, ..Task::small() };
    let micros = 4;
    let one = train::<f32>(&task, &Setup { micros, ..alone(&mesh("")) });
    let counts = |counts: &[usize]| LayerDivision::Counts(counts.to_vec());
    for (text, layers, schedule) in [
        ("pp=2", counts(&[3, 1]), PipelineSchedule::OneForwardOneBackward),
        ("pp=2", counts(&[1, 3]), PipelineSchedule::GPipe),
        ("pp=3", counts(&[1, 2, 1]), PipelineSchedule::OneForwardOneBackward),
    ] {
        let setup = Setup { layers, schedule, micros, ..mesh(text) };
        assert!(train::<f32>(&task, &setup).same_bits(&one), "{setup:?}");
    }
    let mut task = task;
    task.config.layers = 6;
    let one = train::<f32>(&task, &Setup { micros, ..alone(&mesh("")) });
    let schedule = PipelineSchedule::Interleaved(2);
    let setup = Setup { layers: counts(&[1, 3, 1, 1]), schedule, micros, ..mesh("pp=2") };
    assert!(train::<f32>(&task, &setup).same_bits(&one), "interleaved");
}

#[test]
fn rows_follow_speed_once_and_stay() {
    let seen = rows(&by_speed("dp=2", &[1.0, 3.0]), 3);
    assert_eq!(seen, [[6, 2]; 3]);
    let every_second =
        RowDivision::BySpeed { every: 2, clock: SpeedClock::Pretended(vec![1.0, 3.0]) };
    let seen = rows(&Setup { rows: every_second, ..mesh("dp=2") }, 3);
    assert_eq!(seen, [[4, 4], [6, 2], [6, 2]]);
    assert_eq!(rows(&by_speed("dp=2", &[1.0, 1.04]), 2), [[4, 4]; 2]);
}

/// Whatever the clock says, all ranks divide alike, and every row is trained on.
#[test]
fn ranks_that_measure_divide_alike() {
    let measured = RowDivision::BySpeed { every: 1, clock: SpeedClock::Measured };
    let setup = Setup { rows: measured, ..mesh("dp=2,tp=2") };
    for each in rows(&setup, 12) {
        assert!(each.iter().sum::<usize>() == 8 && !each.contains(&0), "{each:?}");
    }
    let task = Task { steps: 12, ..Task::small() };
    let (loss, weights) = train::<f64>(&task, &setup).difference(&train(&task, &alone(&setup)));
    assert!(loss < 1e-11 && weights < 1e-11, "{loss} {weights}");
}

#[test]
fn unequal_divisions_that_cannot_be_are_refused() {
    let refusal = |setup: Setup| {
        let task = Task::small();
        setup.check(&task.config, task.rows).unwrap_err()
    };
    let local = Setup { sharding: Sharding::Local { every: 2 }, ..by_speed("dp=2", &[1.0, 2.0]) };
    assert!(refusal(local).contains("--sharding"));
    assert!(refusal(by_speed("dp=4", &[1.0, 2.0])).contains("4 numbers"));
    let layers = LayerDivision::Counts(vec![3, 2]);
    assert!(refusal(Setup { layers, micros: 4, ..mesh("pp=2") }).contains("sum is 4"));
}

//! Unequal shares train as one process does, on every mesh, and follow the speed of ranks.

use crate::support::{Recipe, alone, mesh, router, small, train, with_experts};
use maypole_lab::averaging::DataForm;
use maypole_lab::unequal::rows::{RowDivision, SpeedClock};
use maypole_trainer::data_parallel::sharding::Sharding;
use maypole_trainer::pipeline_parallel::plan::PipelineSchedule;
use maypole_trainer::train::parallelism::{ContextExchange, Parallelism};
use maypole_trainer::train::trainer::Trainer;

/// Rows by these seconds of a row, divided anew after each step.
fn by_speed(seconds: &[f64]) -> RowDivision {
    RowDivision::BySpeed { every: 1, clock: SpeedClock::Pretended(seconds.to_vec()) }
}

/// The rows of each replica before each step, as every rank sees them.
fn rows(setup: &Parallelism, division: &RowDivision, steps: u64) -> Vec<Vec<usize>> {
    let task = Recipe { steps, division: division.clone(), ..small() };
    let rank = |mut trainer: Trainer<f32>| {
        let mut seen = Vec::new();
        task.follow(&mut trainer, |trainer, _, _| {
            seen.push(trainer.parts.rows.each().unwrap().to_vec());
            Ok(())
        })?;
        Ok(seen)
    };
    let mut ranks = task.on_ranks(setup, rank).unwrap();
    assert!(ranks.iter().all(|seen| *seen == ranks[0]), "all ranks decide alike");
    ranks.swap_remove(0)
}

#[test]
fn unequal_rows_train_as_one_process() {
    let fsdp = Sharding::Fsdp { prefetch: true };
    let task = |seconds: &[f64]| Recipe { division: by_speed(seconds), ..small() };
    let slow = || task(&[1.0, 3.0]);
    for (task, setup) in [
        (slow(), mesh("dp=2")),
        (task(&[1.0, 2.0, 4.0, 1.0]), mesh("dp=4")),
        (slow(), Parallelism { micros: 2, ..mesh("dp=2") }),
        (slow(), Parallelism { sharding: Sharding::Zero1, ..mesh("dp=2") }),
        (slow(), Parallelism { sharding: Sharding::Zero2, micros: 2, ..mesh("dp=2") }),
        (slow(), Parallelism { sharding: fsdp, ..mesh("dp=2,tp=2") }),
        (slow(), Parallelism { sequence: true, ..mesh("dp=2,tp=2") }),
        (slow(), Parallelism { micros: 2, ..mesh("dp=2,pp=2") }),
        (slow(), Parallelism { exchange: ContextExchange::Ulysses, ..mesh("dp=2,cp=2") }),
    ] {
        let run = train::<f64>(&task, &setup);
        let reference = train::<f64>(&small(), &alone(&setup));
        let (loss, weights) = run.difference(&reference);
        assert!(loss < 1e-12 && weights < 1e-12 && run.agreed, "{setup:?}: {loss} {weights}");
    }
}

#[test]
fn experts_take_tokens_of_unequal_rows() {
    let task = with_experts(small(), 4);
    let setup = Parallelism { router: Some(router(4)), ..mesh("dp=2,ep=2") };
    let division = by_speed(&[1.0, 2.0, 1.0, 4.0]);
    let run = train::<f64>(&Recipe { division, ..task.clone() }, &setup);
    let reference = train::<f64>(&task, &alone(&setup));
    let (loss, weights) = run.difference(&reference);
    assert!(loss < 1e-12 && weights < 1e-12 && run.agreed, "{loss} {weights}");
}

#[test]
fn unequal_layers_are_bitwise_one_process() {
    let task = Recipe { steps: 4, ..small() };
    let micros = 4;
    let one = train::<f32>(&task, &Parallelism { micros, ..alone(&mesh("")) });
    let counts = |counts: &[usize]| Some(counts.to_vec());
    for (text, layers, schedule) in [
        ("pp=2", counts(&[3, 1]), PipelineSchedule::OneForwardOneBackward),
        ("pp=2", counts(&[1, 3]), PipelineSchedule::GPipe),
        ("pp=3", counts(&[1, 2, 1]), PipelineSchedule::OneForwardOneBackward),
    ] {
        let setup = Parallelism { layers, schedule, micros, ..mesh(text) };
        assert!(train::<f32>(&task, &setup).same_bits(&one), "{setup:?}");
    }
    let mut task = task;
    task.config.layers = 6;
    let one = train::<f32>(&task, &Parallelism { micros, ..alone(&mesh("")) });
    let schedule = PipelineSchedule::Interleaved(2);
    let setup = Parallelism { layers: counts(&[1, 3, 1, 1]), schedule, micros, ..mesh("pp=2") };
    assert!(train::<f32>(&task, &setup).same_bits(&one), "interleaved");
}

#[test]
fn rows_follow_speed_once_and_stay() {
    let seen = rows(&mesh("dp=2"), &by_speed(&[1.0, 3.0]), 3);
    assert_eq!(seen, [[6, 2]; 3]);
    let every_second =
        RowDivision::BySpeed { every: 2, clock: SpeedClock::Pretended(vec![1.0, 3.0]) };
    let seen = rows(&mesh("dp=2"), &every_second, 3);
    assert_eq!(seen, [[4, 4], [6, 2], [6, 2]]);
    assert_eq!(rows(&mesh("dp=2"), &by_speed(&[1.0, 1.04]), 2), [[4, 4]; 2]);
}

/// All ranks compute the same division from any measured times, and every row is trained on.
#[test]
fn ranks_that_measure_divide_alike() {
    let measured = RowDivision::BySpeed { every: 1, clock: SpeedClock::Measured };
    let setup = mesh("dp=2,tp=2");
    for each in rows(&setup, &measured, 12) {
        assert!(each.iter().sum::<usize>() == 8 && !each.contains(&0), "{each:?}");
    }
    let task = Recipe { steps: 12, ..small() };
    let reference = train::<f64>(&task, &alone(&setup));
    let run = train(&Recipe { division: measured, ..task }, &setup);
    let (loss, weights) = run.difference(&reference);
    assert!(loss < 1e-11 && weights < 1e-11, "{loss} {weights}");
}

#[test]
fn unequal_divisions_that_cannot_be_are_refused() {
    let config = small().config;
    let refusal = |text: &str, form: DataForm| {
        by_speed(&[1.0, 2.0]).check(&config, &mesh(text), form).unwrap_err()
    };
    assert!(refusal("dp=2", DataForm::Local { every: 2 }).contains("--sharding"));
    assert!(refusal("dp=4", Sharding::default().into()).contains("4 numbers"));
    for wrong in [vec![3, 2], vec![4], vec![4, 0], vec![2, 1, 1], vec![usize::MAX, 5]] {
        let setup = Parallelism { layers: Some(wrong), micros: 4, ..mesh("pp=2") };
        let why = setup.check(&config, 8).unwrap_err();
        assert!(why.contains("2 positive numbers whose sum is 4"), "{why}");
    }
}

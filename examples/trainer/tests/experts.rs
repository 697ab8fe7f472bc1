//! Experts on ranks against experts in one process.

mod support;

use maypole_trainer::moe::Router;
use maypole_trainer::setup::Setup;
use support::{Run, Task, alone, mesh, router, train};

const EXPERTS: usize = 8;

fn task() -> Task {
    let mut task = Task::full().with_experts(EXPERTS);
    (task.config.layers, task.config.width, task.config.context) = (2, 32, 32);
    task
}

fn setup(text: &str, capacity: Option<f32>) -> Setup {
    let router = Router { capacity, group: 8, ..router(EXPERTS) };
    Setup { router: Some(router), ..mesh(text) }
}

/// Tokens sent to each expert and choices dropped, over all ranks with other tokens.
fn seen<T>(run: &Run<T>, setup: &Setup) -> (Vec<u64>, usize) {
    let (mut load, mut dropped) = (vec![0; EXPERTS], 0);
    for (rank, seen) in run.seen.iter().enumerate() {
        if setup.mesh.place(rank).at(maypole_trainer::mesh::Axis::Tp) == 0 {
            let layers = seen.ledger.load.chunks(EXPERTS);
            layers.for_each(|layer| load.iter_mut().zip(layer).for_each(|(sum, load)| *sum += load));
            dropped += seen.ledger.dropped;
        }
    }
    (load, dropped)
}

#[test]
fn twenty_steps_end_where_one_process_ends() {
    let task = task();
    let reference: Run<f32> = train(&task, &alone(&setup("", None)));
    assert!(reference.losses[19] < reference.losses[0]);
    for text in ["ep=2", "ep=4", "dp=2,ep=2", "ep=2,tp=2"] {
        let run = train(&task, &setup(text, None));
        let (loss, weights) = run.far(&reference);
        assert!(loss < 1e-6 && weights < 1e-5, "{text}: loss {loss:e}, weights {weights:e}");
        assert!(run.agreed);
    }
}

/// With the same weights the same choices are made and the same ones dropped, wherever tokens and experts are.
#[test]
fn routing_and_dropping_do_not_depend_on_the_mesh() {
    let task = Task { steps: 1, ..task() };
    let choices = task.rows * task.config.context * 2 * task.config.layers;
    for capacity in [None, Some(1.0), Some(0.5)] {
        let reference: Run<f32> = train(&task, &alone(&setup("", capacity)));
        let (load, dropped) = seen(&reference, &Setup::default());
        assert_eq!(load.iter().sum::<u64>() as usize + dropped, choices, "no choice is lost or made");
        assert_eq!(dropped > 0, capacity.is_some());
        for text in ["ep=2", "ep=8", "dp=2,ep=2", "ep=2,tp=2", "ep=2,cp=2", "pp=2,ep=2"] {
            let setup = setup(text, capacity);
            let run = train(&task, &setup);
            assert_eq!(seen(&run, &setup), (load.clone(), dropped), "{text}, capacity {capacity:?}");
            let (loss, weights) = run.far(&reference);
            assert!(loss < 1e-6 && weights < 1e-5, "{text}: loss {loss:e}, weights {weights:e}");
        }
    }
}

//! Experts on ranks against experts in one process.

use crate::support::{Recipe, Run, alone, full, mesh, router, train, with_experts};
use maypole_trainer::expert_parallel::layer::DroppedChoice;
use maypole_trainer::expert_parallel::router::Router;
use maypole_trainer::ranks::mesh::MeshAxis;
use maypole_trainer::train::parallelism::Parallelism;
use std::collections::BTreeSet;

const EXPERTS: usize = 8;

fn task() -> Recipe {
    let mut task = with_experts(full(), EXPERTS);
    (task.config.layers, task.config.width, task.config.context) = (2, 32, 32);
    task
}

fn setup(text: &str, capacity: Option<f32>) -> Parallelism {
    let router = Router { capacity, group: 8, ..router(EXPERTS) };
    Parallelism { router: Some(router), ..mesh(text) }
}

/// The decisions of routers; rows, positions, layers and experts have their numbers in the whole
/// batch and model.
#[derive(Debug, Default, PartialEq)]
struct Decided {
    /// Tokens sent to each expert, layer after layer.
    load: Vec<u64>,
    /// Layer, row, position and expert of each choice that was dropped.
    dropped: BTreeSet<[usize; 4]>,
}

/// The decisions of all ranks in a step of one micro-batch. Ranks of `tp` have the same tokens, of
/// which one rank counts.
fn decided<T>(run: &Run<T>, setup: &Parallelism, task: &Recipe) -> Decided {
    let mut decided = Decided { load: vec![0; task.config.layers * EXPERTS], ..Decided::default() };
    for (rank, seen) in run.seen.iter().enumerate() {
        let mesh = setup.mesh;
        let place = setup.mesh.place(rank);
        let dropped = global(&seen.routing.dropped, setup, rank, task);
        if place.at(MeshAxis::Tp) > 0 {
            assert!(
                dropped.iter().all(|choice| decided.dropped.contains(choice)),
                "ranks of tp drop alike"
            );
            continue;
        }
        decided.load.iter_mut().zip(&seen.routing.load).for_each(|(sum, load)| *sum += load);
        let before = decided.dropped.len();
        decided.dropped.extend(&dropped);
        assert_eq!(
            decided.dropped.len(),
            before + dropped.len(),
            "{mesh}: a choice is dropped once"
        );
    }
    decided
}

/// The choices that `rank` dropped, with rows and positions of the whole batch.
fn global(
    dropped: &[DroppedChoice],
    setup: &Parallelism,
    rank: usize,
    task: &Recipe,
) -> Vec<[usize; 4]> {
    let mesh = setup.mesh;
    let place = setup.mesh.place(rank);
    let positions = setup.division.positions(
        place.at(MeshAxis::Cp),
        mesh.size(MeshAxis::Cp),
        task.config.context,
    );
    let first = setup.micro_rows(task.rows)
        * (place.at(MeshAxis::Dp) * mesh.size(MeshAxis::Ep) + place.at(MeshAxis::Ep));
    let of = |it: &DroppedChoice| {
        let row = it.token / positions.len();
        let column = it.token % positions.len();
        [it.layer, first + row, positions[column], it.expert]
    };
    dropped.iter().map(of).collect()
}

#[test]
fn twenty_steps_end_where_one_process_ends() {
    crate::skip::takes_turns!(4);
    let task = task();
    let reference: Run<f32> = train(&task, &alone(&setup("", None)));
    assert!(reference.outcome.losses[19] < reference.outcome.losses[0]);
    for text in ["ep=2", "ep=4", "dp=2,ep=2", "ep=2,tp=2"] {
        let run = train(&task, &setup(text, None));
        let (loss, weights) = run.difference(&reference);
        assert!(loss < 1e-6 && weights < 1e-5, "{text}: loss {loss:e}, weights {weights:e}");
        assert!(run.agreed);
    }
}

/// With the same weights the same choices are made and the same ones dropped, wherever tokens and
/// experts are.
#[test]
fn routing_and_dropping_do_not_depend_on_the_mesh() {
    let task = Recipe { steps: 1, ..task() };
    let choices = task.rows * task.config.context * 2 * task.config.layers;
    for capacity in [None, Some(1.0), Some(0.5)] {
        let reference: Run<f32> = train(&task, &alone(&setup("", capacity)));
        let expected = decided(&reference, &Parallelism::default(), &task);
        let kept = expected.load.iter().sum::<u64>() as usize;
        assert_eq!(kept + expected.dropped.len(), choices, "no choice is lost or made");
        assert_eq!(expected.dropped.is_empty(), capacity.is_none());
        for text in ["ep=2", "ep=8", "dp=2,ep=2", "ep=2,tp=2", "ep=2,cp=2", "pp=2,ep=2"] {
            let setup = setup(text, capacity);
            let run = train(&task, &setup);
            assert_eq!(decided(&run, &setup, &task), expected, "{text}, capacity {capacity:?}");
            let (loss, weights) = run.difference(&reference);
            assert!(loss < 1e-6 && weights < 1e-5, "{text}: loss {loss:e}, weights {weights:e}");
        }
    }
}

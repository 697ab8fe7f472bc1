//! Whole trainings whose layers run on a GPU, on every axis: the results are those of one process on
//! the CPU, by the criteria of the trainings on the CPU.

use crate::cases::Number;
use crate::support::{
    Recipe, Run, SEED, alone, full, mesh, router, small, train, train_by, with_experts,
};
use crate::{emulated, gpu};
use half::bf16;
use maypole_trainer::model::config::Architecture;
use maypole_trainer::pipeline_parallel::plan::PipelineSchedule;
use maypole_trainer::ranks::group::SumOrder;
use maypole_trainer::train::parallelism::{ContextExchange, Parallelism};
use maypole_trainer_gpu::device::GpuDevice;
use maypole_trainer_kernels::layers::Machine;
use std::sync::Arc;

/// In `f64`, the greatest relative difference of a loss and the greatest difference of a weight:
/// as between meshes on the processor.
const NOISE: f64 = 1e-11;
/// The same in `f32`, after a few steps of gradient descent.
const SINGLE_NOISE: f64 = 1e-5;

/// Every axis, with what can be switched on.
fn setups() -> Vec<Parallelism> {
    let ulysses = |text| Parallelism { exchange: ContextExchange::Ulysses, ..mesh(text) };
    let interleaved = PipelineSchedule::Interleaved(2);
    vec![
        mesh(""),
        mesh("dp=2"),
        Parallelism { sequence: true, ..mesh("tp=2") },
        Parallelism { micros: 2, schedule: interleaved, ..mesh("pp=2") },
        mesh("cp=2"),
        ulysses("cp=2"),
        mesh("dp=2,tp=2"),
    ]
}

/// A few steps of a model that is small for an emulated GPU.
fn task() -> Recipe {
    let mut task = Recipe { rows: 4, steps: 2, ..small() };
    task.config.layers = 2;
    task.config.context = 8;
    task
}

fn llama(mut task: Recipe) -> Recipe {
    task.config.architecture = Architecture::Llama { kv_heads: 2 };
    task
}

/// [`train`], with the layers of each rank on a machine of its own.
fn train_on<T: Number, M: Machine + 'static>(
    task: &Recipe,
    setup: &Parallelism,
    machine: &(impl Fn() -> M + Sync),
) -> Run<T> {
    train_by(task, setup, |trainer| {
        trainer.parts.model.device = Arc::new(GpuDevice::new(machine()));
    })
}

fn check<T: Number, M: Machine + 'static>(
    task: &Recipe,
    setups: &[Parallelism],
    machine: impl Fn() -> M + Sync,
    noise: f64,
) {
    let reference: Run<T> = train(task, &alone(&setups[0]));
    for setup in setups {
        let run: Run<T> = train_on(task, setup, &machine);
        let (loss, weights) = run.difference(&reference);
        assert!(
            loss <= noise && weights <= noise,
            "{}: loss {loss:e}, weights {weights:e}",
            setup.mesh
        );
        assert!(run.agreed, "{}: ranks that have the same weights disagree about them", setup.mesh);
    }
}

fn expert_setups() -> Vec<Parallelism> {
    ["ep=2", "ep=2,tp=2"].map(|text| Parallelism { router: Some(router(4)), ..mesh(text) }).into()
}

/// Trains a GPT on every axis, and a Llama and a model of experts on those of `few`.
fn check_every_axis<M: Machine + 'static>(
    task: &Recipe,
    few: [&[Parallelism]; 2],
    machine: impl Fn() -> M + Sync,
) {
    check::<f64, M>(task, &setups(), &machine, NOISE);
    check::<f64, M>(&llama(task.clone()), few[0], &machine, NOISE);
    check::<f64, M>(&with_experts(task.clone(), 4), few[1], &machine, NOISE);
}

#[test]
fn meshes_train_as_one_process_on_the_processor_emulated() {
    crate::skip::takes_turns!(4);
    let Some(emulator) = emulated() else { return };
    let few = [&setups()[2..3], &expert_setups()[..1]];
    check_every_axis(&task(), few, || emulator.start());
    check::<f32, _>(&task(), &[mesh(""), mesh("dp=2")], || emulator.start(), SINGLE_NOISE);
}

#[test]
fn meshes_train_as_one_process_on_the_processor_on_a_gpu() {
    let Some(_) = gpu() else { return };
    let machine = || gpu().expect("the GPU was there");
    check_every_axis(&small(), [&setups(), &expert_setups()], machine);
    check::<f32, _>(&small(), &setups(), machine, SINGLE_NOISE);
    check::<f32, _>(&llama(small()), &setups(), machine, SINGLE_NOISE);
}

/// Trains twice with sums in the order of ranks; both runs have the same bits.
fn check_bits<M: Machine + 'static>(task: &Recipe, machine: impl Fn() -> M + Sync) {
    let setup = Parallelism { order: SumOrder::Ranks, ..mesh("dp=2") };
    let [first, second] = [(); 2].map(|()| train_on::<f32, M>(task, &setup, &machine));
    assert!(first.same_bits(&second));
}

#[test]
fn the_same_training_gives_the_same_bits_emulated() {
    crate::skip::takes_turns!(4);
    let Some(emulator) = emulated() else { return };
    check_bits(&task(), || emulator.start());
}

#[test]
fn the_same_training_gives_the_same_bits_on_a_gpu() {
    let Some(_) = gpu() else { return };
    check_bits(&full(), || gpu().expect("the GPU was there"));
}

/// Trains in 16 bits. The losses are those of the processor, but for roundings to 16 bits, which
/// may fall to the other side.
fn check_narrow<M: Machine + 'static>(task: &Recipe, machine: impl Fn() -> M + Sync) {
    let setup = mesh("");
    let expected: Run<f32> =
        train_by(task, &setup, |trainer| trainer.narrow::<bf16>(SEED).unwrap());
    let found: Run<f32> = train_by(task, &setup, |trainer| {
        trainer.parts.model.device = Arc::new(GpuDevice::new(machine()));
        trainer.narrow::<bf16>(SEED).unwrap();
    });
    let (loss, _) = found.difference(&expected);
    assert!(loss > 0.0 && loss < 1e-3, "loss {loss:e}");
}

#[test]
fn training_in_16_bits_emulated() {
    crate::skip::takes_turns!(4);
    let Some(emulator) = emulated() else { return };
    check_narrow(&task(), || emulator.start());
}

#[test]
fn training_in_16_bits_on_a_gpu() {
    let Some(_) = gpu() else { return };
    check_narrow(&small(), || gpu().expect("the GPU was there"));
}

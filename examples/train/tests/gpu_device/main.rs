//! Layers on NVIDIA GPUs: each compared with the processor, and whole trainings on every axis.
//!
//! The same cases run on a GPU that is emulated, in tests whose names end in `_emulated`: the
//! kernels compiled for the CPU. They do not model a GPU's speed. The other tests need a GPU, and
//! are reported as skipped where there is none.

#[path = "../../../../tests/common/fake_gpu.rs"]
mod fake_gpu;
#[path = "../../../../tests/common/skip.rs"]
mod skip;
#[path = "../../../lab/tests/support/mod.rs"]
mod support;

mod cases;
mod command;
mod emulator;
mod failures;
mod fake;
mod layers;
mod speed;
mod tour;
mod training;

use emulator::Emulator;
use maypole_trainer_kernels::layers::Gpu;

/// The emulator, unless there is no C++ compiler.
fn emulated() -> Option<&'static Emulator> {
    let made = Emulator::right();
    if made.is_none() {
        skip::skipped("there is no C++ compiler: 'c++' cannot be started");
    }
    made
}

/// GPU 0, unless there is none.
fn gpu() -> Option<Gpu> {
    Gpu::open(0).inspect_err(|why| skip::skipped(format!("CUDA unavailable: {why}"))).ok()
}

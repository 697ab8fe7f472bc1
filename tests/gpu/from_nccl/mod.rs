//! A program for `cudarc::nccl` compiles against `maypole::cuda` by other imports, and runs. The
//! text that is included twice is one file: rustc compares the names and the arguments of both
//! libraries.

use crate::fake_gpu::FakeDriver;
use std::path::PathBuf;
use std::process::Command;

/// As such programs are written. NCCL itself is never loaded: nothing here is called.
#[allow(dead_code, clippy::let_unit_value, reason = "it is compiled, and not called")]
mod on_nccl {
    use cudarc::driver::{CudaSlice, CudaStream};
    use cudarc::nccl::safe::{Comm, Group, Id, ReduceOp};
    use std::sync::Arc;

    include!("../../../examples/from_nccl/program.rs");
    include!("every_call.rs");
}

/// The same text.
#[allow(dead_code, clippy::let_unit_value, reason = "the lesson runs it; results are not ours")]
mod on_maypole {
    use cudarc::driver::{CudaSlice, CudaStream};
    use maypole::ReduceOp;
    use maypole::cuda::{Comm, Group, Id};
    use std::sync::Arc;

    include!("../../../examples/from_nccl/program.rs");
    include!("every_call.rs");
}

/// The lesson over the fake driver with these variables, or on this machine's GPUs.
fn lesson(variables: Option<&[(&str, &str)]>) -> Option<String> {
    let here = std::env::current_exe().unwrap();
    let built: PathBuf = here.ancestors().nth(2).unwrap().join("examples/13_from_nccl");
    let mut command = Command::new(built);
    if let Some(variables) = variables {
        let driver = FakeDriver::get()?;
        driver.set(&mut command).env("CUDA_VISIBLE_DEVICES", "0,1,2,3");
        command.envs(variables.iter().copied());
    }
    let output = command.output().expect("'cargo test' builds the lesson");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    Some(said)
}

const RESULTS: &str = "rank 0: gradient 0.5, weight 10, token 101\n\
                       rank 1: gradient 0.5, weight 10, token 100\n";

#[test]
fn the_lesson_gives_its_results_on_one_gpu_and_on_two_emulated() {
    for devices in ["1", "2"] {
        let Some(said) = lesson(Some(&[("FAKE_CUDA_DEVICES", devices)])) else { return };
        assert_eq!(said, RESULTS, "{devices} GPUs");
    }
}

#[test]
fn the_lesson_says_why_there_is_no_gpu_and_ends_well() {
    if maypole::cuda::driver().is_err() {
        let said = lesson(None).expect("nothing is compiled for it");
        assert!(said.starts_with("CUDA unavailable: no driver"), "{said}");
    }
    let Some(said) = lesson(Some(&[("FAKE_CUDA_DEVICES", "0")])) else { return };
    assert!(said.starts_with("CUDA unavailable: "), "{said}");
}

/// The documentation lists what differs; this keeps it from claiming calls that are not compared.
#[test]
fn every_public_call_of_the_table_is_compared() {
    let calls = include_str!("every_call.rs");
    let table = include_str!("../../../src/cuda/mod.rs");
    let group = include_str!("../../../src/cuda/group.rs");
    assert!(table.contains("tests/gpu/from_nccl"));
    for line in group.lines().filter_map(|line| line.trim().strip_prefix("pub fn ")) {
        let name = line.split(['<', '(']).next().unwrap();
        // `end` returns an error, which cudarc's group cannot: it panics when it is dropped.
        let is_ours = name == "end";
        assert!(is_ours || calls.contains(&format!(".{name}(")), "{name} is not compared");
    }
}

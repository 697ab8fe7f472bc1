//! `train run --device cuda`, where there is a GPU.

use crate::gpu;
use std::path::PathBuf;
use std::process::Command;

/// The trainer's program: where it was built, or, on another machine, in the folder of this program.
pub(crate) fn train() -> Command {
    let built = PathBuf::from(env!("CARGO_BIN_EXE_train"));
    let beside = || std::env::current_exe().unwrap().parent().unwrap().join("../train");
    Command::new(if built.exists() { built } else { beside() })
}

/// What `train run` with these options prints; `None` if there is no GPU.
fn train_on_gpu(options: &[&str]) -> Option<String> {
    gpu()?;
    let few = ["run", "--device", "cuda", "--steps", "5", "--width", "32", "--layers", "2"];
    let ran = train().args(few).args(options).output().unwrap();
    let printed = String::from_utf8_lossy(&ran.stdout).into_owned();
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{printed}{errors}");
    assert!(printed.contains("rank 0 computes layers on GPU 0, "), "{printed}");
    Some(printed)
}

#[test]
fn a_run_on_every_axis_is_that_of_one_process_on_the_processor_on_a_gpu() {
    let axes: [&[&str]; 6] = [
        &["--mesh", "dp=2"],
        &["--mesh", "tp=2", "--sequence"],
        &["--mesh", "pp=2"],
        &["--mesh", "cp=2"],
        &["--mesh", "ep=2", "--experts", "4"],
        &["--mesh", "dp=2,tp=2", "--model", "llama", "--sharding", "zero1", "--processes"],
    ];
    for axis in axes {
        // Compares each step's gradients with one process, whose layers run on the processor.
        let options = [axis, &["--against", "one", "--sample", "0"]].concat();
        let Some(printed) = train_on_gpu(&options) else { return };
        assert!(printed.contains("from one process: loss "), "{axis:?}: {printed}");
        let right = !printed.contains("WRONG") && !printed.contains("replicas differ");
        assert!(right, "{axis:?}: {printed}");
    }
}

#[test]
fn a_run_in_16_bits_on_a_gpu() {
    let Some(printed) = train_on_gpu(&["--precision", "bf16", "--sample", "20"]) else { return };
    assert!(printed.contains("validation loss"), "{printed}");
}

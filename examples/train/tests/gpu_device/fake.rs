//! The same over the fake driver of `tests/fake_gpu/driver/`: everything from the command
//! line to the launch of a kernel is the code for a real GPU, and only the driver is another.

use crate::command::train;
use crate::emulator;
use crate::fake_gpu::{FakeDriver, OtherKernels};
use maypole_trainer_kernels::layers::MODULES;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// Makes `command` use the fake driver with these variables; `None` if there is no C++ compiler.
pub(crate) fn over_fake<'a>(
    command: &'a mut Command,
    variables: &[(&str, &str)],
) -> Option<&'a mut Command> {
    let modules =
        ["layers_f32", "layers_f64"].map(|name| (name.to_owned(), MODULES.ptx(name).unwrap()));
    let driver = FakeDriver::with(OtherKernels {
        sources: vec![emulator::sources().join("layers.cpp")],
        folders: vec![emulator::kernels(), emulator::sources()],
        modules: modules.into(),
    })?;
    // Whatever the machine's own GPUs are used for.
    let command = driver.set(command).env("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7");
    Some(command.envs(variables.iter().copied()))
}

#[test]
fn tests_of_layers_on_a_gpu_pass_over_the_fake_driver_emulated() {
    crate::skip::takes_turns!(4);
    let mut tests = Command::new(std::env::current_exe().unwrap());
    // Not this test itself: it would start itself again and again.
    tests.args(["layers::", "--skip", "emulated", "--nocapture"]).env_remove("SKIPPED_TESTS");
    let Some(command) = over_fake(&mut tests, &[]) else { return };
    let ran = command.output().unwrap();
    let printed = String::from_utf8_lossy(&ran.stdout);
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{printed}{errors}");
    assert!(!errors.contains("CUDA unavailable"), "{errors}");
    assert!(printed.contains("9 passed"), "{printed}");
}

/// `train run` of a small model on GPUs.
fn small(options: &[&str]) -> Command {
    let model = ["--width", "16", "--layers", "2", "--context", "8", "--rows", "4"];
    let mut command = train();
    command.args(["run", "--device", "cuda", "--steps", "2"]).args(model).args(options);
    command
}

/// A training with these options and these variables of the driver: whether it succeeded, its
/// standard output, and its standard error.
fn train_over_fake(options: &[&str], variables: &[(&str, &str)]) -> Option<(bool, String, String)> {
    let ran = over_fake(&mut small(options), variables)?.output().unwrap();
    let [printed, errors] = [ran.stdout, ran.stderr].map(|text| String::from_utf8(text).unwrap());
    Some((ran.status.success(), printed, errors))
}

#[test]
fn a_run_over_the_fake_driver_is_that_of_one_process_emulated() {
    crate::skip::takes_turns!(4);
    for mesh in ["dp=2", "tp=2"] {
        let mut command = small(&["--mesh", mesh, "--against", "one"]);
        let Some(command) = over_fake(&mut command, &[]) else { return };
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        // The validation after the last step would take an emulated GPU minutes.
        let mut printed = Vec::new();
        for line in lines {
            let last = line.starts_with("after step 2: ");
            printed.push(line);
            if last {
                break;
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let printed = printed.join("\n");
        assert!(printed.starts_with("rank 0 computes layers on GPU 0, "), "{printed}");
        assert_eq!(printed.matches("from one process: loss ").count(), 2, "{printed}");
        let right = !printed.contains("WRONG") && !printed.contains("replicas differ");
        assert!(right, "{printed}");
    }
}

#[test]
fn a_kernel_that_fails_in_a_step_ends_all_ranks_with_its_reason_emulated() {
    crate::skip::takes_turns!(4);
    // 700 is an access to an address that is no memory.
    let failing = [("FAKE_CUDA_FAIL", "kernel:100:700")];
    for processes in [&[][..], &["--processes"]] {
        let options = [&["--mesh", "dp=2"], processes].concat();
        let Some((done, printed, errors)) = train_over_fake(&options, &failing) else { return };
        assert!(!done, "{printed}{errors}");
        assert!(errors.contains("the device that computes layers has failed"), "{errors}");
        assert!(errors.contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "{errors}");
        assert!(!printed.contains("validation loss"), "{printed}");
    }
}

#[test]
fn too_little_memory_is_told_with_what_to_do_emulated() {
    let small = [("FAKE_CUDA_MEMORY", "1000000")];
    let Some((done, printed, errors)) = train_over_fake(&[], &small) else { return };
    assert!(!done, "{printed}{errors}");
    assert!(errors.contains("GPU 0: a layer needs 2 MiB of its memory"), "{errors}");
    assert!(errors.contains("compute fewer rows at a time"), "{errors}");
    assert!(errors.contains("CUDA_ERROR_OUT_OF_MEMORY"), "{errors}");
}

#[test]
fn a_gpu_that_does_not_start_is_told_before_training_emulated() {
    crate::skip::takes_turns!(4);
    let broken = [("FAKE_CUDA_FAIL", "cuStreamCreate:0:999")];
    let options = ["--mesh", "dp=2"];
    let Some((done, printed, errors)) = train_over_fake(&options, &broken) else { return };
    assert!(!done && printed.is_empty(), "{printed}{errors}");
    assert!(errors.contains("CUDA unavailable: the driver does not start"), "{errors}");
    let none = [("FAKE_CUDA_DEVICES", "0")];
    let Some((done, printed, errors)) = train_over_fake(&options, &none) else { return };
    assert!(!done && printed.is_empty(), "{printed}{errors}");
    assert!(errors.contains("CUDA unavailable: "), "{errors}");
}

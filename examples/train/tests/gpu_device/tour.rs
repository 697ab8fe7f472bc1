//! `train tour`, `train bench` and `train search` with layers on a GPU.

use crate::fake::over_fake;
use crate::{command::train, gpu};
use maypole_lab::compare::Recipe;
use maypole_lab::mistakes::Mistake;
use maypole_lab::tour::list;
use maypole_lab::tour::meshes::MeshCheck;
use maypole_trainer::model::config::Config;
use maypole_trainer::ranks::mesh::MeshAxis;
use maypole_trainer_gpu::choice::{DeviceChoice, RankDevices};
use maypole_trainer_kernels::counting::CountingAllocator;
use std::process::Command;

/// The rows of the tour count memory.
#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// The check with a model of which an emulated GPU computes a step in a second or two.
fn small(check: MeshCheck) -> MeshCheck {
    // As few layers as the stages of its pipeline need.
    let stages = check.setup.mesh.size(MeshAxis::Pp) * check.setup.schedule.chunks();
    let layers = if stages == 1 { 1 } else { check.recipe.config.layers };
    // Tokens are routed in groups, of which each piece of a row has whole ones.
    let pieces = 2 * check.setup.mesh.size(MeshAxis::Cp);
    let context =
        check.setup.router.map_or(8, |router| if pieces > 2 { pieces * router.group } else { 8 });
    let config = Config { context, width: 16, layers, ..check.recipe.config };
    MeshCheck { recipe: Recipe { config, ..check.recipe }, ..check }
}

/// The devices of a row's ranks; `None` if there is no GPU.
fn devices() -> Option<RankDevices> {
    gpu()?;
    Some(RankDevices::open(DeviceChoice::EachRank, 4).unwrap())
}

/// Every axis that divides the model trains on GPUs as in one process on a GPU, by the criteria of the
/// CPU. Its memory and its bytes sent are those of theory.
#[test]
fn every_small_mesh_of_the_tour_passes() {
    let Some(devices) = devices() else { return };
    // Experts move by load only after more tokens.
    for check in list::checks().into_iter().filter(|check| check.recipe.rebalance.is_none()) {
        let mut check = small(check);
        check.recipe.devices = devices.clone();
        let row = check.run(check.steps(Some(1))).unwrap();
        println!("{}", row.line());
        assert!(row.pass, "{row:?}");
    }
    assert_eq!(devices.failure(), None);
}

/// The same mistakes fail the same rows, whatever computes the layers.
#[test]
fn a_mistake_on_a_gpu_fails_its_row() {
    let Some(devices) = devices() else { return };
    for (axis, fault) in [
        ("tensor, tokens divided", Mistake::NormsNotSummed),
        ("context, Ulysses", Mistake::HeadsSwapped),
        ("pipeline, 1F1B", Mistake::PlannedAsGpipe),
    ] {
        let check = list::checks().into_iter().find(|check| check.axis == axis).unwrap();
        let mut check = small(check);
        check.recipe.devices = devices.clone();
        check.recipe.mistake = Some(fault);
        let row = check.run(1).unwrap();
        assert!(!row.pass, "{axis}: {row:?}");
    }
}

#[test]
fn the_meshes_of_the_tour_pass_over_the_fake_driver_emulated() {
    if crate::skip::takes_minutes() {
        return;
    }
    let mut tests = Command::new(std::env::current_exe().unwrap());
    // Not this test itself: it would start itself again and again.
    tests.args(["tour::", "--skip", "emulated", "--nocapture"]).env_remove("SKIPPED_TESTS");
    let Some(command) = over_fake(&mut tests, &[]) else { return };
    let ran = command.output().unwrap();
    let printed = String::from_utf8_lossy(&ran.stdout);
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{printed}{errors}");
    assert!(
        !errors.contains("CUDA unavailable") && printed.contains("3 passed"),
        "{printed}{errors}"
    );
}

/// The output of `train` with these arguments over the fake driver.
fn over_fake_driver(arguments: &[&str]) -> Option<String> {
    let mut command = train();
    let ran = over_fake(command.args(arguments), &[])?.output().unwrap();
    let [printed, errors] = [ran.stdout, ran.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(ran.status.success(), "{printed}{errors}");
    Some(printed)
}

#[test]
fn the_command_tours_on_a_gpu_emulated() {
    if crate::skip::takes_minutes() {
        return;
    }
    let row = ["tour", "--device", "cuda", "--only", "sums overlapped", "--steps", "1"];
    let Some(printed) = over_fake_driver(&row) else { return };
    assert!(printed.starts_with("rank 0 computes layers on GPU 0, Emulated GPU"), "{printed}");
    assert!(printed.contains("1 of 1 agree with one process"), "{printed}");
}

/// Layers that ran on the CPU instead would not fail with the device.
#[test]
fn a_device_that_fails_ends_a_tour_and_a_measurement_with_its_reason_emulated() {
    if crate::skip::takes_minutes() {
        return;
    }
    let lines: [&[&str]; 3] = [
        &["tour", "--only", "tensor, 257", "--steps", "1"],
        &["tour", "--only", "sums overlapped", "--steps", "1"],
        &["bench", "--width", "16", "--context", "8", "--layers", "1", "--steps", "1"],
    ];
    for line in lines {
        let failing = [("FAKE_CUDA_FAIL", "kernel:20:700")];
        let mut command = train();
        command.args(line).args(["--device", "cuda"]);
        let Some(command) = over_fake(&mut command, &failing) else { return };
        let ran = command.output().unwrap();
        let errors = String::from_utf8_lossy(&ran.stderr);
        assert!(!ran.status.success(), "{line:?}: {errors}");
        assert!(errors.contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "{line:?}: {errors}");
    }
}

#[test]
fn the_command_measures_on_a_gpu_emulated() {
    let sizes = ["--width", "16", "--context", "8", "--layers", "1", "--rows", "2", "--steps", "1"];
    let line = [&["bench", "--device", "cuda"][..], &sizes].concat();
    let Some(printed) = over_fake_driver(&line) else { return };
    assert!(printed.contains("layers on GPU 0, Emulated GPU"), "{printed}");
    assert!(printed.contains("tokens a second\n") && !printed.contains("processor"), "{printed}");
}

/// `train search` on so many ranks over a space of two tiny trials, with these variables of the driver:
/// whether it succeeded, its standard output, and its standard error.
fn search_over_fake(ranks: &str, variables: &[(&str, &str)]) -> Option<(bool, String, String)> {
    let folder = tempfile::tempdir().unwrap();
    let space = folder.path().join("space.toml");
    let text = "trials = 2\ntokens = 64\nfirst-tokens = 64\nlayers = 1\nheads = 1\n\
                context = 64\nwidth = [8]\nrows = [1]\n";
    std::fs::write(&space, text).unwrap();
    let mut command = train();
    command.args(["search", "--device", "cuda", "--ranks", ranks, "--space"]).arg(space);
    let ran = over_fake(&mut command, variables)?.output().unwrap();
    let [printed, errors] = [ran.stdout, ran.stderr].map(|text| String::from_utf8(text).unwrap());
    Some((ran.status.success(), printed, errors))
}

#[test]
fn the_command_searches_on_gpus_emulated() {
    if crate::skip::takes_minutes() {
        return;
    }
    let Some((done, printed, errors)) = search_over_fake("2", &[]) else { return };
    assert!(done, "{printed}{errors}");
    assert!(printed.contains("rank 0 computes layers on GPU 0, Emulated GPU"), "{printed}");
    assert!(printed.contains("best: trial "), "{printed}");
}

#[test]
fn a_device_that_fails_ends_a_search_with_its_reason_emulated() {
    let failing = [("FAKE_CUDA_FAIL", "kernel:20:700")];
    let Some((done, printed, errors)) = search_over_fake("1", &failing) else { return };
    assert!(!done && !printed.contains("best: "), "{printed}{errors}");
    assert!(errors.contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "{printed}{errors}");
}

#[test]
fn a_device_that_is_not_there_is_refused_before_anything_is_trained() {
    let commands = [&["tour"][..], &["bench"], &["search"]];
    for command in commands {
        let refused = |device: &str| {
            let ran = train().args(command).args(["--device", device]).output().unwrap();
            let errors = String::from_utf8_lossy(&ran.stderr).into_owned();
            assert!(!ran.status.success() && ran.stdout.is_empty(), "{command:?}: {errors}");
            errors
        };
        let errors = refused("gpu");
        assert!(errors.contains("'gpu' is no device: give cpu, cuda, or cuda:N"), "{errors}");
        let errors = refused("cuda:99");
        assert!(errors.contains("CUDA unavailable: "), "{errors}");
    }
}

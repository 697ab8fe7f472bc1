//! `torch/ctypes_ranks.py`, which runs on a GPU as well, over the fake driver: two processes that
//! load the library by name. The fake driver does not model a GPU's memory, scheduling or speed.
#![cfg(target_os = "linux")]

#[path = "../../../tests/common/fake_gpu.rs"]
mod fake_gpu;
#[path = "../../../tests/common/skip.rs"]
mod skip;

use fake_gpu::FakeDriver;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A Python with NumPy: `TORCH_PYTHON`, that of `.ci/python`, or the machine's. If there is none,
/// the calling test is skipped.
fn python() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or(home);
    let of_ci = cache.map(|cache| cache.join("maypole-python/bin/python"));
    let named = std::env::var_os("TORCH_PYTHON").map(PathBuf::from);
    let mut pythons = named.into_iter().chain(of_ci).chain([PathBuf::from("python3")]);
    let found = pythons.find(|python| {
        let outcome = Command::new(python).args(["-c", "import numpy"]).output();
        outcome.is_ok_and(|output| output.status.success())
    });
    if found.is_none() {
        skip::skipped("there is no Python with NumPy; .ci/python installs it");
    }
    found
}

#[test]
fn python_calls_what_pytorch_does_not_reach_emulated() {
    let Some(python) = python() else { return };
    let Some(driver) = FakeDriver::get() else { return };
    let test = std::env::current_exe().expect("this test is a file");
    let library = test.parent().expect("it lies in a folder").join("libnccl.so");
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/torch/ctypes_ranks.py");
    let output = driver
        .set(Command::new("timeout").args(["100"]).args([python, program]))
        .env("NCCL_LIBRARY", library)
        // The fake GPU has few multiprocessors, and several groups of calls are open at the same time.
        .env("NCCL_MAX_CTAS", "2")
        .env("MPS", "yes")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("the program starts");
    let said = [&output.stdout[..], &output.stderr[..]].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success() && said.contains("exit codes: all 0"), "{said}");
}

//! PyTorch loads this library instead of NCCL. That needs no GPU; `tests/nccl.sh` calls it on one. The
//! programs of `torch/` run over gloo here, so that they work when a GPU is available.

#[path = "../../../tests/common/skip.rs"]
mod skip;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Prints the file whose functions PyTorch calls. Some versions map their own file as well.
const IMPORT: &str = "
import torch, torch.distributed, ranks
print('calls', ranks.answering('ncclAllReduce'))
print('available', torch.distributed.is_nccl_available())
";

/// The library that cargo has built with this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("this test is a file");
    let folder = test.parent().expect("it lies in a folder");
    let library = folder.join("libnccl.so");
    assert!(library.is_file(), "{} is not there", library.display());
    library.canonicalize().expect("it is there")
}

/// A Python with PyTorch: `TORCH_PYTHON`, or that of `.ci/python`. If there is none, the calling
/// test is skipped.
fn python() -> Option<PathBuf> {
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
    let of_ci = || Some(cache?.join("maypole-python/bin/python"));
    let python = std::env::var_os("TORCH_PYTHON").map(PathBuf::from).or_else(of_ci);
    // The module is not imported here: a failed import is to fail the tests.
    let found = python.filter(|python| {
        let looks =
            "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)";
        let outcome = Command::new(python).args(["-c", looks]).status();
        outcome.is_ok_and(|status| status.success())
    });
    if found.is_none() {
        skip::skipped(
            "there is no PyTorch; .ci/python --torch installs it, or TORCH_PYTHON names one",
        );
    }
    found
}

fn said(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&both).into_owned()
}

#[test]
fn pytorch_finds_every_function_that_it_imports() {
    let Some(python) = python() else { return };
    let library = library();
    let output = Command::new("timeout")
        .args([Path::new("200"), &python, Path::new("-c"), Path::new(IMPORT)])
        .env("LD_PRELOAD", &library)
        .env("PYTHONPATH", Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/torch"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("the command starts");
    let said = said(&output);
    assert!(output.status.success(), "{said}");
    let calls = format!("calls {}\n", library.display());
    assert!(said.contains(&calls), "another library is called: {said}");
    assert!(said.contains("available True"), "{said}");
}

#[test]
fn the_programs_for_a_gpu_are_right_over_gloo() {
    crate::skip::takes_turns!(4);
    let Some(python) = python() else { return };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/nccl.sh");
    let output = Command::new("timeout")
        .arg("300")
        .arg(script)
        .args(["hello", "collectives", "p2p", "graphs"])
        .env("DEVICE", "cpu")
        .env("NCCL_LIBRARY", library())
        .env("PYTHON", python)
        .output()
        .expect("the script starts");
    let said = said(&output);
    let right = said.lines().filter(|line| line.ends_with(" s   ok")).count();
    assert!(output.status.success() && right == 4, "{said}");
}

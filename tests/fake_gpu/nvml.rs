//! Reports of NVIDIA's management library on the GPUs of a group: the fake library of `nvml.c`.

use crate::fake_gpu::{FakeDriver, repository};
use crate::raw::context;
use crate::spawn::{as_each_rank, say};
use crate::walks::ready;
use crate::{REAL_DRIVER, world};
use std::process::Command;

crate::roles! {
    make_groups;
}

/// Groups of two GPUs, one after another, all of which sum.
fn make_groups() {
    as_each_rank(|mut comm| {
        let stream = context(comm.rank()).new_stream().unwrap();
        let groups = [0; 3].map(|_| ready(&mut comm, &stream));
        for (group, _) in &groups {
            say("reason", group.host_mailboxes().unwrap_or_default());
        }
        comm.barrier().unwrap();
    });
}

/// The reasons of the groups on rank 0, with this report for each pair, and how often the library
/// was started.
fn reasons(answer: &str) -> Option<(Vec<String>, usize)> {
    if std::env::var_os(REAL_DRIVER).is_some() {
        return None;
    }
    let (driver, world) = (FakeDriver::get()?, world("make_groups", 2)?);
    let folder = tempfile::tempdir().unwrap();
    let compiled = Command::new("c++")
        .args(["-x", "c", "-std=c11", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-o"])
        .arg(folder.path().join("libnvidia-ml.so.1"))
        .arg(repository().join("tests/fake_gpu/nvml.c"))
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let starts = folder.path().join("starts");
    let paths = format!("{}:{}", folder.path().display(), driver.library_path());
    let world = world.set("LD_LIBRARY_PATH", paths).set("FAKE_CUDA_DEVICES", "2");
    let world = world.set("FAKE_NVML_STARTS", starts.display()).set("FAKE_NVML_PEERS", answer);
    let ended = world.start().succeed();
    let said = ended[0].said("reason").into_iter().map(str::to_owned).collect();
    Some((said, std::fs::read_to_string(starts).unwrap().lines().count()))
}

#[test]
fn gpus_that_the_management_library_keeps_apart_meet_in_memory_of_the_host_emulated() {
    let answers =
        [("0", ""), ("1", "the chipset"), ("2", "the GPU does not"), ("4", "settings forbid")];
    for (answer, why) in answers {
        let Some((said, starts)) = reasons(answer) else { return };
        assert_eq!((said.len(), starts), (3, 1), "rank 0 asks it, for its first group");
        for reason in said {
            assert_eq!(reason.is_empty(), why.is_empty(), "{reason}");
            let names = ["NVIDIA's driver says that the GPU of rank 0", "rank 1", why];
            assert!(why.is_empty() || names.iter().all(|name| reason.contains(name)), "{reason}");
        }
    }
}

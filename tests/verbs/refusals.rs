//! Errors of ranks where verbs cannot be used.

use crate::spawn::World;
use std::path::Path;

/// The error with which all ranks refuse `ib`, which must be the same.
#[track_caller]
fn refusal(world: World) -> String {
    let ended = world.set("MAYPOLE_TRANSPORT", "ib").start().succeed();
    let refused: Vec<_> = ended.iter().map(|rank| rank.said("refused").join(" ")).collect();
    assert!(refused.iter().all(|it| *it == refused[0] && !it.is_empty()), "{ended:#?}");
    refused[0].clone()
}

/// A folder in which the loader finds `target` as the library.
fn library(target: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(target, folder.path().join("libibverbs.so.1")).unwrap();
    folder
}

fn has_devices() -> bool {
    Path::new("/sys/class/infiniband").read_dir().is_ok_and(|mut devices| devices.next().is_some())
}

#[test]
fn a_machine_without_the_library_says_what_to_install() {
    let folder = library("/etc/passwd");
    let error = refusal(World::new("join", 2).set("LD_LIBRARY_PATH", folder.path().display()));
    assert!(error.contains("ib was asked for, but 2 of 2 ranks cannot use verbs"), "{error}");
    assert!(error.contains("rank 0: libibverbs.so.1 cannot be loaded"), "{error}");
    assert!(error.contains("install libibverbs1 or rdma-core"), "{error}");
    assert!(error.ends_with("or use auto or tcp"), "{error}");
}

#[test]
fn a_library_that_is_too_old_is_named() {
    let libc = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib/aarch64-linux-gnu/libc.so.6"];
    let Some(libc) = libc.into_iter().find(|libc| Path::new(libc).exists()) else { return };
    let folder = library(libc);
    let error = refusal(World::new("join", 2).set("LD_LIBRARY_PATH", folder.path().display()));
    assert!(error.contains("has no ibv_get_device_list; install rdma-core 32"), "{error}");
}

/// No rank falls back to TCP on its own.
#[test]
fn a_machine_without_devices_refuses_on_all_ranks_for_one_reason() {
    if has_devices() {
        return;
    }
    let error = refusal(World::new("join", 3));
    let remedies = ["install libibverbs1", "load ib_uverbs", "'rdma link' shows"];
    assert!(remedies.iter().any(|remedy| error.contains(remedy)), "{error}");
    assert!(error.contains("3 of 3 ranks"), "{error}");
}

#[test]
fn between_hosts_without_devices_ranks_use_tcp_and_say_why() {
    let folder = library("/etc/passwd");
    let world = World::new("join", 3).hosts(&[0, 0, 1]).set_of(
        1,
        "LD_LIBRARY_PATH",
        folder.path().display(),
    );
    let ended = world.start().succeed();
    let summary = ended[0].said("summary")[0];
    assert!(summary.contains("2 pairs by tcp"), "{summary}");
    let first = if has_devices() { "InfiniBand: rank 1: " } else { "InfiniBand: rank 0: " };
    assert!(summary.contains(first), "{summary}");
}

/// Ranks that choose for themselves stay with TCP, and those that require verbs are refused.
#[test]
#[ignore = "needs RDMA devices: tests/rdma-vm/test"]
fn ports_of_different_networks_are_not_used() {
    // The GID with index 0 is that of the link alone.
    let world = || World::new("join", 3).hosts(&[0, 0, 1]).set_of(2, "MAYPOLE_IB_GID_INDEX", 0);
    let why = "rank 2: its port is of RoCE v2 within a link, that of rank 0 of RoCE v2 over IPv4";
    let ended = world().start().succeed();
    let summary = ended[0].said("summary")[0];
    assert!(summary.contains("2 pairs by tcp") && summary.contains(why), "{summary}");
    let error = refusal(world());
    assert!(error.contains("1 of 3 ranks cannot use verbs") && error.contains(why), "{error}");
}

/// Three MiB each for the two peers on the other host: more than may be locked, though one connection
/// fits.
#[test]
#[ignore = "needs RDMA devices: tests/rdma-vm/test"]
fn memory_for_all_connections_is_checked_when_ranks_join() {
    let limited = [
        "/usr/bin/bash",
        "-c",
        "ulimit -l 3000; exec setpriv --bounding-set -ipc_lock \
        --inh-caps -ipc_lock \"$0\" \"$@\"",
    ];
    let ended = World::new("join", 3).hosts(&[0, 1, 1]).by(0, &limited).start().succeed();
    let summary = ended[0].said("summary")[0];
    let why = "InfiniBand: rank 0: 6291456 bytes of memory cannot be registered";
    assert!(summary.contains(why) && summary.contains("is 3000 KiB"), "{summary}");
    assert!(summary.contains("2 pairs by tcp"), "{summary}");
}

#[test]
fn other_transports_say_that_they_exclude_verbs() {
    let ended = World::new("join", 2).set("MAYPOLE_TRANSPORT", "tcp").start().succeed();
    let summary = ended[0].said("summary")[0];
    assert!(summary.contains("InfiniBand: excluded by the job's settings"), "{summary}");
}

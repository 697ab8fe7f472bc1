//! Every collective and messages between two ranks over verbs, compared bit by bit.

use crate::spawn::World;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Ranks that use the two devices in turn, or one device alone.
fn on_devices(mut world: World, ranks: usize, devices: usize) -> World {
    for rank in 0..ranks {
        world = world.set_of(rank, "MAYPOLE_IB_DEVICE", format!("rxe{}", rank % devices));
    }
    world
}

fn ib(role: &str, ranks: usize, devices: usize) -> World {
    on_devices(World::new(role, ranks), ranks, devices).set("MAYPOLE_TRANSPORT", "ib")
}

#[test]
#[ignore = "needs RDMA devices: tests/rdma-vm/test"]
fn every_collective_over_one_device_and_two() {
    let layouts = [(2, 1), (2, 2), (3, 1), (3, 2), (4, 1), (4, 2)];
    for (shift, (ranks, devices)) in layouts.into_iter().enumerate() {
        let world = ib("compare", ranks, devices).set("TEST_SHIFT", shift);
        world.set("TEST_SEED", shift).start().succeed();
    }
}

/// Boards within two hosts, verbs between them.
#[test]
#[ignore = "needs RDMA devices: tests/rdma-vm/test"]
fn every_collective_between_hosts_that_share_memory_within() {
    let mut world = World::new("compare", 4).hosts(&[0, 0, 1, 1]);
    for rank in 0..4 {
        world = world.set_of(rank, "MAYPOLE_IB_DEVICE", format!("rxe{}", rank / 2));
    }
    world.start().succeed();
    let world = World::new("join", 3).hosts(&[0, 0, 1]);
    // No device is named: the ranks of a host take the two in turn.
    let said = world.start().succeed();
    let summary = said[0].said("summary")[0];
    assert!(summary.contains("2 pairs by ib, first 0-2; CUDA:"), "{summary}");
    assert!(summary.contains("1 pairs by shm"), "{summary}");
}

#[test]
#[ignore = "needs RDMA devices: tests/rdma-vm/test"]
fn messages_between_two_ranks() {
    for devices in [1, 2] {
        ib("messages", 3, devices).start().succeed();
    }
}

#[test]
#[ignore = "needs RDMA devices: tests/rdma-vm/test"]
fn encrypted_streams() {
    let world = ib("compare", 2, 2).set("MAYPOLE_ENCRYPT", 1).set("TEST_CASES", 2);
    world.start().succeed();
    ib("messages", 2, 2).set("MAYPOLE_ENCRYPT", 1).start().succeed();
}

#[test]
#[ignore = "needs RDMA devices: tests/rdma-vm/test"]
fn nothing_is_left_of_groups_that_were_closed() {
    for ended in ib("count", 2, 2).start().succeed() {
        assert_eq!(ended.said("counted"), ["1000"]);
    }
}

/// Another service level, traffic class, GID, timeout and number of retries.
#[test]
#[ignore = "needs RDMA devices: tests/rdma-vm/test"]
fn settings_are_taken() {
    let world = ib("messages", 2, 2)
        .set("MAYPOLE_IB_PORT", 1)
        .set("MAYPOLE_IB_GID_INDEX", 0)
        .set("MAYPOLE_IB_SERVICE_LEVEL", 3)
        .set("MAYPOLE_IB_TRAFFIC_CLASS", 106)
        .set("MAYPOLE_IB_PKEY_INDEX", 0)
        .set("MAYPOLE_IB_TIMEOUT", 15)
        .set("MAYPOLE_IB_RETRIES", 6);
    world.start().succeed();
}

/// rdma-core's own example exchanges data between the same two devices while ranks use them.
#[test]
#[ignore = "needs RDMA devices: tests/rdma-vm/test"]
fn a_program_of_others_works_beside_the_ranks() {
    let pingpong = |device: &str| {
        let mut command = Command::new("ibv_rc_pingpong");
        command.args(["-d", device, "-g", "1", "-n", "100", "-e"]).stdout(Stdio::piped());
        command
    };
    let ranks = ib("compare", 2, 2).set("TEST_CASES", 0).start();
    let server = pingpong("rxe0").spawn().unwrap();
    let begun = Instant::now();
    // The server may not listen yet.
    let client = loop {
        let done = pingpong("rxe1").arg("10.77.0.1").output().unwrap();
        if done.status.success() || begun.elapsed() > Duration::from_secs(30) {
            break done;
        }
    };
    assert!(client.status.success(), "{client:?}");
    let said = String::from_utf8(server.wait_with_output().unwrap().stdout).unwrap();
    assert!(said.contains("100 iters"), "{said}");
    ranks.succeed();
}

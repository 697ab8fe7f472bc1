//! Ports, devices and ranks that fail while ranks use verbs: every rank gets an error in time, and
//! all name the same first cause.

use crate::spawn::{Ended, Running, World};
use std::process::Command;
use std::time::{Duration, Instant};

/// Runs a command of the virtual machine, which must succeed.
#[track_caller]
fn root(line: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    let done = Command::new(words[0]).args(&words[1..]).output().unwrap();
    assert!(done.status.success(), "{line}: {done:?}");
}

fn ib(role: &str, ranks: usize) -> World {
    let mut world = World::new(role, ranks).set("MAYPOLE_TRANSPORT", "ib");
    for rank in 0..ranks {
        world = world.set_of(rank, "MAYPOLE_IB_DEVICE", format!("rxe{}", rank % 2));
    }
    world.set("MAYPOLE_TIMEOUT", 30)
}

/// Starts three ranks that call without end, and waits until their calls work.
fn endless() -> Running {
    let mut running = ib("endless", 3).start();
    running.wait_for("ready", &[0, 1, 2]);
    running
}

/// The cause that all ranks name. A rank that did not detect it first adds its own aborted
/// operation.
#[track_caller]
fn one_cause(ended: &[Ended]) -> String {
    let errors: Vec<_> = ended.iter().map(|rank| rank.said("error").join(" ")).collect();
    let cause = |error: &String| {
        let (_, cause) = error.rsplit_once(", because ").unwrap_or(("", error));
        cause.split("; rank ").next().unwrap_or_default().to_owned()
    };
    let causes: Vec<_> = errors.iter().map(cause).collect();
    assert!(causes.iter().all(|it| *it == causes[0] && !it.is_empty()), "{ended:#?}");
    causes[0].clone()
}

#[test]
#[ignore = "needs RDMA devices: tests/rdma-vm/test"]
fn the_death_of_a_rank_is_named_by_all_others() {
    for victim in [0, 2] {
        let running = endless();
        running.signal(victim, "KILL");
        let ended = running.end();
        for rank in (0..3).filter(|rank| *rank != victim) {
            let error = ended[rank].said("error").join(" ");
            assert!(error.contains(&format!("rank {victim} died")), "rank {rank}: {error}");
            assert_eq!(ended[rank].said("culprit"), [victim.to_string()], "{error}");
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: tests/rdma-vm/test"]
fn a_port_that_goes_down_fails_all_ranks() {
    let running = endless();
    root("/usr/bin/ip link set veth1 down");
    let ended = running.end();
    root("/usr/bin/ip link set veth1 up");
    let cause = one_cause(&ended);
    assert!(cause.contains("is down; see to its cable"), "{cause}: {ended:#?}");
    let culprits: Vec<_> = (0..3).map(|rank| ended[rank].said("culprit").join(" ")).collect();
    assert!(culprits.iter().all(|culprit| *culprit == culprits[0]), "{ended:#?}");
}

/// The kernel removes a device of soft-RoCE once all processes have closed it. Until then it works.
#[test]
#[ignore = "needs RDMA devices: tests/rdma-vm/test"]
fn a_device_that_is_to_be_removed_serves_until_its_ranks_have_ended() {
    let mut running = endless();
    let mut removing = Command::new("rdma").args(["link", "delete", "rxe1"]).spawn().unwrap();
    running.listen_for(Duration::from_secs(3));
    assert!(removing.try_wait().unwrap().is_none(), "it is in use");
    running.signal(0, "KILL");
    let ended = running.end();
    for rank in [1, 2] {
        let error = ended[rank].said("error").join(" ");
        assert!(error.contains("rank 0 died"), "rank {rank}: {error}");
    }
    assert!(removing.wait().unwrap().success());
    for rank in ib("join", 2).start().succeed() {
        let refused = rank.said("refused").join(" ");
        let text = "rank 1: there is no RDMA device called rxe1; there are rxe0";
        assert!(refused.contains(text), "{refused}");
    }
    root("/usr/bin/rdma link add rxe1 type rxe netdev veth1");
}

/// Memory can be registered only if it may be locked. The limit does not hold for the superuser, so
/// the ranks run without that capability.
#[test]
#[ignore = "needs RDMA devices: tests/rdma-vm/test"]
fn too_little_locked_memory_is_told_when_ranks_join() {
    const LIMITED: &str = "TEST_LIMITED";
    if std::env::var_os(LIMITED).is_none() {
        let program = std::env::current_exe().unwrap();
        let limited = format!(
            "ulimit -l 64; exec setpriv --bounding-set -ipc_lock --inh-caps -ipc_lock {} \
             too_little_locked_memory --ignored --nocapture",
            program.display()
        );
        let mut shell = Command::new("/usr/bin/bash");
        let done = shell.args(["-c", &limited]).env(LIMITED, "1").output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
        return;
    }
    for rank in ib("join", 2).start().succeed() {
        let refused = rank.said("refused").join(" ");
        assert!(refused.contains("rank 0: 1048576 bytes of memory cannot be"), "{refused}");
        assert!(refused.contains("the limit of locked memory is 64 KiB"), "{refused}");
        assert!(refused.contains("'ulimit -l'"), "{refused}");
    }
}

/// The index of the GID of `device` with the IPv4 address `[a, b, c, d]`, which was just given to its
/// interface.
fn gid_index(device: &str, address: [u8; 4]) -> usize {
    let [a, b, c, d] = address;
    let wanted = format!("ffff:{a:02x}{b:02x}:{c:02x}{d:02x}");
    let folder = format!("/sys/class/infiniband/{device}/ports/1/gids");
    let gid =
        |index: usize| std::fs::read_to_string(format!("{folder}/{index}")).unwrap_or_default();
    let begun = Instant::now();
    loop {
        if let Some(index) = (0..8).find(|index| gid(*index).trim().ends_with(&wanted)) {
            return index;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{device} has no GID {wanted}");
    }
}

/// Both ports are active and of one kind of network, but packets to one of them go to a hardware
/// address that no interface has. Ranks that choose for themselves use TCP, with the reason.
#[test]
#[ignore = "needs RDMA devices: tests/rdma-vm/test"]
fn ports_that_do_not_reach_each_other_are_not_chosen() {
    root("/usr/bin/ip addr add 192.168.77.2/24 dev veth1");
    let nowhere = "192.168.77.2 lladdr 02:00:00:00:99:99 dev veth0";
    root(&format!("/usr/bin/ip neigh replace {nowhere} nud permanent"));
    let index = gid_index("rxe1", [192, 168, 77, 2]);
    let mut world = World::new("join", 3).hosts(&[0, 0, 1]);
    for (rank, device) in ["rxe0", "rxe0", "rxe1"].into_iter().enumerate() {
        world = world.set_of(rank, "MAYPOLE_IB_DEVICE", device);
    }
    let ended = world.set_of(2, "MAYPOLE_IB_GID_INDEX", index).start().end();
    root(&format!("/usr/bin/ip neigh del {nowhere}"));
    root("/usr/bin/ip addr del 192.168.77.2/24 dev veth1");
    let summary = ended[0].said("summary").join(" ");
    assert!(summary.contains("2 pairs by tcp"), "{ended:#?}");
    let why = "InfiniBand: rank 0: verbs do not reach rank 2 from port 1 of rxe0";
    assert!(summary.contains(why), "{summary}");
}

#[test]
#[ignore = "needs RDMA devices: tests/rdma-vm/test"]
fn a_gid_that_is_not_there_is_told_when_ranks_join() {
    let ended = ib("join", 3).set_of(1, "MAYPOLE_IB_GID_INDEX", 77).start().succeed();
    for rank in &ended {
        let refused = rank.said("refused")[0];
        assert!(refused.contains("rank 1: port 1 of rxe1 has no GID with index 77"), "{refused}");
    }
}

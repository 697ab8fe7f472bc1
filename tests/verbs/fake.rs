//! Ranks over the fake library of `transports/fake-verbs/`, on devices that no machine here has.

use crate::fake_verbs::FakeVerbs;
use crate::spawn::{Ended, World};
use std::time::{Duration, Instant};

/// A world over verbs whose processes have these devices. `None` if there is no compiler.
fn ib(role: &str, ranks: usize, devices: &str) -> Option<World> {
    let library = FakeVerbs::get()?.library_path();
    let world = World::new(role, ranks).set("MAYPOLE_TRANSPORT", "ib");
    Some(world.set("LD_LIBRARY_PATH", library).set("FAKE_VERBS_DEVICES", devices))
}

#[test]
fn every_collective_has_the_bits_of_shared_memory() {
    let layouts = [(2, "ib0"), (3, "roce0 link=2"), (4, "ib0; ib1"), (3, "tiny inline=0")];
    for (shift, (ranks, devices)) in layouts.into_iter().enumerate() {
        let Some(world) = ib("compare", ranks, devices) else { return };
        world.set("TEST_SHIFT", shift).set("TEST_SEED", shift).start().succeed();
    }
}

#[test]
fn messages_arrive_plain_and_encrypted() {
    for encrypt in [0, 1] {
        let Some(world) = ib("messages", 3, "ib0; ib1") else { return };
        world.set("MAYPOLE_ENCRYPT", encrypt).start().succeed();
    }
}

/// The devices that each rank sends by.
fn used(ended: &[Ended]) -> Vec<String> {
    ended.iter().map(|rank| rank.said("uses").join(" ")).collect()
}

#[test]
fn devices_of_other_protocols_are_skipped() {
    for other in ["transport=1 node=4", "transport=4 node=7", "transport=2"] {
        let devices = format!("other0 {other} speed=128; mlx5_0 speed=1 width=1");
        let Some(world) = ib("chosen", 2, &devices) else { return };
        assert_eq!(used(&world.start().succeed()), ["mlx5_0", "mlx5_0"]);
    }
    let Some(world) = ib("join", 2, "siw0 transport=1; down0 state=1") else { return };
    let named = world.set_of(1, "MAYPOLE_IB_DEVICE", "siw0").start().succeed();
    let refused = named[0].said("refused").join(" ");
    assert!(refused.contains("rank 0: port 1 of down0 is down, not active"), "{refused}");
    let Some(world) = ib("join", 2, "siw0 transport=1") else { return };
    let refused = world.start().succeed()[1].said("refused").join(" ");
    assert!(refused.contains("siw0 is an iWARP device, and verbs are used over"), "{refused}");
}

#[test]
fn the_fastest_port_is_used_and_equally_fast_ones_in_turn() {
    let devices = "slow0 speed=32; fast0 speed=128; off0 speed=128 state=1; fast1 speed=128";
    let Some(world) = ib("chosen", 3, devices) else { return };
    assert_eq!(used(&world.start().succeed()), ["fast0", "fast1", "fast0"]);
    // Ranks of another host begin again.
    let Some(world) = ib("chosen", 3, devices) else { return };
    let ended = world.hosts(&[0, 1, 1]).start().succeed();
    assert_eq!(used(&ended), ["fast0", "fast0", "fast1"]);
    // The port that the user names is used.
    let Some(world) = ib("chosen", 2, devices) else { return };
    let ended = world.set_of(1, "MAYPOLE_IB_DEVICE", "slow0").start().succeed();
    assert_eq!(used(&ended), ["fast0", "slow0"]);
}

/// Of two ports of a host, each is attached to one half of the cores.
#[test]
fn a_port_near_the_ranks_cores_is_preferred() {
    let folder = tempfile::tempdir().unwrap();
    let device = |name: &str, cores: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.join("device")).unwrap();
        std::fs::write(path.join("device/local_cpulist"), cores).unwrap();
        format!("{name} path={}", path.display())
    };
    // No machine has a core of the second number.
    let devices = format!("{}; {}", device("far0", "4000000\n"), device("near0", "0-4000\n"));
    let Some(world) = ib("chosen", 2, &devices) else { return };
    assert_eq!(used(&world.start().succeed()), ["near0", "near0"]);
}

/// The first port of every host is active, and leads to a network of storage.
#[test]
fn ports_that_reach_nobody_are_given_up_for_the_next() {
    crate::skip::takes_turns!(2);
    let devices = |host: usize| format!("store0 net={} speed=64; mlx5_0 speed=32", 10 + host);
    let Some(world) = ib("chosen", 3, "") else { return };
    let mut world = world.hosts(&[0, 0, 1]);
    for rank in 0..3 {
        world = world.set_of(rank, "FAKE_VERBS_DEVICES", devices(rank / 2));
    }
    assert_eq!(used(&world.start().succeed()), ["mlx5_0"; 3]);
}

/// Ports of equal rate whose networks are apart: a choice in turn by ranks would connect no pair.
#[test]
fn ranks_whose_ports_are_on_different_networks_share_one() {
    crate::skip::takes_turns!(2);
    let Some(world) = ib("chosen", 2, "rail0 net=0; rail1 net=1") else { return };
    assert_eq!(used(&world.start().succeed()), ["rail0", "rail0"]);
}

#[test]
fn ports_that_do_not_reach_each_other_are_told() {
    crate::skip::takes_turns!(2);
    let Some(world) = ib("join", 2, "") else { return };
    let device = |rank: usize| format!("alone{rank} net={rank}");
    let world = world.set_of(0, "FAKE_VERBS_DEVICES", device(0));
    for rank in world.set_of(1, "FAKE_VERBS_DEVICES", device(1)).start().succeed() {
        let refused = rank.said("refused").join(" ");
        let text = "rank 0: verbs do not reach rank 1 from port 1 of alone0: ";
        assert!(refused.contains(text), "{refused}");
    }
}

/// Packets to a process that has died are repeated for seconds. Its peers need not wait for that.
#[test]
fn the_death_of_a_rank_is_named_at_once() {
    let Some(world) = ib("endless", 3, "ib0") else { return };
    let mut running = world.start();
    running.wait_for("ready", &[0, 1, 2]);
    let begun = Instant::now();
    running.signal(2, "KILL");
    let ended = running.end();
    for rank in [0, 1] {
        let error = ended[rank].said("error").join(" ");
        assert!(error.contains("rank 2 died"), "rank {rank}: {error}");
    }
    // An end that waits until its peer has all that was sent waits for 5 s.
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[test]
fn a_port_that_is_down_for_a_second_ends_no_job() {
    let Some(world) = ib("flap", 3, "ib0") else { return };
    let ended = world.start().succeed();
    // A rank that was late may have seen nothing of it.
    let took = ended.iter().map(|rank| rank.said("took")[0].parse::<u64>().unwrap()).max();
    assert!(took >= Some(500), "the port was down: {took:?} ms");
}

#[test]
fn a_port_that_stays_down_is_named_by_all_ranks() {
    crate::skip::takes_turns!(2);
    let Some(world) = ib("down", 3, "ib0") else { return };
    for rank in world.start().succeed() {
        let error = rank.said("error").join(" ");
        assert!(error.contains("port 1 of ib0 is down; see to its cable"), "{error}");
    }
}

/// A call of the library that fails once a rank has joined fails this rank's call, with its name.
#[test]
fn calls_of_the_library_that_fail_are_told() {
    let cases = [
        ("ibv_reg_mr:1:12", "1048576 bytes of memory cannot be registered"),
        ("ibv_create_qp:0:12", "ibv_create_qp failed on ib0: Cannot allocate memory"),
        ("ibv_modify_qp:1:22", "ibv_modify_qp failed on ib0: Invalid argument"),
        ("ibv_query_port:1:5", "ibv_query_port failed on ib0: Input/output error"),
    ];
    for (fail, text) in cases {
        let Some(world) = ib("join", 2, "ib0") else { return };
        for rank in world.set_of(1, "FAKE_VERBS_FAIL", fail).start().succeed() {
            let refused = rank.said("refused").join(" ");
            assert!(refused.contains(&format!("rank 1: {text}")), "{fail}: {refused}");
        }
    }
}

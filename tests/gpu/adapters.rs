//! Groups of several hosts whose adapters write publications from slot to slot. The devices are the two of soft-RoCE
//! in the virtual machine of `tests/rdma-vm/test`, which has the fake driver: real queue pairs, and no GPU.

use crate::calls::{Both, check_calls};
use crate::spawn::{Ended, World, say};
use crate::{deaths, stream};
use maypole::cuda::Comm;
use maypole::{Communicator, Transport};
use std::process::Command;
use std::sync::Arc;

const DEVICES: [&str; 2] = ["rxe0", "rxe1"];
const WRITES: &str = " by RDMA writes by port 1 of DEVICE";

pub(crate) fn rank_process(role: &str) {
    let mut comm = Communicator::from_env().unwrap().over(Transport::Ib).unwrap();
    if role == "calls until a call fails" {
        return deaths::tell_failure(&mut comm);
    }
    let stream = stream(comm.rank()).expect("the machine has CUDA");
    let gpu = Comm::new(&mut comm, Arc::clone(&stream)).unwrap();
    say("place", gpu.host_mailboxes().unwrap());
    say("ways", gpu.courier_ways().unwrap());
    let mut meeting = comm.duplicate().unwrap();
    let (comm, meeting) = (&mut comm, &mut meeting);
    check_calls(&mut Both { comm, meeting, gpu: &gpu, stream: &stream }, &[1, 3000, 20_001]);
}

/// Ranks on these hosts, of which each has the device of its number. The cable is between them.
fn across_the_cable(role: &str, hosts: &[usize]) -> World {
    let of =
        |world: World, rank: usize| world.set_of(rank, "MAYPOLE_IB_DEVICE", DEVICES[hosts[rank]]);
    (0..hosts.len()).fold(World::new(role, hosts.len()).hosts(hosts), of)
}

/// Each of these ranks sends by such a way of the device of its host.
#[track_caller]
fn each_goes_by(ended: &[Ended], hosts: &[usize], way: &str) {
    for (one, host) in ended.iter().zip(hosts) {
        let ways = one.only("ways");
        assert!(ways.ends_with(&way.replace("DEVICE", DEVICES[*host])), "{ways}");
    }
}

/// How much a counter of both devices grows meanwhile.
fn growth<T>(name: &str, work: impl FnOnce() -> T) -> (T, [u64; 2]) {
    let counts = || {
        DEVICES.map(|device| {
            let file = format!("/sys/class/infiniband/{device}/ports/1/hw_counters/{name}");
            std::fs::read_to_string(file).unwrap().trim().parse::<u64>().unwrap()
        })
    };
    let before = counts();
    let done = work();
    let after = counts();
    (done, [after[0] - before[0], after[1] - before[1]])
}

#[test]
#[ignore = "needs RDMA devices: tests/rdma-vm/test"]
fn every_collective_of_two_hosts_has_the_bits_of_the_executor() {
    let hosts = [0, 0, 1, 1];
    each_goes_by(&across_the_cable("calls", &hosts).start().succeed(), &hosts, WRITES);
}

/// Each rank has a host, and so both devices. A connection joins equal ones.
#[test]
#[ignore = "needs RDMA devices: tests/rdma-vm/test"]
fn a_rank_uses_all_of_its_ports() {
    let calls = || World::new("calls", 2).hosts(&[0, 1]).start().succeed();
    let (ended, packets) = growth("sent_pkts", calls);
    for (ended, peer) in ended.iter().zip([1, 0]) {
        let way = |device| format!("ranks {peer} by RDMA writes by port 1 of {device}");
        assert_eq!(ended.only("ways"), DEVICES.map(way).join("; "));
    }
    // Without the second port its connections carry a greeting, and no more.
    assert!(packets.iter().all(|count| *count > 1000), "{packets:?}");
}

/// Packets are late, or lost and sent again, so completions come late and in bursts.
#[test]
#[ignore = "needs RDMA devices: tests/rdma-vm/test"]
fn writes_over_a_bad_cable_arrive_before_their_words() {
    let cable = |change: &str| {
        let words = format!("qdisc {change} dev veth0 root netem delay 1ms loss 0.5%");
        let done = Command::new("/usr/sbin/tc").args(words.split(' ')).output().unwrap();
        assert!(done.status.success(), "{done:?}");
    };
    let hosts = [0, 1];
    let world = across_the_cable("calls", &hosts).set("MAYPOLE_IB_TIMEOUT", 14);
    cable("add");
    let (ended, missed) = growth("out_of_seq_request", || world.start().ended());
    cable("del");
    let ended = ended.unwrap();
    assert!(ended.iter().all(|one| one.code == Some(0)), "{ended:#?}");
    each_goes_by(&ended, &hosts, WRITES);
    assert!(missed[1] > 0, "no packet was lost");
}

#[test]
#[ignore = "needs RDMA devices: tests/rdma-vm/test"]
fn a_rank_that_is_killed_during_direct_writes_is_named() {
    let mut running = across_the_cable("calls until a call fails", &[0, 0, 1, 1]).start();
    running.wait_for("calls", &[0, 1, 2, 3]);
    running.signal(3, "KILL");
    let ended = running.end();
    for survivor in &ended[..3] {
        assert_eq!(survivor.only("culprit"), "3", "{survivor:?}");
    }
}

/// Nothing encrypts the writes of an adapter, and a user may want none.
#[test]
#[ignore = "needs RDMA devices: tests/rdma-vm/test"]
fn couriers_that_may_not_write_send_messages() {
    let hosts = [0, 1];
    let sealed = ("MAYPOLE_ENCRYPT", "1", " by messages of a stream");
    let wanted = ("MAYPOLE_CUDA_COURIERS", "stream", " by messages by port 1 of DEVICE");
    for (name, value, way) in [sealed, wanted] {
        let ended = across_the_cable("calls", &hosts).set(name, value).start().succeed();
        each_goes_by(&ended, &hosts, way);
    }
}

/// The driver exports memory, and soft-RoCE registers none of it.
#[test]
#[ignore = "needs RDMA devices: tests/rdma-vm/test"]
fn devices_that_do_not_reach_the_gpus_are_told() {
    let hosts = [0, 1];
    let ended = across_the_cable("calls", &hosts).set("FAKE_CUDA_DMA_BUF", 1).start().succeed();
    each_goes_by(&ended, &hosts, WRITES);
    for place in ended.iter().map(|one| one.only("place")) {
        let why = "GPUDirect is not possible: rank 0: ibv_reg_dmabuf_mr failed on rxe0";
        assert!(place.contains(why), "{place}");
    }
}

//! Groups on several hosts whose adapters read and write the memory of GPUs: over the fake driver, whose dma-buf is a
//! file, and the fake libibverbs, which maps that file.

use crate::hosts::{counted, over_verbs};
use crate::raw::context;
use crate::spawn::{Ended, World, as_each_rank, say};
use crate::walks::sum;
use maypole::Transport;
use maypole::cuda::Comm;

crate::roles! {
    sum_direct;
}

const COURIERS: &str = "MAYPOLE_CUDA_COURIERS";
const EXPORTS: (&str, &str) = ("FAKE_CUDA_DMA_BUF", "1");
/// A GPU that sees the writes of adapters late.
const UNORDERED: (&str, &str) = ("FAKE_CUDA_ORDERING", "0");

/// Ranks on these hosts, over adapters like `device`, with these variables.
fn on_hosts(role: &str, hosts: &[usize], device: &str, set: &[(&str, &str)]) -> Option<World> {
    let world = over_verbs(role, hosts, device)?;
    Some(set.iter().fold(world, |world, (name, value)| world.set(name, value)))
}

/// Says where the mailboxes are, and sums; or says why there is no group.
fn sum_direct() {
    as_each_rank(|mut comm| {
        let mut comm = comm.over(Transport::Ib).unwrap();
        let stream = context(comm.rank() % 2).new_stream().unwrap();
        match Comm::new(&mut comm, stream) {
            Ok(gpu) => {
                say("place", gpu.host_mailboxes().unwrap());
                say("ways", gpu.courier_ways().unwrap());
            }
            Err(error) => return say("error", error),
        }
        sum(&mut comm, 2);
    });
}

/// Ranks of one host reach the slots of one another in place, in one process or in several.
#[test]
fn adapters_write_from_gpu_to_gpu_emulated() {
    crate::skip::takes_turns!(4);
    let processes: [&[&[usize]]; 4] =
        [&[&[0], &[1]], &[&[0], &[1], &[2]], &[&[0, 1], &[2, 3]], &[&[0], &[1], &[2]]];
    let hosts: [&[usize]; 4] = [&[0, 1], &[0, 0, 1], &[0, 0, 1, 1], &[0, 1, 2]];
    let devices = ["ib0; ib1", "ib0 late=2; ib1 link=2", "ib0", "ib0 late=2"];
    for ((hosts, processes), device) in hosts.into_iter().zip(processes).zip(devices) {
        let Some(world) = on_hosts("sum_direct", hosts, device, &[EXPORTS]) else { return };
        let (ended, count) = counted(world.processes(processes), hosts.len());
        for place in ended.iter().flat_map(|one| one.said("place")) {
            assert!(place.ends_with("are in the memory of the GPUs (GPUDirect)"), "{place}");
        }
        for ways in ended.iter().flat_map(|one| one.said("ways")) {
            assert!(ways.contains(" by RDMA writes by port 1 of ib0 between GPUs"), "{ways}");
        }
        let used = ["device_regions", "direct_writes"].map(|name| count(name) > 0);
        assert_eq!(used, [true; 2], "{hosts:?}");
        assert_eq!(["reads", "overwritten"].map(&count), [0; 2], "{hosts:?}");
        let freed = |one: &Ended| one.lines.iter().any(|line| line.contains("freed while"));
        assert!(!ended.iter().any(freed));
    }
}

/// The fake adapter keeps bytes back until a read, so without one the ranks sum other bytes.
#[test]
fn bytes_that_a_gpu_sees_late_are_flushed_emulated() {
    for hosts in [&[0, 1][..], &[0, 0, 1]] {
        let set = [EXPORTS, UNORDERED, (COURIERS, "gpudirect")];
        let device = "ib0 unordered=1; ib1 unordered=1";
        let Some(world) = on_hosts("sum_direct", hosts, device, &set) else { return };
        let (_, count) = counted(world, hosts.len());
        assert!(count("reads") > 0, "{hosts:?}");
        // One is for all publications that have arrived.
        assert!(count("reads") < count("direct_writes"), "{hosts:?}");
    }
}

/// A refusal on one rank, and the reason that all ranks print.
const REFUSALS: [(&str, &str, &str, &str); 4] = [
    ("FAKE_CUDA_DMA_BUF", "0", "ib0", "rank 1: the driver exports no memory of GPU 1 as a dma-buf"),
    (
        "FAKE_CUDA_FAIL",
        "cuMemGetHandleForAddressRange:0:801",
        "ib0",
        "rank 1: exporting memory as a dma-buf: CUDA_ERROR_NOT_SUPPORTED",
    ),
    ("FAKE_VERBS_FAIL", "ibv_reg_dmabuf_mr:0:95", "ib0", "rank 1: ibv_reg_dmabuf_mr failed on ib0"),
    (
        "FAKE_CUDA_ORDERING",
        "100",
        "ib0 unordered=1",
        "other bytes have arrived in the memory of the GPU of rank",
    ),
];

#[test]
fn where_one_rank_cannot_all_use_memory_of_the_hosts_emulated() {
    for (name, value, device, why) in REFUSALS {
        let Some(world) = on_hosts("sum_direct", &[0, 1], device, &[EXPORTS]) else { return };
        let (ended, count) = counted(world.set_of(1, name, value), 2);
        for one in &ended {
            let place = one.only("place");
            assert!(place.contains("GPUDirect is not possible") && place.contains(why), "{place}");
        }
        assert!(count("direct_writes") > 0, "{why}");
    }
}

/// Ranks of one host read the slots of one another's GPUs.
#[test]
fn where_gpus_of_a_host_are_apart_all_use_memory_of_the_hosts_emulated() {
    let set = [EXPORTS, ("FAKE_CUDA_NO_PEERS", "all")];
    let Some(world) = on_hosts("sum_direct", &[0, 0, 1], "ib0", &set) else { return };
    for one in world.start().succeed() {
        let place = one.only("place");
        let why = "GPUDirect is not possible: GPU ";
        assert!(place.contains(why) && place.contains("cannot reach the memory of"), "{place}");
        assert!(!one.lines.iter().any(|line| line.contains("freed while")), "{:?}", one.lines);
    }
}

#[test]
fn gpudirect_that_is_forced_and_impossible_is_an_error_emulated() {
    crate::skip::takes_turns!(4);
    let stream = (COURIERS, "stream", "ib0", "rank 1: MAYPOLE_CUDA_COURIERS excludes it there");
    let sealed = ("MAYPOLE_ENCRYPT", "1", "ib0", "the job is encrypted");
    for (name, value, device, why) in REFUSALS.into_iter().chain([stream, sealed]) {
        let set = [EXPORTS, (COURIERS, "gpudirect")];
        let Some(world) = on_hosts("sum_direct", &[0, 1], device, &set) else { return };
        let world = match name == "MAYPOLE_ENCRYPT" {
            true => world.set(name, value),
            false => world.set_of(1, name, value),
        };
        for one in world.start().succeed() {
            let error = one.only("error");
            let forced = error.contains("MAYPOLE_CUDA_COURIERS=gpudirect: ");
            assert!(forced && error.contains(why), "{name}: {error}");
        }
    }
}

#[test]
fn a_rank_that_wants_memory_of_the_host_has_it_emulated() {
    let Some(world) = on_hosts("sum_direct", &[0, 1], "ib0", &[EXPORTS]) else { return };
    let (ended, count) = counted(world.set_of(1, COURIERS, "host"), 2);
    assert_eq!(count("device_regions"), 0);
    assert!(count("direct_writes") > 0);
    assert!(ended.iter().all(|one| !one.only("place").contains("GPUDirect")));
}

#[test]
fn a_write_that_fails_in_the_probe_names_the_stream_and_the_port_emulated() {
    crate::skip::takes_turns!(4);
    let set = [EXPORTS, (COURIERS, "gpudirect")];
    let Some(world) = on_hosts("sum_direct", &[0, 1], "ib0 takes=0", &set) else { return };
    for ended in world.start().succeed() {
        let error = ended.only("error");
        let parts = ["gpudirect: rank ", ": the stream to rank ", " is lost: ", "ib0", "port 1"];
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
}

/// Memory that takes no more writes after some.
#[test]
fn a_write_that_fails_later_names_the_rank_and_the_port_emulated() {
    let set = [EXPORTS, (COURIERS, "gpudirect")];
    let Some(world) = on_hosts("sum_without_end", &[0, 1], "ib0 takes=500", &set) else { return };
    for ended in world.start().succeed() {
        let error = ended.only("error").to_owned();
        let parts = ["lost rank ", "ib0", "port 1", "MAYPOLE_CUDA_COURIERS="];
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
}

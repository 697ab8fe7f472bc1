//! Groups on GPUs of several hosts: network namespaces, each with one process, and processes that pretend
//! to be on several hosts.

use crate::fake_verbs::FakeVerbs;
use crate::far::{on_hosts, two_hosts};
use crate::network;
use crate::raw::{context, hold};
use crate::spawn::{Ended, World, as_each_rank, await_file, ranks, say};
use crate::walks::ready;
use crate::world;
use maypole::cuda::{Comm, CommOptions, Id};
use maypole::{ReduceOp, Transport};
use std::sync::mpsc;
use std::time::{Duration, Instant};

crate::roles! {
    split_hosts;
    leave_across;
    sum_without_end;
}

const FILE: &str = "TEST_FILE";
/// Where rank 0 is; empty: as `Id::new` finds it.
const ADDRESS: &str = "TEST_ADDRESS";

/// The id that rank 0 makes, passed on by a file.
fn shared_id(rank: usize) -> Id {
    let file = std::env::var(FILE).unwrap();
    if rank == 0 {
        let address = std::env::var(ADDRESS).unwrap_or_default();
        let id = if address.is_empty() { Id::new() } else { Id::at(&address) }.unwrap();
        let bytes = id.internal().map(|byte| byte as u8);
        std::fs::write(format!("{file}.new"), bytes).unwrap();
        std::fs::rename(format!("{file}.new"), &file).unwrap();
        return id;
    }
    await_file(FILE);
    let bytes: [u8; 128] = std::fs::read(&file).unwrap().try_into().unwrap();
    Id::uninit(bytes.map(|byte| byte as _))
}

/// A group of both hosts sums, and so do its parts.
fn split_hosts() {
    let rank = ranks()[0];
    let stream = context(0).new_stream().unwrap();
    let comm = Comm::from_rank(stream.clone(), rank, 2, shared_id(rank)).unwrap();
    assert!(comm.host_mailboxes().unwrap().contains("several hosts"));
    let sum = |comm: &Comm| {
        let stream = comm.stream();
        let mut data = stream.clone_htod(&[1.0f32; 100]).unwrap();
        comm.all_reduce_in_place(&mut data, &ReduceOp::Sum).unwrap();
        comm.synchronize().unwrap();
        assert_eq!(stream.clone_dtoh(&data).unwrap(), [comm.world_size() as f32; 100]);
    };
    sum(&comm);
    let mut options = CommOptions::default();
    options.timeout = Some(Duration::from_secs(20));
    let both = comm.split(Some(0), -(rank as i32), &options).unwrap().unwrap();
    sum(&both);
    let part = both.split(Some(5), 0, &options).unwrap().unwrap();
    sum(&part);
    let alone = comm.split(Some(rank as u32), 0, &options).unwrap().unwrap();
    sum(&alone);
    say("split", rank);
}

/// Rank 1 leaves as soon as its last call has ended. Rank 0 makes that call later, and receives all of it.
/// It makes one call more, and is told that rank 1 has left.
fn leave_across() {
    as_each_rank(|mut comm| {
        let stream = context(0).new_stream().unwrap();
        let (gpu, _data) = ready(&mut comm, &stream);
        gpu.set_timeout(Duration::from_secs(30));
        // As much as the slots hold.
        let mut long = stream.clone_htod(&vec![1.0f32 + comm.rank() as f32; 500_000]).unwrap();
        let (open, gate) = mpsc::channel();
        if comm.rank() == 0 {
            hold(&stream, gate);
        }
        gpu.broadcast_in_place(&mut long, 1).unwrap();
        if comm.rank() == 1 {
            return;
        }
        drop(open);
        gpu.synchronize().unwrap();
        assert_eq!(stream.clone_dtoh(&long).unwrap(), vec![2.0; 500_000]);
        let start = Instant::now();
        gpu.broadcast_in_place(&mut long, 1).unwrap();
        let error = gpu.synchronize().unwrap_err();
        assert_eq!(error.culprit(), Some(1), "{error}");
        assert!(error.to_string().contains("left"), "{error}");
        assert!(start.elapsed() < Duration::from_secs(20), "after {:?}", start.elapsed());
    });
}

#[test]
fn a_rank_leaves_behind_its_last_publication_emulated() {
    for hosts in [[0, 0], [0, 1]] {
        let Some(world) = world("leave_across", 2) else { return };
        world.hosts(&hosts).start().succeed();
    }
}

#[test]
fn a_group_on_two_hosts_is_split_emulated() {
    let Some(network) = two_hosts() else { return };
    for address in ["", &format!("{}.1", network::OTHER)] {
        let Some(world) = world("split_hosts", 2) else { return };
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("id");
        let world = on_hosts(&network, world, 2).set(FILE, file.display()).set(ADDRESS, address);
        for ended in world.within(Duration::from_secs(90)).start().succeed() {
            assert_eq!(ended.said("split").len(), 1);
        }
    }
}

/// Ranks on these hosts, whose couriers reach one another over adapters like `device`.
#[track_caller]
pub(crate) fn over_verbs(role: &str, hosts: &[usize], device: &str) -> Option<World> {
    let world = world(role, hosts.len())?;
    let (cuda, verbs) =
        (crate::FakeDriver::get()?.library_path(), FakeVerbs::get()?.library_path());
    let world = world.set("LD_LIBRARY_PATH", format!("{verbs}:{cuda}")).hosts(hosts);
    Some(world.set("FAKE_VERBS_DEVICES", device).within(Duration::from_secs(90)))
}

/// The ranks of such a world, after success, and the sums of the counters of all of their adapters, by name, or
/// by device and name.
#[track_caller]
pub(crate) fn counted(world: World, ranks: usize) -> (Vec<Ended>, impl Fn(&str) -> u64) {
    let folder = tempfile::tempdir().unwrap();
    let file = |rank: usize| folder.path().join(rank.to_string());
    let set = |world: World, rank| world.set_of(rank, "FAKE_VERBS_COUNTERS", file(rank).display());
    let ended = (0..ranks).fold(world, set).start().succeed();
    // A process of several ranks has one.
    let read = |rank| std::fs::read_to_string(file(rank)).unwrap_or_default();
    let all: String = (0..ranks).map(read).collect();
    let count = move |name: &str| {
        let of = |line: &str| {
            let (before, value) = line.rsplit_once(' ')?;
            let is_it = before == name || before.rsplit_once(' ')?.1 == name;
            is_it.then(|| value.parse::<u64>().unwrap())
        };
        all.lines().filter_map(of).sum()
    };
    (ended, count)
}

/// Runs sums on these hosts. Returns whether `ib0` and `ib1` have written directly.
#[track_caller]
fn writers(hosts: &[usize], device: &str, variables: &[(usize, &str, &str)]) -> Option<[bool; 2]> {
    let world = over_verbs("sum_direct", hosts, device)?;
    let set =
        |world: World, (rank, name, value): &(usize, &str, &str)| world.set_of(*rank, name, value);
    let (_, count) = counted(variables.iter().fold(world, set), hosts.len());
    assert_eq!(count("overwritten"), 0, "{device}");
    Some(["ib0 direct_writes", "ib1 direct_writes"].map(|name| count(name) > 0))
}

/// Bytes have the bits of other transports, also if completions are late. A rank with several ports uses all.
#[test]
fn couriers_write_from_slot_to_slot_emulated() {
    let cases = [
        (&[0, 1][..], "ib0; ib1", [true, true]),
        (&[0, 0, 1], "ib0 late=2; ib1 link=2", [true, false]),
        (&[0, 1, 2], "ib0 link=2", [true, false]),
    ];
    for (hosts, devices, used) in cases {
        let Some(found) = writers(hosts, devices, &[]) else { return };
        assert_eq!(found, used, "{devices}");
    }
}

/// The second ports are on networks of their own.
#[test]
fn ports_that_do_not_reach_all_ranks_carry_nothing_emulated() {
    crate::skip::takes_turns!(4);
    let devices = ["ib0; ib1 net=1", "ib0; ib1 net=2"];
    let of = |rank: usize| (rank, "FAKE_VERBS_DEVICES", devices[rank]);
    let Some(found) = writers(&[0, 1], "", &[of(0), of(1)]) else { return };
    assert_eq!(found, [true, false]);
}

/// Nothing encrypts the writes of an adapter, and a user may want none.
#[test]
fn couriers_write_nothing_directly_where_they_may_not_emulated() {
    let encrypted = [0, 1].map(|rank| (rank, "MAYPOLE_ENCRYPT", "1"));
    for variables in [&encrypted[..], &[(1, "MAYPOLE_CUDA_COURIERS", "stream")]] {
        let Some(found) = writers(&[0, 1], "ib0; ib1", variables) else { return };
        assert_eq!(found, [false; 2], "{variables:?}");
    }
}

fn sum_without_end() {
    as_each_rank(|mut comm| {
        let mut comm = comm.over(Transport::Ib).unwrap();
        let stream = context(comm.rank() % 2).new_stream().unwrap();
        let mut sums = || -> maypole::Result<()> {
            let gpu = Comm::new(&mut comm, stream.clone())?;
            let mut data = stream.clone_htod(&vec![1.0f32; 100_000]).unwrap();
            for number in 0.. {
                gpu.all_reduce_in_place(&mut data, &ReduceOp::Max)?;
                gpu.synchronize()?;
                if number == 0 {
                    say("ready", gpu.rank());
                }
            }
            Ok(())
        };
        say("error", sums().unwrap_err());
    });
}

#[test]
fn a_refused_write_names_the_rank_and_the_remedy_emulated() {
    crate::skip::takes_turns!(4);
    let Some(world) = over_verbs("sum_without_end", &[0, 1], "ib0 refuse=1") else { return };
    for ended in world.start().succeed() {
        let error = ended.only("error").to_owned();
        let parts = ["lost rank ", "ib0", "port 1", "MAYPOLE_CUDA_COURIERS=stream"];
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
}

#[test]
fn a_rank_that_dies_during_direct_writes_is_named_emulated() {
    let Some(world) = over_verbs("sum_without_end", &[0, 0, 1], "ib0") else { return };
    let mut running = world.start();
    running.wait_for("ready", &[0, 1, 2]);
    running.signal(2, "KILL");
    let ended = running.end();
    for one in &ended[..2] {
        assert!(one.only("error").contains("rank 2"), "{one:?}");
    }
}

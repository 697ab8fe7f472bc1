//! Groups on GPUs of several hosts: network namespaces, each with one process, and processes that pretend
//! to be on several hosts.

use crate::fake_verbs::FakeVerbs;
use crate::network::{self, Network};
use crate::raw::{context, hold};
use crate::spawn::{World, as_each_rank, ranks, say};
use crate::walks::{ready, sum};
use crate::{skip, world};
use maypole::cuda::{Comm, CommOptions, Id};
use maypole::{ReduceOp, Transport};
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

crate::roles! {
    split_hosts;
    leave_across;
    sum_over_verbs;
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
    let until = Instant::now() + Duration::from_secs(60);
    while !Path::new(&file).is_file() {
        assert!(Instant::now() < until, "rank 0 makes no id");
        std::thread::sleep(Duration::from_millis(2));
    }
    let bytes: [u8; 128] = std::fs::read(&file).unwrap().try_into().unwrap();
    Id::uninit(bytes.map(|byte| byte as _))
}

/// A group of both hosts sums, and so do its parts.
fn split_hosts() {
    let rank = ranks()[0];
    let stream = context(0).new_stream().unwrap();
    let comm = Comm::from_rank(stream.clone(), rank, 2, shared_id(rank)).unwrap();
    assert_eq!(comm.host_reason(), None);
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
    let network = match Network::new(2) {
        Ok(network) => network,
        Err(why) => return skip::skipped(&why),
    };
    for address in ["", &format!("{}.1", network::OTHER)] {
        let Some(mut world) = world("split_hosts", 2) else { return };
        for host in 0..2 {
            let command = network.command(host, "env");
            let words = std::iter::once(command.get_program()).chain(command.get_args());
            let words: Vec<_> = words.map(|word| word.to_str().unwrap()).collect();
            world = world.by(host, &words);
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("id");
        let world = world.set(FILE, file.display()).set(ADDRESS, address);
        for ended in world.within(Duration::from_secs(90)).start().succeed() {
            assert_eq!(ended.said("split").len(), 1);
        }
    }
}

/// Ranks on these hosts, whose couriers reach one another over adapters like `device`.
fn over_verbs(role: &str, hosts: &[usize], device: &str) -> Option<World> {
    let world = world(role, hosts.len())?;
    let (cuda, verbs) =
        (crate::FakeDriver::get()?.library_path(), FakeVerbs::get()?.library_path());
    let world = world.set("LD_LIBRARY_PATH", format!("{verbs}:{cuda}")).hosts(hosts);
    Some(world.set("FAKE_VERBS_DEVICES", device).within(Duration::from_secs(60)))
}

/// Runs sums on these hosts. Returns the counters of the adapters of all ranks: lines of device, name and value.
#[track_caller]
fn count_sums(hosts: &[usize], device: &str, variables: &[(usize, &str, &str)]) -> Option<String> {
    let mut world = over_verbs("sum_over_verbs", hosts, device)?;
    let folder = tempfile::tempdir().unwrap();
    let files: Vec<_> = (0..hosts.len()).map(|rank| folder.path().join(rank.to_string())).collect();
    for (rank, file) in files.iter().enumerate() {
        world = world.set_of(rank, "FAKE_VERBS_COUNTERS", file.display());
    }
    for (rank, name, value) in variables {
        world = world.set_of(*rank, name, value);
    }
    world.start().succeed();
    Some(files.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect())
}

/// Whether `ib0` and `ib1` have counted so.
fn counted(all: &str, name: &str) -> [bool; 2] {
    ["ib0", "ib1"].map(|device| {
        let start = format!("{device} {name} ");
        let values = all.lines().filter_map(|line| line.strip_prefix(&start));
        values.map(|value| value.parse::<u64>().unwrap()).sum::<u64>() > 0
    })
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
        let Some(all) = count_sums(hosts, devices, &[]) else { return };
        assert_eq!(counted(&all, "direct_writes"), used, "{devices}: {all}");
        assert_eq!(counted(&all, "overwritten"), [false; 2], "{devices}");
    }
}

/// The second ports are on networks of their own.
#[test]
fn ports_that_do_not_reach_all_ranks_carry_nothing_emulated() {
    let devices = ["ib0; ib1 net=1", "ib0; ib1 net=2"];
    let of = |rank: usize| (rank, "FAKE_VERBS_DEVICES", devices[rank]);
    let Some(all) = count_sums(&[0, 1], "", &[of(0), of(1)]) else { return };
    assert_eq!(counted(&all, "direct_writes"), [true, false], "{all}");
}

/// Nothing encrypts the writes of an adapter, and a user may want none.
#[test]
fn couriers_write_nothing_directly_where_they_may_not_emulated() {
    let encrypted = [0, 1].map(|rank| (rank, "MAYPOLE_ENCRYPT", "1"));
    for variables in [&encrypted[..], &[(1, "MAYPOLE_CUDA_COURIERS", "stream")]] {
        let Some(all) = count_sums(&[0, 1], "ib0; ib1", variables) else { return };
        assert_eq!(counted(&all, "direct_writes"), [false; 2], "{variables:?}");
    }
}

fn sum_over_verbs() {
    as_each_rank(|mut comm| sum(&mut comm.over(Transport::Ib).unwrap(), 2));
}

fn sum_without_end() {
    as_each_rank(|mut comm| {
        let mut comm = comm.over(Transport::Ib).unwrap();
        let stream = context(0).new_stream().unwrap();
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
    for rank in [0, 1] {
        let error = ended[rank].only("error").to_owned();
        assert!(error.contains("rank 2"), "{error}");
    }
}

//! Groups on GPUs of several hosts: network namespaces, each with one process, and processes that pretend
//! to be on several hosts.

use crate::network::{self, Network};
use crate::raw::{context, hold};
use crate::spawn::{as_each_rank, ranks, say};
use crate::walks::ready;
use crate::{skip, world};
use maypole::ReduceOp;
use maypole::cuda::{Comm, CommOptions, Id};
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

crate::roles! {
    split_hosts;
    leave_across;
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

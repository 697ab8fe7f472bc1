//! Messages between two ranks, in traces of real runs.

use crate::file::TraceFile;
use crate::over_processes;
use maypole::{Communicator, Local};
use std::path::Path;

const RANKS: usize = 3;
/// Lengths in bytes: two eager ones, the longest eager one, and one by rendezvous.
const LENGTHS: [usize; 4] = [0, 5, 16 << 10, 1 << 20];

pub(crate) fn rank_process(_: &str) {
    talk(&mut Communicator::from_env().unwrap());
}

/// Sends each length around the ring, calls a barrier, and sends all lengths to all ranks in one
/// group. Then rank 0 receives from any rank.
fn talk(comm: &mut Communicator) {
    let rank = comm.rank();
    let next = (rank + 1) % RANKS;
    let last = (rank + RANKS - 1) % RANKS;
    for len in LENGTHS {
        comm.exchange(&vec![1u8; len], next, &mut vec![0u8; len], last, 0).unwrap();
    }
    comm.barrier().unwrap();
    let mine: Vec<Vec<u8>> = LENGTHS.iter().map(|len| vec![2; *len]).collect();
    let mut theirs = vec![mine.clone(); RANKS];
    comm.group(|group| {
        for to in 0..RANKS {
            mine.iter().enumerate().try_for_each(|(tag, data)| group.send(data, to, tag as u32))?;
        }
        // Later tags come first, so messages are not received in sending order.
        for (from, room) in theirs.iter_mut().enumerate() {
            room.iter_mut()
                .enumerate()
                .rev()
                .try_for_each(|(tag, data)| group.recv(data, from, tag as u32))?;
        }
        Ok(())
    })
    .unwrap();
    if rank == 0 {
        for _ in 1..RANKS {
            comm.recv_any(&mut [0u8; 9], 9).unwrap();
        }
    } else {
        comm.send(&vec![3u8; rank], 0, 9).unwrap();
    }
}

fn check(path: &Path) {
    let file = TraceFile::read(&std::fs::read_to_string(path).unwrap());
    let all: usize = LENGTHS.iter().sum();
    for rank in 0..RANKS {
        let owner = format!("rank {rank}");
        let mut calls = file.of(&owner, "call");
        calls.retain(|call| call.name != "write the trace");
        calls.sort_by(|a, b| a.start.total_cmp(&b.start));
        let names: Vec<&str> = calls.iter().map(|call| call.name.as_str()).collect();
        let ring = ["group(1 sends, 1 receives)"; LENGTHS.len()];
        let steps = RANKS * LENGTHS.len();
        let everybody = format!("group({steps} sends, {steps} receives)");
        assert_eq!(names[..6], [&ring[..], &["barrier()", &everybody]].concat(), "{owner}");
        let last = if rank == 0 { vec!["recv_any(up to 9 x u8, tag 9)"; 2] } else { vec!["send"] };
        assert_eq!(
            names[6..].iter().map(|name| &name[..last[0].len()]).collect::<Vec<_>>(),
            last,
            "{owner}"
        );
        // Every step of the group has one slice, within the slice of the group.
        let within =
            |it: &&&crate::file::Slice| it.start >= calls[5].start && it.end <= calls[5].end;
        for (kind, first) in [("send", 0), ("receive", steps)] {
            let of = file.of(&owner, kind);
            let mut seen: Vec<u64> = of.iter().filter(within).map(|it| it.number("step")).collect();
            seen.sort_unstable();
            assert_eq!(
                seen,
                (first as u64..(first + steps) as u64).collect::<Vec<_>>(),
                "{owner}: {kind}"
            );
        }
        let mut messages = file.of(&owner, "send");
        messages.retain(|send| !send.facts["tag"].is_null());
        let sent: u64 = messages.iter().map(|send| send.number("bytes")).sum();
        assert_eq!(sent as usize, all + RANKS * all + rank, "{owner}");
    }
    // Each message has an arrow with two ends, unless a rank sent it to itself.
    let received: u64 = file.slices.iter().map(|slice| slice.count("from")).sum();
    assert_eq!(received as usize, file.arrows.len() + RANKS * LENGTHS.len());
    assert!(file.arrows.len() >= RANKS * LENGTHS.len() * RANKS + RANKS - 1);
}

#[test]
fn threads_over_streams_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    Local::new(RANKS).hosts(&[0, 1, 1]).run(|mut comm| {
        comm.trace(&path.to_string_lossy()).unwrap();
        talk(&mut comm);
    });
    check(&path);
}

#[test]
fn processes_over_shared_memory_and_tcp() {
    over_processes("messages", RANKS, check);
}

#[test]
fn a_message_that_never_comes_shows_as_a_wait_in_vain() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    Communicator::run_local(2, |mut comm| {
        comm.trace(&path.to_string_lossy()).unwrap();
        if comm.rank() == 0 {
            comm.recv(&mut [0u8], 1, 0).unwrap_err();
        }
    });
    let file = TraceFile::read(&std::fs::read_to_string(&path).unwrap());
    assert!(file.of("rank 0", "wait").iter().any(|wait| wait.name == "wait for 1 in vain"));
    let calls = file.of("rank 0", "call");
    assert!(calls.iter().any(|call| call.name == "recv(1 x u8, from rank 1, tag 0)"));
}

//! Collectives of three ranks whose encrypted links lead through proxies. The ranks are threads
//! without a control plane, so that only the links can detect an attack.

use super::LONG;
use crate::proxy::{Passing, Proxy, Way};
use maypole::algorithms::Algorithm;
use maypole::execute::{AnyStream, Buffers, ExecuteError, Executor, LinkError};
use maypole::lower::{LoweringInput, lower};
use maypole::schedule::collective::Collective;
use maypole::schedule::hosts::Boards;
use maypole::schedule::{Layout, Placement};
use maypole_kernels::{BinaryOp, BuiltInReducer, Region, View, ViewMut};
use maypole_tests::common::SeededRng;
use maypole_transports::secure::{
    Binding, EncryptedStream, JobSecret, Purpose, RecordKeys, initiate, respond,
};
use maypole_transports::{Alarm, Fault, Tcp, Waiting};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

const WORLD: usize = 3;
/// Elements of the vector. A chunk is one record.
const COUNT: usize = 24_000;
/// Bytes of a chunk.
const CHUNK: usize = COUNT / WORLD * size_of::<u32>();
/// Bytes of the record of a chunk: a head, the chunk, a sealed length and a tag.
const RECORD: usize = 16 + CHUNK + 36;

fn keys() -> [RecordKeys; 2] {
    let secret = JobSecret { key: [1; 32], job: "links".to_owned(), session: [2; 16] };
    let purpose = Purpose::EncryptedData;
    let binding = Binding { purpose, group: [0; 2], lane: 0, initiator: 0, responder: 1 };
    let (mut near, mut far) = UnixStream::pair().unwrap();
    std::thread::scope(|threads| {
        let other = threads.spawn(|| respond(&mut far, &secret).unwrap().1);
        let mut here = initiate(&mut near, &secret, &binding).unwrap();
        let mut there = other.join().unwrap();
        [&mut here, &mut there].map(|channel| channel.take_record_keys().unwrap())
    })
}

/// The two ends of a link through a proxy. The lower rank has connected.
fn link(
    encrypted: bool,
    tamper: impl Fn(Passing<'_>) + Send + Sync + 'static,
) -> ([AnyStream; 2], Proxy) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = Proxy::new(listener.local_addr().unwrap(), tamper);
    let near = TcpStream::connect(proxy.address).unwrap();
    let far = listener.accept().unwrap().0;
    let ends = [near, far].map(|socket| Tcp::new(socket).unwrap());
    if !encrypted {
        return (ends.map(AnyStream::Tcp), proxy);
    }
    let [near, far] = ends;
    let [here, there] = keys();
    let encrypt = |end, keys| AnyStream::Encrypted(Box::new(EncryptedStream::new(end, keys)));
    ([encrypt(near, &here), encrypt(far, &there)], proxy)
}

fn contribution(rank: usize) -> Vec<u32> {
    let mut random = SeededRng::new(rank as u64);
    (0..COUNT).map(|_| random.next_u64() as u32).collect()
}

/// How an all-reduce ended on one rank.
type Ended = Result<Vec<u32>, Box<ExecuteError>>;

/// An all-reduce by the ring. The link from rank 0 to rank 1 is tampered with.
fn all_reduce(encrypted: bool, tamper: impl Fn(Passing<'_>) + Send + Sync + 'static) -> Vec<Ended> {
    let waiting = Waiting::new(WORLD, 1, LONG);
    let alarm = Arc::new(Alarm::default());
    let executor = |rank| Executor::new(rank, waiting, Arc::clone(&alarm), Arc::new(()));
    let mut executors: Vec<Executor> = (0..WORLD).map(executor).collect();
    let mut proxies = Vec::new();
    let mut join = |[here, there]: [usize; 2], ([near, far], proxy): ([AnyStream; 2], Proxy)| {
        executors[here].streams().insert(there, near);
        executors[there].streams().insert(here, far);
        proxies.push(proxy);
    };
    join([0, 1], link(encrypted, tamper));
    join([1, 2], link(encrypted, |_| {}));
    join([0, 2], link(encrypted, |_| {}));
    let collective = Collective::AllReduce;
    let schedules = Algorithm::Ring.schedules(collective, WORLD).unwrap();
    let layout = Layout::even(COUNT, WORLD);
    let request = LoweringInput {
        collective,
        schedules: &schedules,
        layout: &layout,
        element: size_of::<u32>(),
        boards: &Boards::separate(WORLD),
        window: 1 << 20,
        fingerprint: 77,
    };
    let run = |(rank, executor): (usize, &mut Executor)| {
        let program = lower(&request, rank, Placement::Apart).unwrap();
        let input = contribution(rank);
        let mut output = vec![0u32; COUNT];
        let scratch = Region::new(program.scratch);
        let buffers = Buffers {
            input: View::of(&input),
            output: ViewMut::of(&mut output),
            scratch: scratch.view(),
        };
        let reducer = BuiltInReducer::new(maypole::DataType::U32, BinaryOp::Sum).into();
        let ended = executor.run(&program, &reducer, &buffers);
        if ended.is_err() {
            // The part of the control plane in a real world.
            alarm.raise();
        }
        ended.map(|()| output)
    };
    let run = &run;
    std::thread::scope(|threads| {
        let start = |rank| threads.spawn(move || run(rank));
        let ranks: Vec<_> = executors.iter_mut().enumerate().map(start).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

fn expected() -> Vec<u32> {
    let all: Vec<_> = (0..WORLD).map(contribution).collect();
    (0..COUNT).map(|at| all.iter().fold(0, |sum: u32, of| sum.wrapping_add(of[at]))).collect()
}

/// Asserts that no rank has wrong numbers, that rank 1 has noticed the attack and named rank 0, and
/// that no other rank blames a peer.
#[track_caller]
fn noticed(ended: &[Ended]) {
    for (rank, ended) in ended.iter().enumerate() {
        match ended {
            Ok(output) => assert!(*output == expected(), "rank {rank} has wrong numbers"),
            Err(failed) if rank == 1 => {
                let altered = matches!(failed.error, LinkError::Lost(Fault::Altered));
                assert!(altered && failed.peer == 0, "rank 1: {failed:?}");
            }
            Err(failed) => {
                assert!(matches!(failed.error, LinkError::Aborted), "rank {rank}: {failed:?}");
            }
        }
    }
    assert!(ended[1].is_err(), "rank 1 noticed it");
}

#[test]
fn untouched_links_give_the_right_sum() {
    for encrypted in [false, true] {
        for ended in all_reduce(encrypted, |_| {}) {
            assert!(ended.unwrap() == expected());
        }
    }
}

fn flip(at: usize, bits: u8) -> impl Fn(Passing<'_>) + Send + Sync {
    move |mut passing: Passing<'_>| {
        if passing.way == Way::There {
            passing.flip(at, bits);
        }
    }
}

#[test]
fn a_flipped_byte_of_a_plain_link_is_a_wrong_sum() {
    let ended = all_reduce(false, flip(16 + 1000, 4));
    assert!(ended.iter().any(|ended| matches!(ended, Ok(output) if *output != expected())));
}

#[test]
fn a_flipped_byte_anywhere_is_an_error_and_never_a_wrong_sum() {
    let mut random = SeededRng::new(41);
    let edges = [0, 3, 4, 19, 20, 36, RECORD - 17, RECORD - 16, RECORD - 1, RECORD];
    let drawn: Vec<usize> = (0..40).map(|_| random.below(4 * RECORD)).collect();
    for at in edges.into_iter().chain(drawn) {
        noticed(&all_reduce(true, flip(at, 1 << random.below(8))));
    }
}

#[derive(Clone, Copy, Debug)]
enum RecordAttack {
    Drop,
    Repeat,
    /// Sends the previous record again instead of it.
    Replace,
}

/// Holds record `nth` back until all of it has arrived, and then changes it by `attack`.
fn attack_record(nth: usize, attack: RecordAttack) -> impl Fn(Passing<'_>) + Send + Sync {
    let start = nth * RECORD;
    let end = start + RECORD;
    move |passing: Passing<'_>| {
        if passing.way != Way::There {
            return;
        }
        let before = passing.before.there.len();
        let all = [&passing.before.there[..], passing.bytes].concat();
        let at = |place: usize| place.clamp(before, all.len());
        let mut out = all[before..at(start)].to_vec();
        if before < end && all.len() >= end {
            match attack {
                RecordAttack::Drop => {}
                RecordAttack::Repeat => out.extend([&all[start..end]; 2].concat()),
                RecordAttack::Replace => out.extend(&all[start - RECORD..start]),
            }
        }
        out.extend(&all[at(end)..]);
        *passing.bytes = out;
    }
}

#[test]
fn a_whole_record_that_is_dropped_repeated_or_replaced_is_an_error() {
    // A ring of three ranks sends four chunks over each link: two while it reduces, two while it
    // gathers. Rank 1 detects a dropped record by the next one.
    for (nth, attack) in [
        (0, RecordAttack::Drop),
        (1, RecordAttack::Drop),
        (2, RecordAttack::Drop),
        (0, RecordAttack::Repeat),
        (2, RecordAttack::Repeat),
        (1, RecordAttack::Replace),
        (3, RecordAttack::Replace),
    ] {
        noticed(&all_reduce(true, attack_record(nth, attack)));
    }
}

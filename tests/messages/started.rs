//! Messages that do not block: matched by their tags, in any order of posts at both ends, and
//! concurrent with every other call.

use crate::blocking;
use crate::common::tasks::block_on;
use crate::spawn::{World, as_told, everywhere};
use maypole::{Communicator, DataType, Error, Local, ReduceOp, Request, wait_all};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// How long a call that fails may take on a busy machine.
const SOON: Duration = Duration::from_secs(20);
const LONG: usize = 1 << 20;

fn bytes(len: usize, tag: u32) -> Vec<u8> {
    (0..len).map(|at| (at as u32 ^ tag.wrapping_mul(77)) as u8).collect()
}

/// A receive that is posted first and served last delays neither receives nor sends.
fn a_posted_receive_holds_nothing_up(comm: &mut Communicator) {
    for len in [3, LONG] {
        if comm.rank() == 0 {
            comm.send(&bytes(len, 2), 1, 2).unwrap();
            comm.recv(&mut [0u8], 1, 9).unwrap();
            comm.send(&bytes(len, 1), 1, 1).unwrap();
        } else if comm.rank() == 1 {
            let first = comm.start_recv(vec![0u8; len], 0, 1);
            let mut second = vec![0u8; len];
            comm.recv(&mut second, 0, 2).unwrap();
            comm.send(&[1u8], 0, 9).unwrap();
            assert!(second == bytes(len, 2));
            assert!(first.wait().unwrap() == bytes(len, 1));
        }
    }
}

/// Messages progress while their rank is in a collective, or waits for another request.
fn beside_collectives(comm: &mut Communicator) {
    let mut sent = None;
    match comm.rank() {
        0 => sent = Some(comm.start_send(bytes(LONG, 4), 1, 4)),
        1 => {
            let mut data = vec![0u8; LONG];
            comm.recv(&mut data, 0, 4).unwrap();
            assert!(data == bytes(LONG, 4));
        }
        _ => {}
    }
    comm.barrier().unwrap();
    let received = (comm.rank() == 0).then(|| comm.start_recv(vec![0u8; LONG], 1, 5));
    let sum = comm.start_all_reduce(vec![1u64; 5000], ReduceOp::Sum);
    if comm.rank() == 1 {
        // Waits for the reduction that was started before, and then for rank 0.
        comm.send(&bytes(LONG, 5), 0, 5).unwrap();
    }
    assert_eq!(sum.wait().unwrap(), vec![comm.world() as u64; 5000]);
    sent.map(Request::wait).transpose().unwrap();
    let came = received.map(Request::wait).transpose().unwrap();
    assert!(came.is_none_or(|data| data == bytes(LONG, 5)));
}

/// Waits as a task does.
fn await_in_background<B>(request: Request<B>) -> B {
    block_on(request, 10 * SOON).0.unwrap()
}

/// While the threads in the background of both ends move long messages, short ones are started, and blocking
/// calls made.
fn beside_long_messages(comm: &mut Communicator) {
    let Some(peer) = 1usize.checked_sub(comm.rank()) else { return };
    for round in 0..2 {
        let long = comm.start_recv(vec![0u8; 4 * LONG], peer, 6);
        let sent = comm.start_send(bytes(4 * LONG, round), peer, 6);
        let short = comm.start_recv(vec![0u32], peer, 7);
        comm.start_send(vec![round], peer, 7).wait().unwrap();
        if round % 2 == 0 {
            comm.send(&[round], peer, 8).unwrap();
            comm.recv(&mut [0u32], peer, 8).unwrap();
        }
        assert_eq!(await_in_background(short), [round]);
        assert!(await_in_background(long) == bytes(4 * LONG, round));
        await_in_background(sent);
    }
}

/// A job that receives in the background does not delay a message that is posted meanwhile.
fn beside_a_request_that_receives(comm: &mut Communicator) {
    match comm.rank() {
        0 => {
            let job = comm.start([0u8], |comm, into| comm.recv(into, 1, 1));
            comm.start_send(bytes(LONG, 2), 1, 2).wait().unwrap();
            assert_eq!(job.wait().unwrap(), [8]);
        }
        1 => {
            let mut data = vec![0u8; LONG];
            comm.recv(&mut data, 0, 2).unwrap();
            comm.send(&[8u8], 0, 1).unwrap();
        }
        _ => {}
    }
}

/// A message of another type or length is an error of its receive alone, and later ones arrive.
fn misfits(comm: &mut Communicator) {
    for len in [2usize, LONG] {
        match comm.rank() {
            0 => {
                for round in 0..4 {
                    let data = vec![round as f32; len];
                    comm.send(&data, 1, 7).unwrap();
                    comm.start_send(data, 1, 8).wait().unwrap();
                }
                comm.start_send(bytes(len, 3), 1, 7).wait().unwrap();
                comm.send(&[1u8], 1, 9).unwrap();
            }
            1 => {
                let told = |takes: String, any: bool, tag: u32| {
                    let call = if any { "recv_any" } else { "recv" };
                    format!(
                        "rank 1: {call}: rank 0 sent {len} x f32 with tag {tag}, but this receive \
                         takes {takes}; the message is dropped"
                    )
                };
                let check = |error: Error, text: String| {
                    assert!(matches!(error, Error::Value { rank: 1, peer: 0, .. }), "{error}");
                    assert!(error.is_harmless());
                    assert_eq!(error.to_string(), text);
                };
                let mut kept = vec![9f32; len + 1];
                let longer = comm.recv(&mut kept, 0, 7).unwrap_err();
                check(longer, told(format!("{} x f32", len + 1), false, 7));
                assert!(kept == vec![9.0; len + 1], "the buffer does not change");
                let shorter = comm.start_recv(vec![0f32; len - 1], 0, 8).wait().unwrap_err();
                check(shorter, told(format!("{} x f32", len - 1), false, 8));
                let other = comm.recv(&mut vec![0f64; len / 2], 0, 7).unwrap_err();
                check(other, told(format!("{} x f64", len / 2), false, 7));
                let other = comm.start_recv_any(vec![0f64; len], 8).wait().unwrap_err();
                check(other, told(format!("up to {len} x f64"), true, 8));
                let mut kept = vec![9f32; len];
                comm.recv(&mut kept, 0, 7).unwrap();
                assert_eq!(kept, vec![2.0; len]);
                let data = comm.start_recv(vec![0f32; len], 0, 8).wait().unwrap();
                assert_eq!(data, vec![2.0; len]);
                comm.recv(&mut kept, 0, 7).unwrap();
                assert_eq!(kept, vec![3.0; len]);
                let data = comm.start_recv(vec![0f32; len], 0, 8).wait().unwrap();
                assert_eq!(data, vec![3.0; len]);
                let mut last = vec![0u8; len];
                comm.recv(&mut last, 0, 7).unwrap();
                assert!(last == bytes(len, 3));
                let empty = comm.recv::<u8>(&mut [], 0, 9).unwrap_err();
                assert!(empty.to_string().contains("this receive takes 0 x u8"), "{empty}");
            }
            _ => {}
        }
    }
}

/// Bytes with a type at run time are compared by that type, and errors count its elements.
fn erased(comm: &mut Communicator) {
    if comm.rank() == 0 {
        let (tell, told) = channel();
        let sent = move |end: Result<(usize, usize), &Error>| tell.send(end.unwrap()).unwrap();
        let numbers: Vec<u8> = [1f32, 2.0, 3.0].iter().flat_map(|it| it.to_ne_bytes()).collect();
        comm.message_handle()
            .start_send(DataType::F32, numbers.clone(), 1, 31, sent)
            .wait()
            .unwrap();
        assert_eq!(told.recv().unwrap(), (1, 3));
        comm.message_handle().start_send(DataType::F32, numbers, 1, 31, |_| {}).wait().unwrap();
        comm.message_handle()
            .start_send(DataType::Bool, vec![0u8, 7, 1], 1, 31, |_| {})
            .wait()
            .unwrap();
        let odd = comm.message_handle().start_send(DataType::F32, [0u8; 3], 1, 31, |end| {
            assert!(matches!(end, Err(Error::Invalid { .. })));
        });
        assert!(matches!(odd.wait(), Err(Error::Invalid { .. })));
    } else if comm.rank() == 1 {
        let (tell, told) = channel();
        let received = move |end: Result<(usize, usize), &Error>| {
            tell.send(end.unwrap_err().to_string()).unwrap();
        };
        let wrong =
            comm.message_handle().start_recv(DataType::F64, vec![0u8; 16], Some(0), 31, received);
        let error = wrong.wait().unwrap_err().to_string();
        assert!(
            error.contains("sent 3 x f32 with tag 31, but this receive takes 2 x f64"),
            "{error}"
        );
        assert_eq!(told.recv().unwrap(), error);
        let (mut came, from) = (vec![0f32; 3], None);
        let right =
            comm.message_handle().start_recv(DataType::F32, vec![0u8; 12], from, 31, |_| {});
        let (data, arrival) = right.wait().unwrap();
        came.iter_mut().zip(data.chunks(4)).for_each(|(it, bytes)| {
            *it = f32::from_ne_bytes(bytes.try_into().unwrap());
        });
        assert_eq!((came, arrival), (vec![1.0, 2.0, 3.0], (0, 3)));
        let bools =
            comm.message_handle().start_recv(DataType::Bool, vec![9u8; 3], Some(0), 31, |_| {});
        assert_eq!(bools.wait().unwrap().0, [0, 1, 1]);
    }
}

/// Resident memory of this process, in KiB.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// 100,000 messages, each with a tag of its own, leave no memory allocated.
fn ever_new_tags(comm: &mut Communicator) {
    if comm.rank() > 1 {
        return;
    }
    let other = 1 - comm.rank();
    let mut before = 0;
    for batch in 0..1000u32 {
        if batch == 100 {
            before = resident();
        }
        let tags = batch * 100..(batch + 1) * 100;
        let sends: Vec<_> =
            tags.clone().map(|tag| comm.start_send(vec![7u8; 300], other, tag)).collect();
        let receives = tags.rev().map(|tag| comm.start_recv(vec![0u8; 300], other, tag));
        wait_all(receives.collect::<Vec<_>>()).unwrap();
        wait_all(sends).unwrap();
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < 4096, "{grown} KiB more after 90,000 messages");
}

/// The messages of all files.
fn everything(mut comm: Communicator) {
    let is_encrypted = std::env::var("MAYPOLE_ENCRYPT").is_ok_and(|it| it == "1");
    assert_eq!(comm.is_encrypted(), is_encrypted);
    blocking::everything(&mut comm);
    if comm.world() > 1 {
        a_posted_receive_holds_nothing_up(&mut comm);
        beside_collectives(&mut comm);
        beside_a_request_that_receives(&mut comm);
        beside_long_messages(&mut comm);
        misfits(&mut comm);
        erased(&mut comm);
    }
    // Requests without a wait progress, and their messages arrive.
    let other = (comm.rank() + 1) % comm.world();
    let _detached = comm.start_send(bytes(LONG, 1), other, 77);
    let last = (comm.rank() + comm.world() - 1) % comm.world();
    let mut came = vec![0u8; LONG];
    comm.recv(&mut came, last, 77).unwrap();
    assert!(came == bytes(LONG, 1));
    let _left = comm.start_send(bytes(1000, 1), other, 78);
    let _received = comm.start_recv(vec![0u8; 1000], last, 78);
    comm.close().unwrap();
}

/// Several tags are posted both ways to rank 1, which then never sends.
fn post_many(comm: &mut Communicator) -> Vec<Request<Vec<u8>>> {
    let sends: Vec<_> = (0..3).map(|tag| comm.start_send(bytes(LONG, tag), 1, tag)).collect();
    let receives = (0..3).map(|tag| comm.start_recv(vec![0u8; 9], 1, tag));
    sends.into_iter().chain(receives.collect::<Vec<_>>()).collect()
}

pub(crate) fn rank_process(role: &str) {
    match role {
        "tags" => {
            let mut comm = Communicator::from_env().unwrap();
            ever_new_tags(&mut comm);
            comm.close().unwrap();
        }
        _ => as_told(role, everything),
    }
}

#[test]
fn messages_between_threads_and_processes() {
    crate::skip::takes_turns!(2);
    everywhere(everything);
}

#[test]
fn encrypted_messages() {
    crate::skip::takes_turns!(2);
    World::new("tcp", 3).set("MAYPOLE_ENCRYPT", 1).start().succeed();
    let mixed = World::new("mixed", 4).hosts(&[0, 0, 1, 1]);
    mixed.set("MAYPOLE_ENCRYPT", 1).start().succeed();
}

#[test]
fn ever_new_tags_take_no_memory() {
    World::new("tags", 2).set("MAYPOLE_TRANSPORT", "shm").start().succeed();
}

#[test]
fn a_message_that_is_never_sent_ends_all_that_are_posted() {
    let since = Instant::now();
    let errors = Local::new(2).timeout(Duration::from_millis(300)).run(|mut comm| {
        if comm.rank() == 1 {
            std::thread::park_timeout(Duration::from_millis(900));
            return vec![comm.barrier().unwrap_err()];
        }
        let requests = post_many(&mut comm);
        let mut errors: Vec<_> = requests.into_iter().map(|it| it.wait().unwrap_err()).collect();
        errors.push(comm.recv(&mut [0u8], 1, 9).unwrap_err());
        errors
    });
    assert!(since.elapsed() < SOON);
    let first = "rank 0 waited 0.3 s for rank 1 in step 0 of send(1048576 x u8, to rank 1, tag 0)";
    for error in errors.iter().flatten() {
        assert!(error.to_string().contains(first), "{error}");
    }
    assert_eq!(errors[0][5].operation(), Some("recv(9 x u8, from rank 1, tag 2)"));
}

#[test]
fn a_message_behind_a_full_queue_is_an_error_that_says_so() {
    let errors = Local::new(2).timeout(Duration::from_secs(1)).run(|mut comm| {
        if comm.rank() == 1 {
            return comm.recv::<u8>(&mut [], 0, 2999).unwrap_err().to_string();
        }
        comm.set_timeout(3 * SOON);
        let sent: Vec<_> = (0..3000).map(|tag| comm.start_send(Vec::<u8>::new(), 1, tag)).collect();
        wait_all(sent).unwrap_err().to_string()
    });
    let why =
        "messages with other tags wait for their receives and fill the queue: receive those first";
    assert!(errors.iter().all(|error| error.contains(why)), "{errors:?}");
}

#[test]
fn a_communicator_that_is_dropped_completes_its_messages_first() {
    let came = Local::new(2).timeout(Duration::from_secs(60)).run(|mut comm| {
        let other = 1 - comm.rank();
        let mut group = comm.duplicate().unwrap();
        let _detached = group.start_send(bytes(LONG, 6), other, 6);
        let received = group.start_recv(vec![0u8; LONG], other, 6);
        drop(group);
        let came = received.wait().unwrap() == bytes(LONG, 6);
        comm.barrier().unwrap();
        came
    });
    assert_eq!(came, [true; 2]);
}

//! A message that fails ends in an error on both ranks, soon, and the error names the failure, its
//! place and its reason.

use crate::spawn::{World, say};
use maypole::{Communicator, Error, Local, Result};
use std::time::{Duration, Instant};

/// How long a call that fails may take on a busy machine.
const SOON: Duration = Duration::from_secs(10);
const TRANSPORTS: [&str; 2] = ["shm", "tcp"];
/// Bytes of a message that is sent by rendezvous.
const LONG: usize = 5 << 20;

#[test]
fn a_message_that_is_never_sent() {
    let since = Instant::now();
    let errors =
        Local::new(2).timeout(Duration::from_millis(300)).run(|mut comm| match comm.rank() {
            0 => comm.recv(&mut [0u8], 1, 3).unwrap_err(),
            _ => {
                // This rank is in no call until the other one has timed out.
                std::thread::park_timeout(Duration::from_secs(2));
                comm.barrier().unwrap_err()
            }
        });
    assert!(since.elapsed() < SOON);
    let Error::TimedOut { rank: 0, cause, .. } = &errors[0] else { panic!("{:?}", errors[0]) };
    assert_eq!((cause.waiter, cause.peer), (0, Some(1)));
    let text = "rank 0 waited 0.3 s for rank 1 in step 0 of recv(1 x u8, from rank 1, tag 3) \
                (operation 0)";
    assert!(errors[0].to_string().starts_with(text), "{}", errors[0]);

    let mut alone = Local::new(1).timeout(Duration::from_millis(100)).build().remove(0);
    let error = alone.recv_any(&mut [0f32; 4], 3).unwrap_err();
    let Error::TimedOut { rank: 0, cause, .. } = &error else { panic!("{error:?}") };
    assert_eq!((cause.peer, cause.culprit), (None, None));
    let text = "rank 0 waited 0.1 s for a message of any rank in \
                recv_any(up to 4 x f32, tag 3) (operation 0)";
    assert_eq!(error.to_string(), text);
}

#[test]
fn two_messages_by_rendezvous_sent_before_either_is_received() {
    let errors = Local::new(2).timeout(Duration::from_millis(300)).run(|mut comm| {
        let other = 1 - comm.rank();
        comm.send(&vec![1u8; LONG], other, 0).unwrap_err()
    });
    let cause = |error: &Error| match error {
        Error::TimedOut { cause, .. } => cause.clone(),
        _ => panic!("{error:?}"),
    };
    let first = cause(&errors[0]);
    assert_eq!(first, cause(&errors[1]));
    let text = format!(
        "rank {} waited 0.3 s for rank {} in step 0 of send({LONG} x u8, to rank ",
        first.waiter,
        1 - first.waiter
    );
    assert!(first.to_string().starts_with(&text), "{first}");
}

pub(crate) fn rank_process(role: &str) {
    let comm = Communicator::from_env().unwrap();
    match role {
        "share" => share(comm),
        "send and go" => send_and_go(comm),
        other => panic!("there is no role {other}"),
    }
    .unwrap();
}

/// Two ranks exchange messages until both have mapped shared memory for them. If shared memory is
/// not allowed, they exchange 50 messages and map none.
fn share(mut comm: Communicator) -> Result<()> {
    let other = 1 - comm.rank();
    let may = std::env::var("MAYPOLE_TRANSPORT").is_ok_and(|way| way == "shm");
    let mut rounds = 0;
    let maps =
        || std::fs::read_to_string("/proc/self/maps").unwrap().matches("memfd:maypole").count();
    // Neither rank ends before both have mapped their segments.
    let mut enough = [0u64];
    while enough == [0] {
        rounds += 1;
        let mine = vec![rounds; 70_000];
        let mut came = vec![0; 70_000];
        comm.exchange(&mine, other, &mut came, other, 0)?;
        assert!(came == mine);
        let done = [u64::from(rounds > 50 && (maps() == 2 || !may))];
        comm.exchange(&done, other, &mut enough, other, 1)?;
        enough[0] &= done[0];
        assert!(rounds < 100_000, "{} mappings", maps());
    }
    assert_eq!(maps(), if may { 2 } else { 0 });
    say("done", "now");
    comm.close()
}

/// Rank 1 sends eager messages and leaves. The others receive most of them after the process of
/// rank 1 has ended.
fn send_and_go(mut comm: Communicator) -> Result<()> {
    let rank = comm.rank();
    if rank == 1 {
        for to in [0, 2] {
            comm.send(&[std::process::id()], to, 9)?;
            (0..3u8)
                .try_for_each(|number| comm.send(&vec![number; 15_000], to, u32::from(number)))?;
        }
        say("done", "now");
        return comm.close();
    }
    let mut process = [0u32];
    let deadline = Instant::now() + SOON;
    comm.recv(&mut process, 1, 9)?;
    while !has_ended(process[0]) {
        assert!(Instant::now() < deadline, "rank 1 has left, but its process does not end");
        std::thread::yield_now();
    }
    for number in [2u8, 0, 1] {
        let mut came = vec![9; 15_000];
        comm.recv(&mut came, 1, u32::from(number))?;
        assert!(came == vec![number; 15_000]);
    }
    say("done", "now");
    comm.close()
}

/// True of a process that has ended, even if its parent has not waited for it yet.
fn has_ended(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.is_empty() || stat.contains(") Z ")
}

#[test]
fn messages_within_a_host_go_through_shared_memory_if_that_is_allowed() {
    for way in ["shm", "tcp"] {
        let world = World::new("share", 2).set("MAYPOLE_TRANSPORT", way);
        let ranks = world.start().succeed();
        assert_eq!([0, 1].map(|rank| ranks[rank].only("done")), ["now"; 2]);
    }
}

#[test]
fn messages_arrive_after_their_sender_has_left() {
    for way in TRANSPORTS {
        let ranks = World::new("send and go", 3).set("MAYPOLE_TRANSPORT", way).start().succeed();
        assert_eq!([0, 1, 2].map(|rank| ranks[rank].only("done")), ["now"; 3]);
    }
}

//! Which rank is named when ranks wait for one another in different groups, in messages and in
//! exchanges: the one at the end of the chain, by its number in the group of the error.

use crate::report::await_failure;
use crate::spawn;
use crate::spawn::{LIMIT, World, ranks, say};
use maypole::{Communicator, Error, Local, ReduceOp};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// How long the rank waits whose deadline passes.
const SOON: Duration = Duration::from_secs(2);

pub(crate) fn rank_process(role: &str) {
    let mut comm = Communicator::from_env().unwrap();
    let rank = ranks()[0];
    let told = match role {
        "message" => in_a_message(&mut comm),
        "exchange" => in_an_exchange(&mut comm),
        "pairs" => in_a_pair(&mut comm),
        other => panic!("there is no role {other}"),
    };
    if let Some((culprit, text)) = told {
        say("culprit", format!("{rank} {culprit:?}"));
        say("text", text);
    }
}

/// A rank's report: the culprit and the sentence of its error.
type Told = Option<(Option<usize>, String)>;

fn told(error: &Error) -> Told {
    Some((error.culprit(), error.to_string()))
}

/// Waits until the world has failed. This rank holds the others up.
fn hold_up(comm: &Communicator) -> Told {
    await_failure(comm);
    None
}

/// Rank 2 waits for rank 1, which waits for rank 0 in another group. Rank 0 waits for no rank.
fn in_a_message(comm: &mut Communicator) -> Told {
    comm.set_timeout(LIMIT);
    let mut twin = comm.duplicate().unwrap();
    let mut came = [0u8];
    match comm.rank() {
        0 => hold_up(comm),
        1 => told(&twin.recv(&mut came, 0, 5).unwrap_err()),
        _ => told(&comm.within(SOON).recv(&mut came, 1, 5).unwrap_err()),
    }
}

/// As before, but rank 1 waits in an exchange of all, to which rank 0 does not come.
fn in_an_exchange(comm: &mut Communicator) -> Told {
    comm.set_timeout(LIMIT);
    let mut twin = comm.duplicate().unwrap();
    match comm.rank() {
        0 => hold_up(comm),
        1 => told(&twin.split(Some(0), 0).unwrap_err()),
        _ => told(&comm.within(SOON).recv(&mut [0u8], 1, 5).unwrap_err()),
    }
}

/// Ranks 1 and 3 are a group, in which they are 0 and 1. Rank 3 waits for rank 1 there.
fn in_a_pair(comm: &mut Communicator) -> Told {
    comm.set_timeout(LIMIT);
    let rank = comm.rank();
    let mut pair = comm.split(Some(rank as u64 % 2), 0).unwrap().unwrap();
    pair.set_timeout(if rank == 3 { SOON } else { LIMIT });
    match rank {
        0 => told(&comm.recv(&mut [0u8], 2, 5).unwrap_err()),
        1 => hold_up(comm),
        2 => told(&pair.recv(&mut [0u8], 0, 5).unwrap_err()),
        _ => told(&pair.barrier().unwrap_err()),
    }
}

/// The reports of the ranks that have an error.
fn of_processes(role: &str, world: usize) -> Vec<(usize, String, String)> {
    let ended = World::new(role, world).start().succeed();
    let one = |(rank, ended): (usize, &spawn::Ended)| {
        let culprit = ended.said("culprit").first().map(|said| (*said).to_owned())?;
        let culprit = culprit.split_once(' ').unwrap().1.to_owned();
        Some((rank, culprit, ended.said("text")[0].to_owned()))
    };
    ended.iter().enumerate().filter_map(one).collect()
}

fn of_threads(
    world: usize,
    body: impl Fn(&mut Communicator) -> Told + Sync,
) -> Vec<(usize, String, String)> {
    let told = Local::new(world).timeout(LIMIT).run(|mut comm| body(&mut comm));
    let told = told.into_iter().enumerate();
    told.filter_map(|(rank, told)| told.map(|(who, text)| (rank, format!("{who:?}"), text)))
        .collect()
}

/// Rank 0 is the culprit in all errors, which name `call` as the call of rank 1.
fn check_chain(told: &[(usize, String, String)], call: &str) {
    assert_eq!(told.len(), 2, "{told:?}");
    for (rank, culprit, text) in told {
        assert_eq!(culprit, "Some(0)", "rank {rank}: {text}");
        assert!(!text.contains("has called nothing yet"), "rank {rank}: {text}");
        assert!(text.contains("rank 0 is outside the library"), "rank {rank}: {text}");
        assert!(text.contains(call), "rank {rank}: {text}");
    }
}

#[test]
fn a_rank_that_waits_in_a_message_of_another_group_is_not_blamed() {
    crate::skip::takes_turns!(2);
    let call = "rank 1 is in recv(1 x u8, from rank 0, tag 5)";
    check_chain(&of_threads(3, in_a_message), call);
    check_chain(&of_processes("message", 3), call);
}

#[test]
fn a_rank_that_waits_in_an_exchange_is_not_blamed() {
    crate::skip::takes_turns!(2);
    check_chain(&of_threads(3, in_an_exchange), "rank 1 is in split()");
    check_chain(&of_processes("exchange", 3), "rank 1 is in split()");
}

/// Each rank reads the number of its communicator, and the world's where they differ.
fn check_numbers(told: &[(usize, String, String)]) {
    let [zero, two, three] = told else { panic!("{told:?}") };
    assert_eq!((zero.1.as_str(), two.1.as_str()), ("Some(1)", "None"), "{told:?}");
    assert_eq!(three.1, "Some(0)", "{told:?}");
    let own = "rank 1 (rank 3 of the world) waited 2 s for rank 0 (rank 1 of the world)";
    assert!(three.2.starts_with(own), "{}", three.2);
    assert!(
        three.2.contains("; rank 0 (rank 1 of the world) is outside the library"),
        "{}",
        three.2
    );
    assert!(zero.2.contains("because rank 3 waited 2 s for rank 1 in step"), "{}", zero.2);
    assert!(zero.2.contains("barrier() of the group of ranks 1, 3 of the world"), "{}", zero.2);
    let other = "because rank 3 of the world waited 2 s for rank 1 of the world";
    assert!(two.2.starts_with("rank 1 gives up") && two.2.contains(other), "{}", two.2);
}

#[test]
fn ranks_of_a_group_are_numbered_as_in_the_communicator_of_the_error() {
    crate::skip::takes_turns!(2);
    check_numbers(&of_threads(4, in_a_pair));
    check_numbers(&of_processes("pairs", 4));
}

/// A rank that has only sent and received has called something, by requests, too, once they are over.
#[test]
fn messages_are_calls() {
    let said = Local::new(2).timeout(LIMIT).run(|mut comm| {
        let peer = 1 - comm.rank();
        comm.group(|group| group.send(&[7u8], peer, 0)).unwrap();
        comm.recv(&mut [0u8], peer, 0).unwrap();
        let later = comm.start_recv(vec![0u8], peer, 1);
        let sent = comm.start_send(vec![7u8], peer, 2);
        comm.start_recv(vec![0u8], peer, 2).wait().unwrap();
        sent.wait().unwrap();
        let said = comm.status().to_string();
        comm.barrier().unwrap();
        comm.send(&[7u8], peer, 1).unwrap();
        later.wait().unwrap();
        said
    });
    for said in said {
        assert!(said.contains("outside the library after 4 messages"), "{said}");
    }
}

/// A request in flight does not hide that its rank computes, and is late for another group.
#[test]
fn a_request_in_the_background_does_not_excuse_its_rank() {
    let over = (Mutex::new(false), Condvar::new());
    let told = Local::new(3).timeout(LIMIT).run(|mut comm| {
        let mut twin = comm.duplicate().unwrap();
        let told = match comm.rank() {
            1 => {
                let request = twin.start_all_reduce(vec![1u8; 4], ReduceOp::Sum);
                let over = over.1.wait_while(over.0.lock().unwrap(), |over| !*over);
                drop(over.unwrap());
                request.wait().unwrap_err();
                None
            }
            2 => {
                let error = comm.within(SOON).recv(&mut [0u8], 1, 0).unwrap_err();
                told(&error)
            }
            _ => hold_up(&comm),
        };
        if comm.rank() == 2 {
            *over.0.lock().unwrap() = true;
            over.1.notify_all();
        }
        told
    });
    let (culprit, text) = told[2].as_ref().expect("rank 2 has an error");
    assert_eq!(*culprit, Some(1), "{text}");
    assert!(text.contains("rank 1 is outside the library"), "{text}");
}

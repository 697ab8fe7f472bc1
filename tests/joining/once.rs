//! A process joins its job once, and a join that waits can be stopped.

use crate::spawn::{World, say};
use maypole::world::bootstrap::{JoinConfig, JoinStop};
use maypole::{Communicator, Transport};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

/// A rank process of a test of this file: joins, and joins again while the first communicator is open,
/// or after it was closed.
pub(crate) fn rank_process(role: &str) {
    let mut first = Communicator::from_env().unwrap();
    first.barrier().unwrap();
    let open = (role == "open").then_some(first);
    let begun = Instant::now();
    let error = Communicator::from_env().unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert!(!error.is_retryable());
    say("told", error);
    if let Some(mut first) = open {
        first.duplicate().unwrap().barrier().unwrap();
        first.close().unwrap();
    }
}

#[test]
fn a_second_join_is_refused_at_once_on_every_rank() {
    for role in ["open", "closed"] {
        for (rank, ended) in World::new(role, 3).start().succeed().iter().enumerate() {
            let [told] = ended.said("told")[..] else { panic!("{ended:?}") };
            let as_rank = format!("as rank {rank} of 3");
            assert!(told.contains("has joined job") && told.contains(&as_rank), "{told}");
            assert!(told.contains("use duplicate() or split()"), "{told}");
        }
    }
}

/// Rank `rank` of a world whose other ranks may not come.
fn joining(rank: usize, job: &str) -> JoinConfig {
    JoinConfig::new(rank, 2, "127.0.0.1").with_job(job)
}

#[test]
fn a_stopped_join_ends_soon_and_its_rank_can_join_again() {
    let job = format!("stopped {}", std::process::id());
    for rank in [0, 1] {
        let stop = JoinStop::default();
        let (config, of_thread) = (joining(rank, &job), stop.clone());
        let (end, ended) = channel();
        let join = move || Communicator::join_by_env_until(config, of_thread).map(drop);
        thread::spawn(move || end.send(join()));
        assert!(ended.recv_timeout(Duration::from_millis(300)).is_err(), "it waits");
        stop.stop();
        let error = ended.recv_timeout(Duration::from_secs(10)).unwrap().unwrap_err();
        assert!(error.to_string().contains("was stopped"), "{error}");
    }
    thread::scope(|threads| {
        for rank in [0, 1] {
            let config = joining(rank, &job);
            threads.spawn(move || {
                let mut comm = Communicator::join(config, Transport::Auto).unwrap();
                comm.barrier().unwrap();
                comm.close().unwrap();
            });
        }
    });
}

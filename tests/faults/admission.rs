//! Processes join ranks that run: they replace ranks that have died, or make the world larger.
//! Whichever process dies meanwhile, all remaining ranks end in one world and compute correct sums.
//!
//! `MAYPOLE_TEST_ROUNDS` sets how many worlds with random deaths are made.

use crate::report::{Member, die_if_told, linked, random, rounds};
use crate::skip;
use crate::spawn::{Ended, World, configuration, ranks, say};
use maypole::world::bootstrap::JoinConfig;
use maypole::{Admissions, Communicator, Error, ReduceOp, Transport};
use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{scope, spawn as start};
use std::time::{Duration, Instant};

/// Worlds with random deaths.
const ROUNDS: u64 = 3;
/// Calls that the last ranks make.
const CALLS: usize = 20;
/// Far above the duration of an admission on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const AT_ONCE: Duration = Duration::ZERO;

/// Admits waiting processes. True if there is a new world.
fn admit(member: &mut Member, admissions: &mut Admissions) -> maypole::Result<bool> {
    let grown = member.comm.admit(admissions, Duration::from_millis(2))?;
    let Some(grown) = grown else { return Ok(false) };
    member.comm = grown;
    member.settle();
    Ok(true)
}

/// Sums and admits until the world has these processes in it, in any order.
fn work_until(member: &mut Member, admissions: &mut Admissions, last: &[u64]) {
    loop {
        let mut ids = member.ids.clone();
        ids.sort_unstable();
        if ids == last {
            return;
        }
        let worked = member.sum(100);
        if worked.and_then(|()| admit(member, admissions)).is_err() {
            member.go_on();
        }
    }
}

fn end(mut member: Member) {
    for call in 0..CALLS {
        member.sum([1, 100, 30_000][call % 3]).unwrap();
    }
    // A rank of the new world is one of any world.
    let mut half = member.comm.split(Some(member.id % 2), 0).unwrap().unwrap();
    half.barrier().unwrap();
    assert_eq!(services(), 1, "worlds that this process was in are left");
    say("ids", format!("{:?}", member.ids));
    member.comm.close().unwrap();
}

/// How many threads of this process serve a world. One of them serves each world with other ranks.
fn services() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default()
    };
    let serves = |name: &String| {
        let rank = name.trim().strip_prefix("maypole-");
        rank.is_some_and(|rank| rank.parse::<usize>().is_ok())
    };
    tasks.map(name).filter(serves).count()
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap())
}

fn numbers(name: &str) -> Vec<u64> {
    let text = std::env::var(name).unwrap();
    text.split_whitespace().map(|number| number.parse().unwrap()).collect()
}

pub(crate) fn rank_process(_: &str) {
    let id = ranks()[0];
    let first = number("TEST_FIRST").unwrap() as usize;
    let most = number("TEST_MOST").map_or(8, |most| most as usize);
    let most = JoinConfig { world: most, ..configuration(0) };
    let comm = if id < first {
        let transport = std::env::var("MAYPOLE_TRANSPORT").unwrap_or_default().parse();
        let config = JoinConfig { world: first, ..configuration(id) };
        let comm = Communicator::join(config, transport.unwrap_or_default()).unwrap();
        die_if_told();
        comm
    } else {
        die_if_told();
        let wish = number("TEST_WISH").unwrap() as usize;
        let comm = Communicator::enter(JoinConfig { rank: wish, ..most.clone() }).unwrap();
        say("rank", format!("{} of {}", comm.rank(), comm.world()));
        comm
    };
    let mut member = Member { id: id as u64, ..Member::new(comm) };
    member.settle();
    say("ready", "now");
    let mut admissions = Admissions::new(most);
    work_until(&mut member, &mut admissions, &numbers("TEST_LAST"));
    end(member);
}

/// `ranks` processes, of which the first `first` make a world that ends with the processes `last`.
fn churn(processes: usize, first: usize, last: &[u64]) -> World {
    let last: Vec<String> = last.iter().map(u64::to_string).collect();
    let world = World::new("churn", processes).set("TEST_FIRST", first);
    world.set("TEST_LAST", last.join(" ")).set("MAYPOLE_TIMEOUT", 60).set("TEST_WISH", 1)
}

/// The numbers that all of `processes` have reported, which are equal.
#[track_caller]
pub(super) fn reported(ended: &[Ended], processes: &[u64]) -> String {
    let mut reports: Vec<&str> = Vec::new();
    for process in processes {
        let one = &ended[*process as usize];
        assert_eq!(one.code, Some(0), "process {process}: {ended:#?}");
        reports.extend(one.said("ids"));
    }
    assert_eq!(reports.len(), processes.len(), "{ended:#?}");
    reports.dedup();
    assert_eq!(reports.len(), 1, "{ended:#?}");
    reports[0].to_owned()
}

#[test]
fn a_process_takes_the_rank_of_a_dead_one() {
    for (way, encrypted) in skip::every_nth(2, [("shm", 0), ("tcp", 0), ("auto", 0), ("tcp", 1)]) {
        // Process 3 comes for rank 1, which dies.
        let mut world = churn(4, 3, &[0, 2, 3]).set("MAYPOLE_ENCRYPT", encrypted);
        world = if way == "auto" {
            world.hosts(&[0, 0, 1, 1])
        } else {
            world.set("MAYPOLE_TRANSPORT", way)
        };
        // There is no room for it before.
        let ended = world.set("TEST_MOST", 3).set_of(1, "TEST_DEATH", 200_000).start().end();
        assert_eq!(reported(&ended, &[0, 2, 3]), "[0, 3, 2]", "{way}");
        assert_eq!(ended[3].said("rank"), ["1 of 3"], "{way}");
        assert_eq!(ended[1].code, None);
    }
}

/// Rank 0 dies, and with it the place where newcomers wait. The next rank 0 opens another.
#[test]
fn a_process_comes_after_rank_0_has_died() {
    for way in ["shm", "tcp"] {
        let world = churn(4, 3, &[1, 2, 3]).set("MAYPOLE_TRANSPORT", way).set("TEST_WISH", 0);
        let ended = world.set_of(0, "TEST_DEATH", 100_000).start().end();
        reported(&ended, &[1, 2, 3]);
    }
}

/// A world of one has neither a service nor a port of its own.
#[test]
fn a_world_of_one_grows() {
    let ended = churn(3, 1, &[0, 1, 2]).start().end();
    reported(&ended, &[0, 1, 2]);
    // One of two dies, and the other is alone until a process comes.
    let ended = churn(3, 2, &[0, 2]).set_of(1, "TEST_DEATH", 50_000).start().end();
    reported(&ended, &[0, 2]);
}

/// Processes die at random moments: old ranks, newcomers that wait, newcomers that are being admitted.
/// All others end in one world.
#[test]
fn random_deaths_leave_one_world_that_computes_the_right_sums() {
    for round in 0..rounds(ROUNDS) {
        let begun = Instant::now();
        let mut order: Vec<u64> = (0..6).collect();
        order.sort_by_cached_key(|_| random(1 << 60));
        let victims = &order[..1 + random(3) as usize];
        let mut last: Vec<u64> = order[victims.len()..].to_vec();
        last.sort_unstable();
        // A world without any of its first ranks is none that a process could join.
        if last[0] > 2 {
            continue;
        }
        let mut world = churn(6, 3, &last).set("TEST_WISH", random(5));
        world = linked(world, round);
        for victim in victims {
            world = world.set_of(*victim as usize, "TEST_DEATH", random(150_000));
        }
        let ended = world.start().end();
        reported(&ended, &last);
        assert!(begun.elapsed() < Duration::from_secs(90), "round {round}: {:?}", begun.elapsed());
    }
}

/// Two threads that are ranks of one world by TCP, and processes that join. A job of its own.
fn job() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("admission-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn at(job: &str, rank: usize, world: usize) -> JoinConfig {
    let mut config = JoinConfig::new(rank, world, "127.0.0.1").with_job(job);
    config.key = Some([7; 32]);
    (config.join_timeout, config.timeout) = (PATIENCE, PATIENCE);
    config
}

/// Runs `rank` on two threads that have joined, with a place for three ranks.
fn two_ranks<T: Send>(job: &str, rank: impl Fn(Communicator, Admissions) -> T + Sync) -> Vec<T> {
    scope(|threads| {
        let (rank, job) = (&rank, &job);
        let run = |number| {
            let comm = Communicator::join(at(job, number, 2), Transport::Tcp).unwrap();
            rank(comm, Admissions::new(at(job, 0, 3)))
        };
        let other = threads.spawn(move || run(1));
        let first = run(0);
        vec![first, other.join().unwrap()]
    })
}

#[test]
fn without_a_newcomer_the_communicator_is_as_before() {
    two_ranks(&job(), |mut comm, mut admissions| {
        for within in [AT_ONCE, Duration::from_millis(50)] {
            let begun = Instant::now();
            assert!(comm.admit(&mut admissions, within).unwrap().is_none());
            assert!(begun.elapsed() < PATIENCE / 4);
            comm.barrier().unwrap();
        }
        // It can be shrunk, as any communicator.
        let mut next = comm.shrink().unwrap();
        next.barrier().unwrap();
    });
}

/// A process with another key, of another job, with another version of a variable, and one that is
/// none of maypole's.
#[test]
fn strangers_are_not_admitted_and_told_why() {
    let job = job();
    let refused = |change: fn(&mut JoinConfig)| {
        let mut config = at(&job, 2, 3);
        config.join_timeout = Duration::from_secs(2);
        change(&mut config);
        move || {
            let begun = Instant::now();
            let error = Communicator::enter(config).unwrap_err();
            assert!(begun.elapsed() < PATIENCE / 4);
            error.to_string()
        }
    };
    let errors = two_ranks(&job, |mut comm, mut admissions| {
        let mut errors = Vec::new();
        if comm.rank() == 0 {
            // The room opens with the first call of all ranks, so strangers come after it.
            assert!(comm.admit(&mut admissions, AT_ONCE).unwrap().is_none());
            let ports = at(&job, 0, 3).ports;
            for port in ports {
                if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) {
                    let _ = stream.write_all(b"GET / HTTP/1.1\r\n\r\n");
                }
            }
            let strangers = [
                start(refused(|config| config.key = Some([8; 32]))),
                start(refused(|config| config.job = "another job".to_owned())),
                start(refused(|config| config.equal = vec![("A".to_owned(), "1".to_owned())])),
            ];
            errors = strangers.map(|stranger| stranger.join().unwrap()).to_vec();
        } else {
            assert!(comm.admit(&mut admissions, AT_ONCE).unwrap().is_none());
        }
        assert!(comm.admit(&mut admissions, AT_ONCE).unwrap().is_none());
        comm.barrier().unwrap();
        errors
    });
    let [key, job, variable] = &errors[0][..] else { panic!("{errors:?}") };
    assert!(key.contains("its job key differs"), "{key}");
    assert!(job.contains("something other than rank 0"), "{job}");
    assert!(variable.contains("A is unset on rank 0 and '1' on rank 2"), "{variable}");
}

/// A newcomer waits. Rank 1 is in another call when rank 0 admits: an error, and no process enters.
/// The newcomer is admitted by the next world.
#[test]
fn nobody_enters_while_a_rank_is_in_another_call() {
    let job = job();
    let newcomer = || {
        let mut comm = Communicator::enter(at(&job, 2, 3)).unwrap();
        assert_eq!((comm.rank(), comm.world()), (2, 3));
        comm.barrier().unwrap();
    };
    scope(|threads| {
        threads.spawn(newcomer);
        two_ranks(&job, |mut comm, mut admissions| {
            let error = match comm.rank() {
                0 => loop {
                    match comm.admit(&mut admissions, PATIENCE) {
                        Ok(None) => {}
                        Ok(Some(_)) => panic!("rank 1 has not called"),
                        Err(error) => break error,
                    }
                },
                _ => comm.barrier().unwrap_err(),
            };
            let told = matches!(error, Error::Mismatch { .. } | Error::Aborted { .. });
            assert!(told && error.to_string().contains("admit()"), "{error}");
            let mut comm = comm.shrink().unwrap();
            let mut grown = comm.admit(&mut admissions, PATIENCE).unwrap().unwrap();
            assert_eq!(grown.world(), 3);
            grown.barrier().unwrap();
        });
    });
}

/// A request continues in the old communicator, also after all ranks have a new one.
#[test]
fn requests_in_flight_stay_with_the_old_communicator() {
    let job = job();
    scope(|threads| {
        threads.spawn(|| Communicator::enter(at(&job, 2, 3)).unwrap().barrier().unwrap());
        two_ranks(&job, |mut comm, mut admissions| {
            let request = comm.start_all_reduce(vec![1u64; 100_000], ReduceOp::Sum);
            let mut grown = comm.admit(&mut admissions, PATIENCE).unwrap().unwrap();
            grown.barrier().unwrap();
            assert_eq!(request.wait().unwrap(), vec![2; 100_000]);
            comm.barrier().unwrap();
        });
    });
}

/// Two processes apply, and the world has room for one. The other waits until its own deadline, and
/// gets an error that names it.
#[test]
fn a_process_for_which_there_is_no_room_waits_until_its_deadline() {
    let job = job();
    let enter = || {
        let mut config = at(&job, 2, 3);
        config.join_timeout = Duration::from_secs(5);
        let mut comm = match Communicator::enter(config) {
            Ok(comm) => comm,
            Err(error) => return Some(error.to_string()),
        };
        // Rank 0 stays and keeps its room until the other process has timed out.
        comm.barrier().unwrap();
        None
    };
    let other = scope(|threads| {
        let newcomers = [threads.spawn(enter), threads.spawn(enter)];
        two_ranks(&job, |mut comm, mut admissions| {
            let mut grown = comm.admit(&mut admissions, PATIENCE).unwrap().unwrap();
            assert_eq!(grown.world(), 3);
            if grown.rank() == 0 {
                while newcomers.iter().all(|newcomer| !newcomer.is_finished()) {
                    std::thread::yield_now();
                }
            }
            grown.barrier().unwrap();
        });
        newcomers.map(|newcomer| newcomer.join().unwrap())
    });
    let told: Vec<String> = other.into_iter().flatten().collect();
    let [why] = &told[..] else { panic!("one of them enters: {told:?}") };
    assert!(why.contains("a world that is full has no room"), "{why}");
}

#[test]
fn threads_of_one_process_admit_nobody() {
    let errors = Communicator::run_local(2, |mut comm| {
        let mut admissions = Admissions::new(at("none", 0, 3));
        let error = comm.admit(&mut admissions, AT_ONCE).unwrap_err().to_string();
        comm.barrier().unwrap();
        error
    });
    assert!(errors.iter().all(|error| error.contains("threads of one process")), "{errors:?}");
}

/// Another program has the port: the same error on all ranks, which work on.
#[test]
fn a_port_that_is_taken_is_an_error_of_all_ranks() {
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let errors = two_ranks(&job(), |mut comm, _| {
        let mut config = at("unused", 0, 3);
        config.ports = vec![port];
        let mut admissions = Admissions::new(config);
        let error = comm.admit(&mut admissions, AT_ONCE).unwrap_err().to_string();
        comm.barrier().unwrap();
        error
    });
    assert!(errors[0].contains(&format!("port {port}")), "{errors:?}");
    assert_eq!(errors[0], errors[1]);
}

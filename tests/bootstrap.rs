//! Ranks find one another, agree, get connected, and fail together: over loopback, with real threads and processes.

#![cfg(target_os = "linux")]

use maypole::bootstrap::{JoinConfig, JoinError, join};
use maypole::service::{Cause, CauseKind, GroupId, Service, ServiceError, Verdict};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Longer than anything takes on a busy machine.
const LONG: Duration = Duration::from_secs(60);
const WORLD: GroupId = GroupId::WORLD;

fn soon() -> Instant {
    Instant::now() + LONG
}

/// A job of its own: ports that no other test of this process takes, and a name that keeps those of others out.
fn job(world: usize) -> JoinConfig {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let base = 20_000 + ((std::process::id().wrapping_mul(101) + number * 8) % 11_000) as u16;
    JoinConfig {
        rank: 0,
        world,
        address: None,
        ports: (base..base + 8).collect(),
        data_ports: None,
        job: format!("{}-{number}", std::process::id()),
        key: Some([number as u8; 32]),
        host: None,
        equal: vec![("MAYPOLE_COLOUR".to_owned(), "red".to_owned())],
        insecure_without_key: false,
        join_timeout: LONG,
        timeout: LONG,
    }
}

/// Joins all ranks, each on a thread of its own, and gives what `body` made of each.
fn each<T: Send>(
    config: &JoinConfig,
    change: impl Fn(&mut JoinConfig) + Sync,
    body: impl Fn(Result<Service, JoinError>) -> T + Sync,
) -> Vec<T> {
    std::thread::scope(|threads| {
        let start = |rank| {
            let mut config = JoinConfig { rank, ..config.clone() };
            let (change, body) = (&change, &body);
            threads.spawn(move || {
                change(&mut config);
                body(join(config))
            })
        };
        let ranks: Vec<_> = (0..config.world).map(start).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

fn world<T: Send>(size: usize, body: impl Fn(&Service) -> T + Sync) -> Vec<T> {
    each(&job(size), |_| {}, |service| body(&service.unwrap()))
}

fn everybody(service: &Service) -> Vec<usize> {
    (0..service.world()).collect()
}

#[test]
fn worlds_of_several_sizes_join_and_exchange() {
    for size in [1, 2, 4, 8] {
        world(size, |service| {
            assert_eq!((service.world(), service.hosts().len()), (size, size));
            assert!(service.hosts().iter().all(|host| *host == 0));
            for round in 0..3u8 {
                let mine = vec![service.rank() as u8; usize::from(round) * 1000];
                let all = service.exchange(WORLD, &everybody(service), mine, soon()).unwrap();
                let expected: Vec<_> = (0..size).map(|rank| vec![rank as u8; usize::from(round) * 1000]).collect();
                assert_eq!(all, expected);
            }
            service.leave(3).unwrap();
            assert!(service.cause().is_none());
        });
    }
}

#[test]
fn groups_exchange_among_themselves() {
    world(4, |service| {
        let group = GroupId { parent_epoch: 1, counter: (service.rank() % 2) as u64 };
        // The order of members is the order of payloads.
        let members = if service.rank() % 2 == 0 { [2, 0] } else { [3, 1] };
        let all = service.exchange(group, &members, vec![service.rank() as u8], soon()).unwrap();
        assert_eq!(all, members.map(|member| vec![member as u8]));
    });
}

#[test]
fn a_large_payload_crosses_and_a_larger_one_is_refused() {
    world(2, |service| {
        let mine: Vec<u8> = (0..3_000_000u32).map(|i| (i >> service.rank()) as u8).collect();
        let all = service.exchange(WORLD, &[0, 1], mine.clone(), soon()).unwrap();
        assert_eq!(all[service.rank()], mine);
        let refused = service.exchange(WORLD, &[0, 1], vec![0; 9 << 20], soon());
        assert!(matches!(refused, Err(ServiceError::Invalid(_))));
        assert!(
            matches!(service.exchange(WORLD, &[0], vec![], soon()), Err(ServiceError::Invalid(_)))
                || service.rank() == 0
        );
    });
}

#[test]
fn ranks_connect_on_several_lanes() {
    world(3, |service| {
        let me = service.rank();
        for lane in 0..2 {
            for peer in (0..3).filter(|peer| *peer != me) {
                let mut stream = service.connect(WORLD, peer, lane, soon()).unwrap();
                stream.set_nonblocking(false).unwrap();
                stream.set_read_timeout(Some(LONG)).unwrap();
                stream.write_all(&[me as u8, lane as u8]).unwrap();
                let mut got = [0; 2];
                stream.read_exact(&mut got).unwrap();
                assert_eq!(got, [peer as u8, lane as u8]);
            }
        }
        assert!(matches!(service.connect(WORLD, me, 0, soon()), Err(ServiceError::Invalid(_))));
        service.exchange(WORLD, &[0, 1, 2], vec![], soon()).unwrap();
    });
}

#[test]
fn ranks_of_one_host_share_memory() {
    world(3, |service| {
        let me = service.rank();
        for locals in [&[0, 1, 2][..], &[2, 0]] {
            if !locals.contains(&me) {
                continue;
            }
            let segment = service.share(WORLD, locals, 5000, soon()).unwrap();
            segment.view().slice(me * 8, 1).fill_from(&[me as u8 + 1]);
            service.exchange(WORLD, locals, vec![], soon()).unwrap();
            for peer in locals {
                assert_eq!(segment.view().slice(peer * 8, 1).as_view().to_vec(), [*peer as u8 + 1]);
            }
        }
    });
}

#[test]
fn a_name_makes_two_hosts_of_one_machine() {
    let name = |config: &mut JoinConfig| config.host = Some(format!("host{}", config.rank / 2));
    each(&job(4), name, |service| assert_eq!(service.unwrap().hosts(), [0, 0, 1, 1]));
}

#[test]
fn a_world_needs_no_key_on_loopback_and_one_elsewhere() {
    let keyless = |config: &mut JoinConfig| config.key = None;
    each(&job(2), keyless, |service| drop(service.unwrap()));
    let elsewhere = JoinConfig { address: Some("192.0.2.1".to_owned()), key: None, ..job(2) };
    for rank in 0..2 {
        let error = join(JoinConfig { rank, ..elsewhere.clone() }).unwrap_err();
        assert!(matches!(error, JoinError::KeyNeeded { .. }), "{error}");
    }
}

/// What a rank fails with that joins a world that never completes.
fn fails(config: JoinConfig) -> JoinError {
    let start = Instant::now();
    let error = join(config).unwrap_err();
    assert!(start.elapsed() < LONG / 2, "{error} after {:?}", start.elapsed());
    error
}

#[test]
fn nobody_listening_is_said_in_time() {
    let error = fails(JoinConfig { rank: 1, join_timeout: Duration::from_millis(300), ..job(2) });
    assert!(matches!(error, JoinError::NobodyListening { rank: 1, .. }), "{error}");
    assert!(error.to_string().starts_with("rank 1 found nobody at 127.0.0.1, port "), "{error}");
}

#[test]
fn ranks_that_do_not_come_are_named_in_time() {
    let error = fails(JoinConfig { join_timeout: Duration::from_millis(300), ..job(3) });
    assert_eq!(error.to_string(), "after 0.3 s these ranks have not joined: 1, 2");
    // Who has come is told, too.
    let config = JoinConfig { world: 3, join_timeout: Duration::from_secs(1), ..job(2) };
    let each_of = |rank| fails(JoinConfig { rank, ..config.clone() }).to_string();
    let errors = std::thread::scope(|threads| {
        let other = threads.spawn(|| each_of(1));
        [each_of(0), other.join().unwrap()]
    });
    assert_eq!(errors, ["after 1 s these ranks have not joined: 2"; 2]);
}

#[test]
fn a_port_that_is_taken_is_said_at_once() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let error = fails(JoinConfig { ports: vec![port], ..job(2) });
    let expected = format!("rank 0 cannot listen on 127.0.0.1, port {port}: ");
    assert!(error.to_string().starts_with(&expected) && error.to_string().contains("MAYPOLE_PORT"), "{error}");
}

#[test]
fn a_taken_port_and_a_silent_stranger_on_it_do_not_keep_ranks_apart() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut config = job(2);
    config.ports.insert(0, taken.local_addr().unwrap().port());
    each(&config, |_| {}, |service| drop(service.unwrap()));
}

#[test]
fn a_stranger_where_rank_zero_should_be_is_said() {
    let stranger = TcpListener::bind("127.0.0.1:0").unwrap();
    let ports = vec![stranger.local_addr().unwrap().port()];
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while let Ok((mut stream, _)) = stranger.accept() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.6\r\n");
                let _ = stream.read(&mut [0; 500]);
            }
        });
        let error = fails(JoinConfig { rank: 1, ports: ports.clone(), join_timeout: Duration::from_secs(1), ..job(2) });
        over.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(stranger.local_addr().unwrap()));
        assert!(matches!(error, JoinError::NotRankZero { rank: 1, .. }), "{error}");
    });
}

#[test]
fn a_wrong_key_is_said_on_both_sides() {
    let config = JoinConfig { join_timeout: Duration::from_secs(1), ..job(2) };
    let wrong = |config: &mut JoinConfig| {
        if config.rank == 1 {
            config.key = Some([0xbb; 32]);
        }
    };
    let errors = each(&config, wrong, |service| service.unwrap_err());
    assert!(matches!(&errors[0], JoinError::Missing { ranks, note, .. } if ranks == &[1] && note.contains("job key")));
    assert!(matches!(&errors[1], JoinError::WrongKey { rank: 1, .. }), "{}", errors[1]);
    assert!(errors[1].to_string().contains("give all ranks the same key"));
}

#[test]
fn another_job_on_the_port_is_not_joined() {
    let ours = JoinConfig { join_timeout: Duration::from_secs(1), ..job(2) };
    let theirs = JoinConfig { job: "another".to_owned(), ..ours.clone() };
    std::thread::scope(|threads| {
        threads.spawn(|| join(theirs).unwrap_err());
        let error = join(JoinConfig { rank: 1, ..ours }).unwrap_err();
        assert!(matches!(error, JoinError::NotRankZero { .. }), "{error}");
        assert!(error.to_string().contains("another job"), "{error}");
    });
}

#[test]
fn differences_fail_both_sides_with_one_text() {
    let differ = |config: &mut JoinConfig| {
        if config.rank == 1 {
            config.equal = vec![("MAYPOLE_COLOUR".to_owned(), "blue".to_owned())];
        }
    };
    let texts = each(&job(2), differ, |service| service.unwrap_err().to_string());
    let expected = "MAYPOLE_COLOUR is 'red' on rank 0 and 'blue' on rank 1; make them equal on all ranks";
    assert_eq!(texts, [expected; 2]);
    let config = job(2);
    let larger = |config: &mut JoinConfig| config.world += config.rank;
    let texts = each(&config, larger, |service| service.unwrap_err().to_string());
    assert_eq!(texts, ["the world size is '2' on rank 0 and '3' on rank 1; make them equal on all ranks"; 2]);
}

#[test]
fn a_rank_that_is_there_already_is_refused_and_the_world_completes() {
    let config = job(3);
    let refused = Barrier::new(2);
    std::thread::scope(|threads| {
        threads.spawn(|| drop(join(config.clone()).unwrap()));
        for _ in 0..2 {
            // One of the two is refused at once, because rank 2 is not there yet and the world cannot be complete.
            threads.spawn(|| match join(JoinConfig { rank: 1, ..config.clone() }) {
                Ok(service) => drop(service),
                Err(error) => {
                    assert!(matches!(error, JoinError::Duplicate { rank: 1, .. }), "{error}");
                    assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
                    refused.wait();
                }
            });
        }
        refused.wait();
        drop(join(JoinConfig { rank: 2, ..config.clone() }).unwrap());
    });
}

#[test]
fn a_rank_out_of_range_is_refused() {
    let error = fails(JoinConfig { rank: 2, ..job(2) });
    assert_eq!(
        error.to_string(),
        "rank 2 is not below the world size, 2: check the rank and the world size of every process"
    );
}

#[test]
fn strangers_at_the_port_change_nothing_but_a_counter() {
    let config = job(4);
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let mut held = Vec::new();
            while !over.load(Ordering::Relaxed) {
                for port in &config.ports {
                    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", *port)) else { continue };
                    let _ = stream.write_all(&vec![b'x'; held.len() * 7 % 5000]);
                    held.push(stream);
                }
                held.drain(..held.len().saturating_sub(200));
                std::thread::yield_now();
            }
        });
        let dropped = each(
            &config,
            |_| {},
            |service| {
                let service = service.unwrap();
                // Until some have come for certain.
                while service.rank() == 0 && service.status().strangers == 0 {
                    std::thread::yield_now();
                }
                service.exchange(WORLD, &[0, 1, 2, 3], vec![1; 1000], soon()).unwrap();
                assert!(service.status().half_open <= 64);
                service.status().strangers
            },
        );
        over.store(true, Ordering::Relaxed);
        assert!(dropped[0] > 0);
    });
}

fn cause(sequence: u64, kind: CauseKind, rank: usize) -> Cause {
    Cause { sequence, kind, rank, text: format!("rank {rank} says {kind:?}") }
}

#[test]
fn all_ranks_name_the_same_first_cause() {
    let settled = world(4, |service| {
        let kind = [CauseKind::Timeout, CauseKind::Timeout, CauseKind::Mismatch, CauseKind::UserAbort][service.rank()];
        let sequence = [6, 6, 5, 6][service.rank()];
        let settled = service.settle(cause(sequence, kind, service.rank()), LONG);
        assert!(service.alarm().raised());
        settled
    });
    assert!(settled.iter().all(|settled| *settled == cause(5, CauseKind::Mismatch, 2)), "{settled:?}");
}

#[test]
fn the_connections_that_a_failed_rank_closes_are_no_cause() {
    let told = Barrier::new(2);
    let settled = world(2, |service| {
        if service.rank() == 1 {
            service.abort(cause(5, CauseKind::Mismatch, 1));
            told.wait();
            return service.settle(cause(5, CauseKind::Mismatch, 1), LONG);
        }
        told.wait();
        let alarm = service.alarm();
        while !alarm.raised() {
            std::thread::yield_now();
        }
        service.settle(cause(5, CauseKind::Death, 1), LONG)
    });
    assert_eq!(settled, [cause(5, CauseKind::Mismatch, 1), cause(5, CauseKind::Mismatch, 1)]);
}

#[test]
fn an_abort_ends_every_wait() {
    world(3, |service| match service.rank() {
        0 => {
            let error = service.exchange(WORLD, &[0, 1, 2], vec![], soon()).unwrap_err();
            assert!(matches!(error, ServiceError::Aborted { .. }), "{error}");
        }
        1 => {
            let error = service.connect(WORLD, 0, 9, soon()).unwrap_err();
            assert!(matches!(error, ServiceError::Aborted { .. }), "{error}");
        }
        _ => service.abort(cause(0, CauseKind::UserAbort, 2)),
    });
}

#[test]
fn a_deadline_names_who_has_not_come() {
    let gate = Barrier::new(3);
    world(3, |service| {
        let short = Instant::now() + Duration::from_millis(100);
        match service.rank() {
            2 => {}
            _ => match service.exchange(WORLD, &[0, 1, 2], vec![], short) {
                Err(ServiceError::TimedOut { missing, .. }) => assert!(missing.contains(&2), "{missing:?}"),
                other => panic!("{other:?}"),
            },
        }
        if service.rank() == 1 {
            let error = service.connect(WORLD, 0, 5, Instant::now() + Duration::from_millis(50)).unwrap_err();
            assert!(matches!(error, ServiceError::TimedOut { .. }), "{error}");
        }
        gate.wait();
    });
}

#[test]
fn the_straggler_is_named() {
    let (noted, asked) = (Barrier::new(4), Barrier::new(4));
    world(4, |service| {
        let (me, progress) = (service.rank(), service.progress());
        progress.enter(WORLD, 7, "all_reduce".to_owned());
        match me {
            3 => progress.exit(WORLD),
            _ => progress.awaits(WORLD, Some(me + 1)),
        }
        noted.wait();
        let verdict = service.ask_where(WORLD, (me + 1) % 4);
        assert!(matches!(verdict, Verdict::Outside { rank: 3, .. }), "{verdict}");
        asked.wait();
    });
}

#[test]
fn leaving_is_not_dying() {
    world(3, |service| {
        if service.rank() == 1 {
            service.leave(9).unwrap();
            service.leave(9).unwrap();
            return;
        }
        let error = service.exchange(WORLD, &[0, 1, 2], vec![], soon()).unwrap_err();
        assert!(matches!(error, ServiceError::Left { rank: 1 }), "{error}");
        if service.rank() == 2 {
            let error = service.connect(WORLD, 1, 0, soon()).unwrap_err();
            assert!(matches!(error, ServiceError::Left { rank: 1 }), "{error}");
        }
        // Those who stay do not need it.
        service.exchange(WORLD, &[0, 2], vec![], soon()).unwrap();
        assert_eq!(service.left(1), Some(9));
        assert!(service.cause().is_none() && !service.alarm().raised());
    });
}

/// Not a test by itself: a rank in a process of its own. It says a line when it has joined and one when it has learned
/// that the world failed, or lives until it is killed.
#[test]
fn child() {
    let Ok(line) = std::env::var("MAYPOLE_TEST_CHILD") else { return };
    let mut words = line.split(' ');
    let mut number = || words.next().unwrap().parse::<usize>().unwrap();
    let (rank, world, port) = (number(), number(), number());
    let config = JoinConfig { rank, world, ports: vec![port as u16], job: "child".to_owned(), ..job(world) };
    let service = join(JoinConfig { key: Some([1; 32]), ..config }).unwrap();
    println!("joined");
    let segment = service.share(WORLD, &everybody(&service), 4096, soon()).unwrap();
    segment.view().slice(rank, 1).fill_from(&[rank as u8 + 1]);
    service.exchange(WORLD, &everybody(&service), vec![], soon()).unwrap();
    let bytes = segment.view().slice(0, world).as_view().to_vec();
    assert_eq!(bytes, (1..=world as u8).collect::<Vec<_>>());
    println!("shared");
    while !service.alarm().raised() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let cause = service.settle(cause(u64::MAX, CauseKind::Timeout, rank), Duration::from_secs(1));
    println!("cause {}", cause.text);
    assert_eq!(cause.kind, CauseKind::Death);
}

struct Rank(Child, std::io::Lines<BufReader<std::process::ChildStdout>>);

impl Rank {
    fn start(line: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "child", "--nocapture"]).env("MAYPOLE_TEST_CHILD", line).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self(child, lines)
    }

    /// The rest of the first line that starts with `word` (or continues libtest's own line).
    fn says(&mut self, word: &str) -> String {
        for line in self.1.by_ref() {
            if let Some((_, rest)) = line.unwrap().split_once(word) {
                return rest.to_owned();
            }
        }
        panic!("the rank ended without saying '{word}'");
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn kill_one_of_four(victim: usize) {
    let port = job(4).ports[0];
    let mut ranks: Vec<Rank> = (0..4).map(|rank| Rank::start(&format!("{rank} 4 {port}"))).collect();
    for rank in &mut ranks {
        rank.says("shared");
    }
    let start = Instant::now();
    ranks[victim].0.kill().unwrap();
    let expected = format!(" rank {victim} died: its connection ended without a goodbye");
    for (number, rank) in ranks.iter_mut().enumerate() {
        if number != victim {
            assert_eq!(rank.says("cause"), expected);
        }
    }
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert_eq!(ranks[victim].0.wait().unwrap().signal(), Some(9));
}

#[test]
fn a_stopped_process_is_silent_and_not_dead() {
    let config = job(2);
    let key = Some([1; 32]);
    let mut other = Rank::start(&format!("1 2 {}", config.ports[0]));
    let config =
        JoinConfig { job: "child".to_owned(), ports: vec![config.ports[0]], key, equal: job(2).equal, ..config };
    let service = join(config).unwrap();
    let segment = service.share(WORLD, &[0, 1], 4096, soon()).unwrap();
    segment.view().slice(0, 1).fill_from(&[1]);
    service.exchange(WORLD, &[0, 1], vec![], soon()).unwrap();
    other.says("shared");
    assert!(matches!(service.ask_where(WORLD, 1), Verdict::Outside { rank: 1, .. }));
    let signal = |name: &str| {
        let done = Command::new("kill").args([name, &other.0.id().to_string()]).status().unwrap();
        assert!(done.success());
    };
    signal("-STOP");
    // Until the signal has taken effect.
    while !matches!(service.ask_where(WORLD, 1), Verdict::Silent { rank: 1 }) {}
    assert!(service.cause().is_none() && !service.alarm().raised());
    signal("-CONT");
    while !matches!(service.ask_where(WORLD, 1), Verdict::Outside { rank: 1, .. }) {}
    let start = Instant::now();
    signal("-KILL");
    while !service.alarm().raised() {
        std::thread::yield_now();
    }
    assert!(start.elapsed() < Duration::from_secs(5));
    assert!(matches!(service.cause(), Some(Cause { kind: CauseKind::Death, rank: 1, .. })));
}

#[test]
fn more_ranks_than_may_be_half_open_join() {
    each(
        &job(80),
        |_| {},
        |service| {
            let service = service.unwrap();
            let all = service.exchange(WORLD, &everybody(&service), vec![service.rank() as u8], soon()).unwrap();
            assert!(all.iter().enumerate().all(|(rank, payload)| *payload == [rank as u8]));
        },
    );
}

#[test]
fn a_killed_rank_is_everybodys_cause() {
    kill_one_of_four(2);
}

#[test]
fn a_killed_rank_zero_is_everybodys_cause() {
    kill_one_of_four(0);
}

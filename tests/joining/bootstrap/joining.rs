//! Which processes may join, which are refused, and with which errors.

use super::{LONG, WORLD, each, job, soon};
use maypole::world::bootstrap::{JoinConfig, JoinError, join};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[test]
fn configured_host_names_make_two_hosts_of_one_machine() {
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
        assert!(error.to_string().contains("but the job has no key"), "{error}");
    }
}

#[test]
fn a_host_name_with_several_addresses_is_accepted() {
    let named = |config: &mut JoinConfig| config.address = Some("localhost".to_owned());
    each(&job(2), named, |service| drop(service.unwrap()));
    let error = fails(JoinConfig { address: Some("no-such-host.invalid".to_owned()), ..job(2) });
    assert!(error.to_string().contains("cannot be resolved"), "{error}");
}

#[test]
fn ranks_listen_only_where_they_may() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let config = JoinConfig {
        data_ports: Some(port..=port),
        join_timeout: Duration::from_secs(1),
        ..job(2)
    };
    let errors = each(&config, |_| {}, |service| service.unwrap_err().to_string());
    assert!(errors[0].contains("rank 1 went away"), "{}", errors[0]);
    let expected = format!("rank 1 cannot listen on 127.0.0.1, port {port}: ");
    assert!(
        errors[1].starts_with(&expected) && errors[1].contains("MAYPOLE_DATA_PORTS"),
        "{}",
        errors[1]
    );
}

/// The error of a rank that joins a world that never completes.
fn fails(config: JoinConfig) -> JoinError {
    let start = Instant::now();
    let error = join(config).unwrap_err();
    assert!(start.elapsed() < LONG / 2, "{error} after {:?}", start.elapsed());
    error
}

/// A setting that no world can have is an error at once, and a missing rank 0 one in time.
#[test]
fn a_rank_that_cannot_join_says_why() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let short = Duration::from_millis(300);
    let named = |name: &str| JoinConfig { interface: Some(name.parse().unwrap()), ..job(2) };
    for (config, told) in [
        (named("eth9"), "no interface of this host has eth9; it has 127.0.0.1 on lo".to_owned()),
        (
            JoinConfig { rank: 1, join_timeout: short, ..job(2) },
            "rank 1 found no rank 0 at 127.0.0.1, port ".to_owned(),
        ),
        (
            JoinConfig { ports: vec![port], ..job(2) },
            format!("rank 0 cannot listen on 127.0.0.1, port {port}: "),
        ),
        (JoinConfig { rank: 2, ..job(2) }, "rank 2 is not below the world size, 2: ".to_owned()),
        // Linux never lets a process have 2^33 descriptors.
        (JoinConfig { join_timeout: short, ..job(u32::MAX as usize) }, "descriptors".to_owned()),
    ] {
        let error = fails(config).to_string();
        assert!(error.contains(&told), "{error}, not {told}");
    }
    each(&named("lo"), |_| {}, |service| drop(service.unwrap()));
}

#[test]
fn ranks_that_do_not_come_are_named_in_time() {
    let error = fails(JoinConfig { join_timeout: Duration::from_millis(300), ..job(3) });
    assert_eq!(error.to_string(), "after 0.3 s these ranks have not joined: 1, 2");
    // The ranks that have come get the error, too.
    let config = JoinConfig { world: 3, join_timeout: Duration::from_secs(1), ..job(2) };
    let each_of = |rank| fails(JoinConfig { rank, ..config.clone() }).to_string();
    let errors = std::thread::scope(|threads| {
        let other = threads.spawn(|| each_of(1));
        [each_of(0), other.join().unwrap()]
    });
    assert_eq!(errors, ["after 1 s these ranks have not joined: 2"; 2]);
}

#[test]
fn a_taken_port_and_a_silent_stranger_on_it_do_not_keep_ranks_apart() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut config = job(2);
    config.ports.insert(0, taken.local_addr().unwrap().port());
    each(&config, |_| {}, |service| drop(service.unwrap()));
}

#[test]
fn another_program_at_the_port_of_rank_0_is_reported() {
    let stranger = TcpListener::bind("127.0.0.1:0").unwrap();
    let ports = vec![stranger.local_addr().unwrap().port()];
    let over = AtomicBool::new(false);
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
        let error = fails(JoinConfig {
            rank: 1,
            ports: ports.clone(),
            join_timeout: Duration::from_secs(1),
            ..job(2)
        });
        over.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(stranger.local_addr().unwrap()));
        assert!(error.to_string().contains("rank 1 found something other than rank 0"), "{error}");
    });
}

/// Rank 1 has another key than rank 0, or one of them has none.
#[test]
fn a_key_on_one_side_alone_lets_nobody_in() {
    crate::skip::takes_turns!(2);
    for (changed, key) in [(1, Some([0xbb; 32])), (0, None), (1, None)] {
        let config = JoinConfig { join_timeout: Duration::from_secs(1), ..job(2) };
        assert!(config.key.is_some_and(|key| key != [0; 32]));
        let change = |config: &mut JoinConfig| {
            if config.rank == changed {
                config.key = key;
            }
        };
        let errors = each(&config, change, |service| service.map(drop).unwrap_err());
        let missing = errors[0].to_string();
        assert!(
            missing.contains("these ranks have not joined: 1 (") && missing.contains("job key"),
            "rank {changed} has {key:?}: {missing}"
        );
        let told = errors[1].to_string();
        assert!(told.starts_with("rank 1 was refused at 127.0.0.1:"), "{told}");
        assert!(told.ends_with(": give all ranks the same key"), "{told}");
        let differs = format!("because its job key differs from rank 0's (job '{}')", config.job);
        assert!(key.is_none() || told.contains(&differs), "{told}");
    }
}

#[test]
fn another_job_on_the_port_is_not_joined() {
    let ours = JoinConfig { join_timeout: Duration::from_secs(1), ..job(2) };
    let theirs = JoinConfig { job: "another".to_owned(), ..ours.clone() };
    std::thread::scope(|threads| {
        threads.spawn(|| join(theirs).unwrap_err());
        let error = join(JoinConfig { rank: 1, ..ours }).unwrap_err();
        assert!(error.to_string().contains("found something other than rank 0"), "{error}");
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
    let expected =
        "MAYPOLE_COLOUR is 'red' on rank 0 and 'blue' on rank 1; make them equal on all ranks";
    assert_eq!(texts, [expected; 2]);
    let config = job(2);
    let larger = |config: &mut JoinConfig| config.world += config.rank;
    let texts = each(&config, larger, |service| service.unwrap_err().to_string());
    assert_eq!(
        texts,
        ["the world size is '2' on rank 0 and '3' on rank 1; make them equal on all ranks"; 2]
    );
}

#[test]
fn a_rank_that_is_there_already_is_refused_and_the_world_completes() {
    let config = job(3);
    let refused = Barrier::new(2);
    std::thread::scope(|threads| {
        threads.spawn(|| drop(join(config.clone()).unwrap()));
        for _ in 0..2 {
            // One of the two is refused immediately, because without rank 2 the world cannot be
            // complete.
            threads.spawn(|| match join(JoinConfig { rank: 1, ..config.clone() }) {
                Ok(service) => drop(service),
                Err(error) => {
                    assert!(error.to_string().contains("rank 1 has joined already"), "{error}");
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
fn a_late_duplicate_is_told_that_its_rank_is_taken() {
    let config = job(2);
    let told = Barrier::new(3);
    let late = |rank| fails(JoinConfig { rank, ..config.clone() }).to_string();
    std::thread::scope(|threads| {
        for rank in 0..2 {
            let config = JoinConfig { rank, ..config.clone() };
            let told = &told;
            threads.spawn(move || {
                let service = join(config).unwrap();
                told.wait();
                // The world works on.
                told.wait();
                service.exchange(WORLD, &[0, 1], vec![1], soon()).unwrap();
            });
        }
        told.wait();
        for _ in 0..5 {
            let process = std::process::id();
            let expected = format!(
                "rank 1 has joined already, as process {process} at 127.0.0.1: give every process \
                 a rank of its own"
            );
            assert_eq!(late(1), expected);
        }
        told.wait();
    });
}

#[test]
fn strangers_at_the_port_change_nothing_but_a_counter() {
    let config = job(4);
    let over = AtomicBool::new(false);
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
                // Waits until some connections were refused.
                while service.rank() == 0 && service.status().network.refused == 0 {
                    std::thread::yield_now();
                }
                service.exchange(WORLD, &[0, 1, 2, 3], vec![1; 1000], soon()).unwrap();
                assert!(service.status().network.half_open <= 64);
                service.status().network.refused
            },
        );
        over.store(true, Ordering::Relaxed);
        assert!(dropped[0] > 0);
    });
}

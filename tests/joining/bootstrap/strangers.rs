//! Strangers connect to the ports of a world that is at work. The number of unfinished handshakes
//! and the time of each are bounded, and the world works on.

use super::{LONG, WORLD, each, job, soon};
use maypole::world::bootstrap::JoinConfig;
use maypole::world::service::{DataPath, GroupId, Service};
use maypole_transports::sockets::connect_abstract_nonblocking;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// The most handshakes that may be unfinished at a time.
const HALF_OPEN: usize = 64;
/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// The first bytes of a preamble.
const MAGIC: &[u8; 8] = b"maypole\x02";

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Joins two ranks, and runs `strangers` against the ports where both listen, while the ranks
/// exchange and connect without a pause. Then `after` sees the service of rank 1.
fn while_at_work(strangers: impl Fn([SocketAddr; 2]) + Sync, after: impl Fn(&Service) + Sync) {
    let data_port = free_port();
    let mut config = job(2);
    config.ports = vec![free_port()];
    let root = config.ports[0];
    let listen = |config: &mut JoinConfig| config.data_ports = Some(data_port..=data_port);
    let ports = [root, data_port].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let over = Barrier::new(2);
    let body = |service: Service| {
        let peer = 1 - service.rank();
        std::thread::scope(|threads| {
            let strangers = (service.rank() == 0).then(|| threads.spawn(|| strangers(ports)));
            let mut round = 0;
            loop {
                // The strangers come and go; each round makes a connection of its own.
                let done = strangers.as_ref().is_none_or(|strangers| strangers.is_finished());
                let group = GroupId { parent_epoch: 7, counter: round };
                drop(service.connect(DataPath::Tcp, (group, peer, 0), soon()).unwrap());
                let parts = service.exchange(WORLD, &[0, 1], vec![u8::from(done)], soon()).unwrap();
                assert!(service.status().network.half_open <= HALF_OPEN);
                round += 1;
                if parts == [[1], [1]] {
                    break;
                }
            }
        });
        if service.rank() == 1 {
            after(&service);
        }
        assert!(service.cause().is_none());
        over.wait();
        service.leave(0, true).unwrap();
    };
    each(&config, listen, |service| body(service.unwrap()));
}

#[test]
fn two_thousand_strangers_do_not_disturb_a_world_at_work() {
    let strangers = |ports: [SocketAddr; 2]| {
        for port in ports {
            let mut held = Vec::new();
            for number in 0..1000usize {
                let Ok(mut stranger) = TcpStream::connect(port) else { continue };
                // A third sends nothing, a third other bytes, a third the first bytes of a
                // preamble.
                let _ = match number % 3 {
                    0 => Ok(()),
                    1 => stranger.write_all(&[0x5a; 300]),
                    _ => stranger.write_all(MAGIC),
                };
                held.push(stranger);
                held.drain(..held.len().saturating_sub(150));
            }
        }
    };
    while_at_work(strangers, |service| {
        // All but the last ones were refused already. A third of them were refused immediately.
        let status = service.status().network;
        assert!(status.refused >= 1000 - HALF_OPEN as u64, "{status:?}");
    });
}

/// Sending a byte now and then does not extend the time that a handshake may take.
#[test]
fn strangers_that_send_byte_after_byte_are_refused_in_time() {
    crate::skip::takes_turns!(2);
    let strangers = |ports: [SocketAddr; 2]| {
        let start = Instant::now();
        let mut slow: Vec<TcpStream> =
            (0..20).map(|_| TcpStream::connect(ports[1]).unwrap()).collect();
        let mut bytes = MAGIC.iter().cycle();
        // One byte each, until all of them were closed.
        while !slow.is_empty() {
            assert!(start.elapsed() < LONG, "{} strangers are still connected", slow.len());
            let byte = [*bytes.next().expect("without end")];
            for stranger in &mut slow {
                let _ = stranger.write_all(&byte);
            }
            std::thread::sleep(Duration::from_millis(200));
            slow.retain_mut(|stranger| {
                stranger.set_nonblocking(true).unwrap();
                let left = stranger.read(&mut [0; 16]);
                let open =
                    matches!(&left, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock);
                stranger.set_nonblocking(false).unwrap();
                open
            });
        }
        let took = start.elapsed();
        assert!(took < 3 * HANDSHAKE, "the last one was refused after {took:?}");
    };
    while_at_work(strangers, |service| {
        let status = service.status().network;
        assert!(status.refused >= 20 && status.half_open == 0, "{status:?}");
    });
}

/// The abstract sockets on which this process listens, by name.
fn listening_here() -> Vec<Vec<u8>> {
    let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let open: Vec<String> = open
        .filter_map(|it| Some(std::fs::read_link(it.path()).ok()?.display().to_string()))
        .collect();
    let table = std::fs::read_to_string("/proc/net/unix").unwrap();
    let own = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, _, _, flags, _, _, inode, name] = words[..] else { return None };
        let listens = flags == "00010000" && open.contains(&format!("socket:[{inode}]"));
        listens.then(|| name.strip_prefix('@').map(|name| name.as_bytes().to_vec()))?
    };
    table.lines().filter_map(own).collect()
}

#[test]
fn silent_connections_to_the_socket_of_a_segment_hold_no_receiver_up() {
    let started = Barrier::new(3);
    let body = |service: Service| {
        let group = GroupId { parent_epoch: 5, counter: 1 };
        let all = [0, 1, 2];
        // A receiver listens before it waits for the offers of the others.
        started.wait();
        let mut silent = Vec::new();
        if service.rank() == 1 {
            let deadline = soon();
            while silent.len() < 3 {
                assert!(Instant::now() < deadline, "no receiver listens");
                silent.clear();
                for name in listening_here() {
                    let connected = (0..3).map(|_| connect_abstract_nonblocking(&name));
                    silent.extend(connected.filter_map(Result::ok));
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        let start = Instant::now();
        let segment = service.share(group, &all, 4096, soon()).unwrap();
        let took = start.elapsed();
        assert!(
            service.rank() != 1 || took < HANDSHAKE,
            "{took:?} beside {} strangers",
            silent.len()
        );
        drop(segment);
        service.exchange(WORLD, &all, Vec::new(), soon()).unwrap();
        drop(silent);
        service.leave(0, true).unwrap();
    };
    each(&job(3), |_| {}, |service| body(service.unwrap()));
}

//! A recorded handshake is refused, wherever and whenever it is sent again, also if it is sent back
//! to the rank that sent it.

use super::{DATA, ENCRYPTED_DATA, JOIN, LONG, free_port, job, rank};
use crate::proxy::{Proxy, Recorded};
use maypole::world::bootstrap::{JoinConfig, join};
use maypole::world::service::{DataPath, GroupId, Service};
use maypole_transports::AnyStream;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

const WORLD: GroupId = GroupId::WORLD;
/// Bytes of a preamble, and of a preamble with the first message.
const PREAMBLE: usize = 45;
const FIRST: usize = PREAMBLE + 50;

fn soon() -> Instant {
    Instant::now() + LONG
}

/// Sends the bytes of an initiator again, in the steps of the handshake. Returns the reply of the
/// other end until it closed the connection.
fn replay(recorded: &[u8], to: SocketAddr) -> Vec<u8> {
    let mut socket = connect(to);
    let mut answer = vec![0; 50];
    // An attacker waits for the answer, as an initiator does. The port may refuse immediately.
    let (hello, third) = recorded.split_at(FIRST);
    socket.write_all(hello).unwrap();
    let answered = socket.read_exact(&mut answer).is_ok();
    if answered {
        // The other end may have closed the connection by now.
        let _ = socket.write_all(third);
    } else {
        answer.clear();
    }
    let _ = socket.read_to_end(&mut answer);
    answer
}

fn connect(to: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(to).unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    socket
}

/// Waits until a service has refused `count` connections.
fn refused(service: &Service, count: u64) {
    let deadline = soon();
    while service.status().network.refused < count {
        assert!(Instant::now() < deadline, "{:?}", service.status().network);
        std::thread::yield_now();
    }
    assert_eq!(service.status().network.refused, count);
}

fn connection(proxy: &Proxy, purpose: u8) -> Recorded {
    let recorded = proxy.recorded();
    recorded.into_iter().find(|it| it.purpose() == Some(purpose)).expect("it went over the proxy")
}

/// Two ranks, rank 1 of which reaches rank 0 through a proxy. Then `attack` runs with rank 0, and
/// the two ranks still agree.
fn with_attack(encrypt: bool, attack: impl Fn(&Service, &Proxy, SocketAddr) + Sync) {
    let (config, root) = job(2, encrypt);
    let proxy = Proxy::new(root, |_| {});
    std::thread::scope(|threads| {
        let other = threads.spawn(|| {
            let service = join(rank(&config, 1, proxy.address)).unwrap();
            let dialled = service.dial(DataPath::Tcp, (WORLD, 0, 5), soon()).unwrap();
            assert_eq!(matches!(dialled, AnyStream::Encrypted(_)), encrypt);
            for _ in 0..2 {
                service.exchange(WORLD, &[0, 1], vec![1], soon()).unwrap();
            }
            drop(dialled);
            service.leave(0, true).unwrap();
        });
        let service = join(rank(&config, 0, root)).unwrap();
        service.exchange(WORLD, &[0, 1], vec![0], soon()).unwrap();
        let callers = service.callers(WORLD, 5);
        assert_eq!(callers.iter().map(|(peer, _)| *peer).collect::<Vec<_>>(), [1]);
        attack(&service, &proxy, root);
        assert!(service.callers(WORLD, 5).is_empty(), "no connection was accepted");
        assert!(service.cause().is_none());
        let parts = service.exchange(WORLD, &[0, 1], vec![0], soon()).unwrap();
        assert_eq!(parts, [[0], [1]]);
        other.join().unwrap();
    });
}

#[test]
fn a_replayed_handshake_changes_nothing_but_a_counter() {
    for (encrypt, data) in [(false, DATA), (true, ENCRYPTED_DATA)] {
        with_attack(encrypt, |service, proxy, root| {
            // The handshake of joining and that of a data connection, each twice.
            for (count, purpose) in [(1, JOIN), (2, data), (3, JOIN), (4, data)] {
                let recorded = connection(proxy, purpose);
                let answer = replay(&recorded.there, root);
                refused(service, count);
                // The port replies to the first message, because only the third one shows a replay.
                // No acceptance follows.
                assert!(answer.len() >= 50 && answer != recorded.back[..answer.len()]);
                assert!(answer.len() <= 50 + 3, "a refusal at most: {answer:?}");
            }
        });
    }
}

/// The attacker sends rank 0's own answer back to it, as a first and as a third message.
#[test]
fn reflected_messages_are_refused() {
    with_attack(true, |service, proxy, root| {
        let recorded = connection(proxy, ENCRYPTED_DATA);
        // The answer of rank 0 to rank 1, after a preamble of rank 1.
        let reflected = [&recorded.there[..PREAMBLE], &recorded.back[..50]].concat();
        let mut socket = connect(root);
        socket.write_all(&reflected).unwrap();
        let mut refusal = Vec::new();
        let _ = socket.read_to_end(&mut refusal);
        assert_eq!(refusal.len(), 3, "a refusal and nothing that the key was needed for");
        refused(service, 1);
        // Its fresh answer is sent back as the third message.
        let mut socket = connect(root);
        socket.write_all(&recorded.there[..FIRST]).unwrap();
        let mut answer = [0; 50];
        socket.read_exact(&mut answer).unwrap();
        socket.write_all(&answer).unwrap();
        let mut rest = Vec::new();
        let _ = socket.read_to_end(&mut rest);
        assert!(rest.len() <= 3, "{rest:?}");
        refused(service, 2);
    });
}

/// The attacker leads rank 1's connection to rank 0 back to rank 1, or to another rank that holds
/// the key: it is not taken for rank 0.
#[test]
fn a_connection_that_is_led_to_another_rank_is_refused() {
    let (config, root) = job(3, true);
    let ports = [free_port(), free_port()];
    std::thread::scope(|threads| {
        let others: Vec<_> = (1..3)
            .map(|number| {
                let mut config = rank(&config, number, root);
                config.data_ports = Some(ports[number - 1]..=ports[number - 1]);
                threads.spawn(move || {
                    let service = join(config).unwrap();
                    service.exchange(WORLD, &[0, 1, 2], vec![], soon()).unwrap();
                    service
                })
            })
            .collect();
        let root_service = join(rank(&config, 0, root)).unwrap();
        root_service.exchange(WORLD, &[0, 1, 2], vec![], soon()).unwrap();
        let services: Vec<Service> = others.into_iter().map(|it| it.join().unwrap()).collect();
        // The attack needs a connection to rank 0 that leads elsewhere: the first bytes of rank 1's
        // connection to rank 0, sent to ranks 1 and 2.
        let recorder = Proxy::new(root, |_| {});
        join_late(&config, recorder.address);
        let hello = recorder.recorded()[0].there[..FIRST].to_vec();
        for (service, port) in services.iter().zip(ports) {
            let before = service.status().network.refused;
            let mut socket = connect(SocketAddr::from(([127, 0, 0, 1], port)));
            socket.write_all(&hello).unwrap();
            let mut answer = Vec::new();
            let _ = socket.read_to_end(&mut answer);
            assert_eq!(answer.len(), 3, "port {port} answers with a refusal alone");
            refused(service, before + 1);
        }
        std::thread::scope(|threads| {
            for service in services.iter().chain([&root_service]) {
                threads.spawn(|| service.leave(0, true).unwrap());
            }
        });
    });
}

/// Connects to rank 0 as a rank that joins a world that is complete. It is not served.
fn join_late(config: &JoinConfig, through: SocketAddr) {
    let late = JoinConfig { join_timeout: Duration::from_millis(300), ..rank(config, 1, through) };
    join(late).unwrap_err();
}

/// The handshake of a rank that has joined is sent again while the world is not complete: the rank
/// keeps its place, and the world completes.
#[test]
fn a_replay_while_ranks_join_does_not_displace_a_rank() {
    let (config, root) = job(3, false);
    let proxy = Proxy::new(root, |_| {});
    std::thread::scope(|threads| {
        let ranks: Vec<_> = [(0, root), (1, proxy.address)]
            .map(|(number, root)| {
                let config = rank(&config, number, root);
                threads.spawn(move || join(config).unwrap())
            })
            .into_iter()
            .collect();
        // Rank 1 has sent its request once it has sent more than its handshake.
        let deadline = soon();
        let recorded = loop {
            if let Some(recorded) = proxy.recorded().pop()
                && recorded.there.len() > FIRST + 19 + 20
            {
                break recorded;
            }
            assert!(Instant::now() < deadline, "rank 1 does not join");
            std::thread::yield_now();
        };
        for _ in 0..3 {
            let answer = replay(&recorded.there, root);
            assert!(answer.len() <= 50 + 3, "a refusal at most: {answer:?}");
        }
        let last = join(rank(&config, 2, root)).unwrap();
        let services: Vec<Service> =
            ranks.into_iter().map(|rank| rank.join().unwrap()).chain([last]).collect();
        refused(&services[0], 3);
        std::thread::scope(|threads| {
            for service in &services {
                threads.spawn(|| service.leave(0, true).unwrap());
            }
        });
    });
}

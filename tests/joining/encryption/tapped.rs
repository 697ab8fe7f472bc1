//! Messages between two ranks whose connections lead through a proxy.

use super::{DATA, ENCRYPTED_DATA, job, rank};
use crate::proxy::{Passing, Proxy, Way};
use maypole::{Communicator, Error, Result, Transport};
use maypole_tests::common::SeededRng;
use std::time::{Duration, Instant};

/// The text that a listener searches for.
const PATTERN: &[u8] = b"maypole dancers hold ribbons ";
/// A message that is sent by rendezvous, longer than several records.
const LONG_MESSAGE: usize = 100_000;
/// How long an error may take on a busy machine, far below the deadline of a wait.
const SOON: Duration = Duration::from_secs(20);

fn payload() -> Vec<u8> {
    PATTERN.iter().copied().cycle().take(LONG_MESSAGE).collect()
}

/// Rank 1 sends rank 0 a long and a short message through a proxy, and rank 0 one back. Returns the
/// messages that the two received, and the proxy.
fn converse(
    encrypt: bool,
    tamper: impl Fn(Passing<'_>) + Send + Sync + 'static,
) -> ([Result<Vec<u8>>; 2], Proxy) {
    let (config, root) = job(2, encrypt);
    let proxy = Proxy::new(root, tamper);
    let outcomes = std::thread::scope(|threads| {
        let other = threads.spawn(|| {
            let mut comm =
                Communicator::join(rank(&config, 1, proxy.address), Transport::Tcp).unwrap();
            assert_eq!(comm.is_encrypted(), encrypt);
            // An error ends the part of this rank, and closes its links.
            comm.send(&payload(), 0, 7)?;
            comm.send(PATTERN, 0, 8)?;
            let mut reply = vec![0; 10];
            comm.recv(&mut reply, 0, 9)?;
            Ok(reply)
        });
        let mut comm = Communicator::join(rank(&config, 0, root), Transport::Tcp).unwrap();
        let mine = (|| {
            let mut long = vec![0; LONG_MESSAGE];
            let mut short = vec![0; PATTERN.len()];
            comm.recv(&mut long, 1, 7)?;
            comm.recv(&mut short, 1, 8)?;
            comm.send(&PATTERN[..10], 1, 9)?;
            Ok([long, short].concat())
        })();
        drop(comm);
        [mine, other.join().unwrap()]
    });
    (outcomes, proxy)
}

fn expected() -> Vec<u8> {
    [payload(), PATTERN.to_vec()].concat()
}

/// The bytes that followed the handshake on the data connection of rank 1.
fn data_of(proxy: &Proxy, purpose: u8) -> Vec<u8> {
    let recorded = proxy.recorded();
    let mut data = recorded.iter().filter(|connection| connection.purpose() == Some(purpose));
    let connection = data.next().expect("rank 1 has connected");
    assert!(data.next().is_none(), "once");
    connection.there.clone()
}

fn finds_pattern(bytes: &[u8]) -> bool {
    bytes.windows(PATTERN.len()).any(|part| part == PATTERN)
}

#[test]
fn a_listener_reads_plain_messages_and_no_encrypted_ones() {
    let ([mine, theirs], proxy) = converse(false, |_| {});
    assert_eq!(mine.unwrap(), expected());
    assert_eq!(theirs.unwrap(), PATTERN[..10]);
    let plain = data_of(&proxy, DATA);
    assert!(finds_pattern(&plain), "a listener finds what it looks for");

    let ([mine, theirs], proxy) = converse(true, |_| {});
    assert_eq!(mine.unwrap(), expected());
    assert_eq!(theirs.unwrap(), PATTERN[..10]);
    let sealed = data_of(&proxy, ENCRYPTED_DATA);
    assert!(sealed.len() > plain.len());
    for connection in proxy.recorded() {
        assert!(!finds_pattern(&connection.there) && !finds_pattern(&connection.back));
    }
    // Encrypted bytes do not even contain parts of the pattern.
    let parts = sealed[HANDSHAKE_THERE..]
        .windows(6)
        .filter(|part| PATTERN.windows(6).any(|six| six == *part));
    assert_eq!(parts.count(), 0);
}

/// Flips bits of byte `at` that rank 1 sends on its data connection.
fn flip(purpose: u8, at: usize, bits: u8) -> impl Fn(Passing<'_>) + Send + Sync {
    move |mut passing: Passing<'_>| {
        if passing.way == Way::There && passing.purpose() == Some(purpose) {
            passing.flip(at, bits);
        }
    }
}

#[test]
fn an_altered_plain_message_is_a_wrong_number() {
    // After the handshake, the first frame's head and much of the message.
    let ([mine, _], _) = converse(false, flip(DATA, 50_000, 1));
    let got = mine.unwrap();
    assert_ne!(got, expected(), "the attack works, so the test below means something");
}

/// Preamble, first and third message: the bytes of an initiator before its records.
const HANDSHAKE_THERE: usize = 45 + 50 + 19;

#[test]
fn an_altered_byte_is_an_error_that_names_the_peer_and_never_a_wrong_number() {
    crate::skip::takes_turns!(2);
    let mut random = SeededRng::new(31);
    let ends = [HANDSHAKE_THERE, HANDSHAKE_THERE + 19, HANDSHAKE_THERE + 20];
    let drawn = (0..12).map(|_| HANDSHAKE_THERE + random.below(LONG_MESSAGE)).collect::<Vec<_>>();
    for at in ends.into_iter().chain(drawn) {
        let start = Instant::now();
        let ([mine, theirs], _) = converse(true, flip(ENCRYPTED_DATA, at, 0x10));
        let error = mine.expect_err("rank 0 receives nothing that was altered");
        assert!(matches!(error, Error::PeerLost { rank: 0, peer: 1, .. }), "byte {at}: {error}");
        assert!(error.to_string().contains("were altered"), "byte {at}: {error}");
        theirs.expect_err("the sender learns of it");
        assert!(start.elapsed() < SOON, "byte {at}: {:?}", start.elapsed());
    }
}

/// A rank dials again if its handshake was altered, and nothing is lost.
#[test]
fn an_altered_handshake_is_repeated() {
    let mut random = SeededRng::new(32);
    for _ in 0..6 {
        let at = random.below(HANDSHAKE_THERE);
        let once = std::sync::atomic::AtomicBool::new(false);
        let tamper = move |mut passing: Passing<'_>| {
            let before = passing.before.there.len();
            let here = (before..before + passing.bytes.len()).contains(&at);
            let is_data = passing.purpose() == Some(ENCRYPTED_DATA);
            if passing.way == Way::There
                && is_data
                && here
                && !once.swap(true, std::sync::atomic::Ordering::SeqCst)
            {
                passing.flip(at, 1);
            }
        };
        let ([mine, theirs], proxy) = converse(true, tamper);
        assert_eq!(mine.unwrap(), expected(), "byte {at}");
        theirs.unwrap();
        assert!(proxy.recorded().len() >= 3, "joining, and data twice");
    }
}

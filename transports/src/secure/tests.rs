use super::*;
use proptest::prelude::*;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

fn secret(key: u8, job: &str) -> JobSecret {
    JobSecret { key: [key; 32], job: job.to_owned(), session: [7; 16] }
}

fn binding(purpose: Purpose) -> Binding {
    Binding { purpose, group: [1, 2], lane: 3, initiator: 4, responder: 5 }
}

/// The bytes that a responder has sent, and the connection if the initiator has proved its key.
type Answered = Result<(Vec<u8>, Option<(Binding, Channel)>), SecureError>;

/// Feeds `bytes` as a socket would.
fn feed(responder: &mut Responder, bytes: &[u8]) -> Answered {
    let mut socket = Canned { bytes: bytes.to_vec(), sent: Vec::new() };
    let done = responder.advance(&mut socket)?;
    Ok((socket.sent, done))
}

/// The channels of both ends, and the messages of the initiator.
fn recorded_handshake(
    mine: &JobSecret,
    theirs: &JobSecret,
    purpose: Purpose,
) -> Result<(Channel, Channel, Vec<Vec<u8>>), SecureError> {
    let (near, mut far) = UnixStream::pair().unwrap();
    let mut near = Tap(near, Vec::new());
    std::thread::scope(|threads| {
        let other = threads.spawn(move || Responder::new(theirs).advance(&mut far));
        let here = initiate(&mut near, mine, &binding(purpose));
        let (seen, there) = other.join().unwrap()?.expect("the initiator has proved its key");
        assert_eq!(seen, binding(purpose));
        Ok((here?, there, near.1))
    })
}

fn handshake(
    mine: &JobSecret,
    theirs: &JobSecret,
    purpose: Purpose,
) -> Result<(Channel, Channel), SecureError> {
    recorded_handshake(mine, theirs, purpose).map(|(here, there, _)| (here, there))
}

/// The first bytes of an initiator.
fn hello(secret: &JobSecret, binding: &Binding) -> Vec<u8> {
    let mut silent = Canned { bytes: Vec::new(), sent: Vec::new() };
    initiate(&mut silent, secret, binding).unwrap_err();
    silent.sent
}

#[test]
fn both_ends_talk() {
    let (mut a, mut b) = handshake(&secret(1, "j"), &secret(1, "j"), Purpose::Data).unwrap();
    for len in [0, 1, 65_518, 65_519, 300_000] {
        let message: Vec<u8> = (0..len).map(|i| i as u8).collect();
        let mut wire = Vec::new();
        a.seal(&message, &mut wire);
        let mut got = None;
        for piece in wire.chunks(1000) {
            b.receive(piece);
            got = got.or(b.open(len).unwrap());
        }
        assert_eq!(got.as_deref(), Some(&message[..]));
    }
}

/// Every connection, and each of its directions, has keys of its own.
#[test]
fn bytes_of_another_direction_or_connection_do_not_open() {
    let secret = secret(1, "j");
    let pair = || handshake(&secret, &secret, Purpose::EncryptedData).unwrap();
    let opens = |from: &mut Channel, to: &mut Channel| {
        let mut wire = Vec::new();
        from.seal(b"numbers", &mut wire);
        to.receive(&wire);
        to.open(100).is_ok_and(|message| message.is_some())
    };
    let [(mut here, mut there), (mut other, mut elsewhere)] = [pair(), pair()];
    assert!(opens(&mut here, &mut there) && opens(&mut there, &mut here));
    assert!(!opens(&mut here, &mut elsewhere));
    // An attacker sends this end's own bytes back.
    let mut wire = Vec::new();
    other.seal(b"numbers", &mut wire);
    other.receive(&wire);
    assert!(matches!(other.open(100), Err(SecureError::Damaged)));
}

/// An end that kept its key, as by a fault, could not decrypt from then on.
#[test]
fn both_ends_change_keys_and_go_on() {
    let (mut a, mut b) = handshake(&secret(1, "j"), &secret(1, "j"), Purpose::Data).unwrap();
    let mut last = Vec::new();
    for frame in 0..70_000u32 {
        let mut wire = Vec::new();
        a.seal(&frame.to_le_bytes(), &mut wire);
        assert_ne!(wire, last);
        b.receive(&wire);
        assert_eq!(b.open(4).unwrap(), Some(frame.to_le_bytes().to_vec()));
        last = wire;
    }
}

#[test]
fn another_key_job_or_session_is_refused() {
    let mut other_session = secret(1, "j");
    other_session.session = [8; 16];
    let refused =
        |theirs: &JobSecret, purpose| handshake(&secret(1, "j"), theirs, purpose).unwrap_err();
    assert!(matches!(refused(&secret(2, "j"), Purpose::Join), SecureError::WrongKey));
    assert!(matches!(refused(&secret(1, "k"), Purpose::Join), SecureError::OtherJob));
    assert!(matches!(refused(&other_session, Purpose::Data), SecureError::WrongKey));
    // A joining rank has no session yet.
    handshake(&secret(1, "j"), &other_session, Purpose::Join).unwrap();
}

/// The first bytes on the wire: processes of other builds must agree on them.
#[test]
fn a_preamble_has_its_fields_and_nothing_else() {
    let binding = Binding {
        purpose: Purpose::Data,
        group: [0x0102_0304_0506_0708, 9],
        lane: 0x0a0b_0c0d,
        initiator: 14,
        responder: 0x0f00_0000,
    };
    let encoded = binding.encode("j");
    // Magic and version, job, purpose, two words of the group, lane, initiator, responder.
    assert_eq!(PREAMBLE, 8 + 8 + 1 + 2 * 8 + 4 + 4 + 4);
    assert_eq!(&encoded[..7], b"maypole");
    assert_eq!(encoded[8..16], job_hash("j").to_le_bytes());
    assert_eq!(encoded[16], 2);
    assert_eq!(encoded[17..33], [8, 7, 6, 5, 4, 3, 2, 1, 9, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(encoded[33..], [13, 12, 11, 10, 14, 0, 0, 0, 0, 0, 0, 15]);
    assert_eq!(Binding::decode(&encoded, "j").unwrap(), binding);
}

#[test]
fn an_altered_preamble_is_noticed() {
    let secret = secret(1, "j");
    for at in 0..PREAMBLE {
        let mut hello = hello(&secret, &binding(Purpose::Data));
        hello[at] ^= 1;
        feed(&mut Responder::new(&secret), &hello).unwrap_err();
    }
}

#[test]
fn a_replayed_first_message_is_not_let_in() {
    let secret = secret(1, "j");
    let (_, _, sent) = recorded_handshake(&secret, &secret, Purpose::Data).unwrap();
    let mut second = Responder::new(&secret);
    feed(&mut second, &sent[0]).unwrap();
    feed(&mut second, &sent[1]).unwrap_err();
}

/// An attacker leads a connection to another rank, or back to the rank that makes it.
#[test]
fn a_connection_for_another_rank_is_refused_before_any_answer() {
    let secret = secret(1, "j");
    let binding = binding(Purpose::Data);
    let first = hello(&secret, &binding);
    let answer = |rank| feed(&mut Responder::new(&secret).of_rank(rank), &first);
    assert!(matches!(answer(binding.responder), Ok((sent, None)) if !sent.is_empty()));
    for rank in [binding.initiator, 0, 6] {
        assert!(matches!(answer(rank), Err(SecureError::Refused)), "rank {rank}");
    }
    let to_itself = Binding { initiator: binding.responder, ..binding };
    let first = hello(&secret, &to_itself);
    let answer = feed(&mut Responder::new(&secret).of_rank(binding.responder), &first);
    assert!(matches!(answer, Err(SecureError::Refused)));
}

#[test]
fn a_reflected_message_is_not_let_in() {
    let secret = secret(1, "j");
    let binding = binding(Purpose::Data);
    let (mut near, mut far) = UnixStream::pair().unwrap();
    let mut first = hello(&secret, &binding);
    let outcome = std::thread::scope(|threads| {
        threads.spawn(|| {
            far.read_exact(&mut first).unwrap();
            far.write_all(&first[PREAMBLE..]).unwrap();
        });
        initiate(&mut near, &secret, &binding)
    });
    assert!(matches!(outcome, Err(SecureError::WrongKey)));
}

#[test]
fn refusals_say_why() {
    for why in [
        SecureError::OtherJob,
        SecureError::WrongKey,
        SecureError::Refused,
        SecureError::UnknownProtocol,
    ] {
        let mut refusing = Canned { bytes: refuse(&why).to_vec(), sent: Vec::new() };
        let outcome = initiate(&mut refusing, &secret(1, "j"), &binding(Purpose::Join));
        let heard = outcome.unwrap_err();
        assert_eq!(heard.to_string(), why.to_string());
    }
}

#[test]
fn a_message_that_is_too_long_is_refused() {
    let (mut a, mut b) = handshake(&secret(1, "j"), &secret(1, "j"), Purpose::Join).unwrap();
    let mut wire = Vec::new();
    a.seal(&[0; 200_000], &mut wire);
    // Refused as soon as too many bytes have arrived, long before the end of the message.
    b.receive(&wire[..140_000]);
    assert!(matches!(b.open(100_000), Err(SecureError::TooLong { maximum: 100_000 })));
}

#[test]
fn an_altered_frame_is_noticed() {
    let (mut a, mut b) = handshake(&secret(1, "j"), &secret(1, "j"), Purpose::Join).unwrap();
    let mut wire = Vec::new();
    a.seal(b"numbers", &mut wire);
    wire[5] ^= 1;
    b.receive(&wire);
    assert!(matches!(b.open(100), Err(SecureError::Damaged)));
}

fn lets_in(outcome: &Answered) -> bool {
    matches!(outcome, Ok((_, Some(_))))
}

proptest! {
    #[test]
    fn a_responder_survives_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(!lets_in(&feed(&mut Responder::new(&secret(1, "j")), &bytes)));
    }

    #[test]
    fn a_responder_survives_a_good_preamble_and_any_bytes(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        len in any::<u16>(),
    ) {
        let secret = secret(1, "j");
        let mut wire = hello(&secret, &binding(Purpose::Data))[..PREAMBLE].to_vec();
        wire.extend(len.to_le_bytes());
        wire.extend(bytes);
        let mut responder = Responder::new(&secret);
        let outcome = feed(&mut responder, &wire);
        prop_assert!(!lets_in(&outcome));
        // The bytes kept for an unauthenticated peer are bounded, whatever length it claims.
        prop_assert!(outcome.is_err() || responder.buffer.len() < PREAMBLE + 2 + HANDSHAKE_FRAME);
    }

    #[test]
    fn an_initiator_survives_any_answer(answer in prop::collection::vec(any::<u8>(), 0..200)) {
        let framed = [&(answer.len() as u16).to_le_bytes(), &answer[..]].concat();
        for bytes in [framed, answer] {
            let mut socket = Canned { bytes, sent: Vec::new() };
            prop_assert!(initiate(&mut socket, &secret(1, "j"), &binding(Purpose::Join)).is_err());
        }
    }

    #[test]
    fn a_channel_survives_any_bytes(
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100), 0..4),
    ) {
        let (_, mut b) = handshake(&secret(1, "j"), &secret(1, "j"), Purpose::Join).unwrap();
        for piece in pieces {
            b.receive(&piece);
            match b.open(1000) {
                Ok(message) => prop_assert!(message.is_none()),
                Err(_) => break,
            }
        }
    }
}

/// A socket with these bytes to read. It takes all bytes that are written to it.
struct Canned {
    bytes: Vec<u8>,
    sent: Vec<u8>,
}

impl Read for Canned {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = (&self.bytes[..]).read(into)?;
        self.bytes.drain(..read);
        if read == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(read) }
    }
}

impl Write for Canned {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.sent.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A socket, and what was written to it.
struct Tap(UnixStream, Vec<Vec<u8>>);

impl Write for Tap {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.1.push(bytes.to_vec());
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Tap {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

/// The layout is a contract between processes, which may be of different builds.
#[test]
fn a_preamble_is_its_fields_in_order_and_nothing_else() {
    let bytes = binding(Purpose::Data).encode("j");
    let hash = (0xcbf2_9ce4_8422_2325u64 ^ u64::from(b'j')).wrapping_mul(0x0000_0100_0000_01b3);
    let mut expected = b"maypole\x03".to_vec();
    expected.extend(hash.to_le_bytes());
    expected.push(2);
    expected.extend([1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    expected.extend([3, 0, 0, 0, 4, 0, 0, 0, 5, 0, 0, 0]);
    assert_eq!(bytes, expected[..]);
    assert_eq!(Binding::decode(&bytes, "j").unwrap(), binding(Purpose::Data));
}

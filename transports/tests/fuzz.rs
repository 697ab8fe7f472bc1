//! The readers of bytes that a connection brings, before and after the handshake: arbitrary bytes
//! give an error or a value, and never a panic, a long wait or much memory.

#[path = "../../tests/readers/fuzz.rs"]
mod fuzz;

use fuzz::Fuzz;
use maypole_transports::secure::{
    Binding, Channel, JobSecret, Purpose, Responder, SecureError, initiate,
};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

/// Most bytes of a message in these tests.
const LONGEST_MESSAGE: usize = 4096;

fn secret() -> JobSecret {
    JobSecret { key: [7; 32], job: "a job".to_owned(), session: [9; 16] }
}

fn binding() -> Binding {
    Binding { purpose: Purpose::Join, group: [0, 0], lane: 0, initiator: 1, responder: 0 }
}

/// A peer that has sent these bytes, and the bytes that were sent to it.
struct Recording<'a>(&'a [u8], Vec<u8>);

impl Read for Recording<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

impl Write for Recording<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.1.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn kind<T>(answer: Result<T, SecureError>) -> String {
    answer.map_or_else(|error| error.to_string(), |_| "accepted".to_owned())
}

/// The first two messages of a handshake, from the initiator and to it.
fn dialogue() -> (Vec<u8>, Vec<u8>) {
    let mut silent = Recording(&[], Vec::new());
    initiate(&mut silent, &secret(), &binding()).unwrap_err();
    let Recording(_, hello) = silent;
    let mut answering = Recording(&hello, Vec::new());
    // It waits for more bytes, and there are none.
    assert!(Responder::new(&secret()).advance(&mut answering).is_err());
    let Recording(_, answer) = answering;
    (hello, answer)
}

#[test]
fn fuzz_the_bytes_of_an_initiator() {
    let (hello, _) = dialogue();
    Fuzz::new("handshake")
        .corpus([hello])
        .memory(64 << 10, 8)
        .run(|bytes| kind(Responder::new(&secret()).advance(&mut Recording(bytes, Vec::new()))));
}

#[test]
fn fuzz_the_bytes_of_a_responder() {
    let (_, answer) = dialogue();
    Fuzz::new("answer")
        .corpus([answer, vec![1, 0, 2]])
        .memory(64 << 10, 8)
        .run(|bytes| kind(initiate(&mut Recording(bytes, Vec::new()), &secret(), &binding())));
}

/// Both ends of an encrypted channel.
fn channels() -> (Channel, Channel) {
    let (mut near, mut far) = UnixStream::pair().unwrap();
    std::thread::scope(|threads| {
        let other = threads.spawn(|| Responder::new(&secret()).advance(&mut far).unwrap());
        let here = initiate(&mut near, &secret(), &binding()).unwrap();
        (here, other.join().unwrap().expect("the initiator has the key").1)
    })
}

/// Reads messages until there are none. Returns the kind of the last result.
fn read_all(channel: &mut Channel) -> String {
    loop {
        match channel.open(LONGEST_MESSAGE) {
            Ok(Some(message)) => assert!(message.len() <= LONGEST_MESSAGE, "longer than allowed"),
            Ok(None) => return "no more".to_owned(),
            Err(error) => return error.to_string(),
        }
    }
}

#[test]
fn fuzz_bytes_on_an_encrypted_connection() {
    Fuzz::new("channel").inputs(4000).memory(512 << 10, 8).run(|bytes| {
        let (_, mut there) = channels();
        there.receive(bytes);
        read_all(&mut there)
    });
}

/// The first two bytes of an input are the length of a message that the other end seals; the rest
/// selects the damaged bytes.
#[test]
fn fuzz_messages_of_a_rank_that_holds_the_key() {
    let lengths = [0u16, 1, 4095, 4096, 4097, u16::MAX];
    let corpus = lengths.map(|len| len.to_le_bytes().to_vec());
    Fuzz::new("sealed").inputs(4000).corpus(corpus).memory(1 << 20, 8).run(|bytes| {
        let (mut here, mut there) = channels();
        let (len, damage) = bytes.split_at(bytes.len().min(2));
        let len = len.iter().rev().fold(0, |len, byte| len << 8 | usize::from(*byte));
        let mut wire = Vec::new();
        here.seal(&vec![1; len], &mut wire);
        for at in damage.chunks_exact(4) {
            let place = usize::from(u16::from_le_bytes([at[0], at[1]])) % wire.len();
            wire[place] ^= at[2];
        }
        there.receive(&wire);
        read_all(&mut there)
    });
}

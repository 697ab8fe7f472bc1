//! Guarantees of an encrypted stream beyond the contract of every stream: under any change of the
//! bytes below, it delivers only bytes that the peer sent, and it ends as closed only if the peer
//! has ended it.

use crate::drive::{Message, Random, TestDeadline, channels, receive_all, send_all};
use maypole_kernels::{View, ViewMut};
use maypole_transports::{EncryptedStream, Fault, HEAD, Stream, mem};

/// The stream below an encrypted one. It changes or cuts the bytes that arrive.
struct Tampered<S> {
    inner: S,
    /// Bytes that have arrived.
    arrived: usize,
    change: Change,
}

/// Changes of the bytes below.
#[derive(Clone, Copy, Debug)]
enum Change {
    Nothing,
    /// These bits of the byte at this place are flipped.
    Flip {
        at: usize,
        bits: u8,
    },
    /// The stream ends before the byte at this place.
    Cut {
        at: usize,
    },
}

impl<S: Stream> Stream for Tampered<S> {
    fn send(&mut self, head: &[u8; HEAD], body: View<'_>, skip: usize) -> Result<usize, Fault> {
        self.inner.send(head, body, skip)
    }

    fn receive(
        &mut self,
        head: &mut [u8; HEAD],
        body: ViewMut<'_>,
        skip: usize,
    ) -> Result<usize, Fault> {
        let mut rest = body.len() - (skip - HEAD);
        if let Change::Cut { at } = self.change {
            rest = rest.min(at - self.arrived);
        }
        if rest == 0 {
            return Err(Fault::Closed);
        }
        let into = body.slice(skip - HEAD, rest);
        let received = self.inner.receive(head, into, HEAD)?;
        if let Change::Flip { at, bits } = self.change
            && (self.arrived..self.arrived + received).contains(&at)
        {
            let byte = into.slice(at - self.arrived, 1);
            byte.fill_from(&[byte.as_view().to_vec()[0] ^ bits]);
        }
        self.arrived += received;
        Ok(received)
    }

    fn finish(&mut self) {
        self.inner.finish();
    }
}

/// Sends `messages` and an end over a stream whose bytes are changed. Returns the messages that
/// arrived as a whole, and how the stream ended.
fn carry(messages: &[Message], change: Change) -> (Vec<Message>, Fault) {
    let [here, there] = channels();
    let (near, far) = mem::pair(1 << 20);
    let mut near = EncryptedStream::new(near, here);
    let far = Tampered { inner: far, arrived: 0, change };
    let mut far = EncryptedStream::new(far, there);
    for message in messages {
        let mut sent = 0;
        while sent < message.len() {
            sent += message.send(&mut near, sent).unwrap();
        }
    }
    drop(near);
    let deadline = TestDeadline::new();
    let mut arrived = Vec::new();
    loop {
        let len = messages.get(arrived.len()).map_or(0, |message| message.body.len());
        let mut into = Message::awaited(len);
        let mut received = 0;
        while received < into.len() {
            match into.receive(&mut far, received) {
                Ok(more) => received += more,
                Err(fault) => return (arrived, fault),
            }
            deadline.wait("a message or the end");
        }
        arrived.push(into);
    }
}

fn some_messages() -> Vec<Message> {
    [5, 0, 40_000, 17].into_iter().zip(0..).map(|(len, at)| Message::new(3, at, len)).collect()
}

/// Bytes of a frame beside those of its text: a length, the mark of the last frame, a tag.
const FRAME: usize = 2 + 1 + 16;
/// Bytes on the wire that a record has beside its own: two frames, of which one has two bytes.
const BESIDE: usize = 2 * FRAME + 2;

/// Bytes on the wire: records of at most 32 KiB and a head, and the goodbye.
fn wire_bytes(messages: &[Message]) -> usize {
    let records = |message: &Message| message.len().div_ceil(HEAD + (32 << 10));
    let all = messages.iter().map(|message| message.len() + BESIDE * records(message));
    all.sum::<usize>() + FRAME
}

#[test]
fn untouched_bytes_arrive_and_end_with_the_goodbye() {
    let messages = some_messages();
    // The places that the other tests draw are within the bytes of the stream.
    for change in [Change::Nothing, Change::Cut { at: wire_bytes(&messages) }] {
        let (arrived, end) = carry(&messages, change);
        assert_eq!(arrived, messages);
        assert!(matches!(end, Fault::Closed), "{end}");
    }
}

#[test]
fn a_change_anywhere_is_an_error_and_never_a_number_and_a_cut_is_no_end_of_the_peer() {
    let messages = some_messages();
    let all = wire_bytes(&messages);
    let mut random = Random(21);
    let drawn: Vec<usize> = (0..300).map(|_| random.next() as usize % all).collect();
    for at in (0..200).chain(all - 100..all).chain(drawn) {
        let bits = 1 << (random.next() % 8);
        for change in [Change::Flip { at, bits }, Change::Cut { at }] {
            let (arrived, end) = carry(&messages, change);
            let is_cut = matches!(change, Change::Cut { .. });
            let is_said =
                if is_cut { matches!(end, Fault::Cut) } else { matches!(end, Fault::Altered) };
            assert!(is_said, "{change:?}: {end}");
            assert_eq!(arrived, messages[..arrived.len()], "{change:?}");
        }
    }
}

#[test]
fn what_was_altered_stays_altered() {
    let [here, there] = channels();
    let (near, far) = mem::pair(1 << 10);
    let mut near = EncryptedStream::new(near, here);
    let change = Change::Flip { at: 5, bits: 1 };
    let mut far = EncryptedStream::new(Tampered { inner: far, arrived: 0, change }, there);
    for position in 0..3 {
        Message::new(5, position, 0).send(&mut near, 0).unwrap();
    }
    for _ in 0..3 {
        let received = Message::awaited(0).receive(&mut far, 0);
        assert!(matches!(received, Err(Fault::Altered)), "{received:?}");
    }
}

/// An attacker leaves whole records out, sends one twice, or one instead of another.
#[test]
fn a_whole_record_that_is_dropped_repeated_or_replaced_is_an_error() {
    let messages = [0, 1, 2, 3].map(|position| Message::new(8, position, 100));
    for (sent, whole) in [
        (&[0, 1, 2, 3][..], 4),
        (&[1, 2], 0),
        (&[0, 2, 3], 1),
        (&[0, 0, 1], 1),
        (&[0, 1, 1, 3], 2),
        (&[1, 0], 0),
    ] {
        let [here, there] = channels();
        let (near, mut tap) = mem::pair(1 << 10);
        let mut near = EncryptedStream::new(near, here);
        let records = messages.each_ref().map(|message| {
            assert_eq!(message.send(&mut near, 0).unwrap(), message.len());
            receive_all(&mut tap, 100 + BESIDE)
        });
        let (mut tap, far) = mem::pair(1 << 10);
        let mut far = EncryptedStream::new(far, there);
        sent.iter().for_each(|nth: &usize| send_all(&mut tap, &records[*nth]));
        messages[..whole]
            .iter()
            .for_each(|message| assert!(receive_all(&mut far, 100) == *message));
        let next = Message::awaited(100).receive(&mut far, 0);
        let is_altered = matches!(next, Err(Fault::Altered));
        assert!(is_altered || whole == sent.len(), "{sent:?}: {next:?}");
    }
}

#[test]
fn equal_messages_have_different_bytes_that_hide_them() {
    let [here, _] = channels();
    let (near, mut far) = mem::pair(1 << 10);
    let mut near = EncryptedStream::new(near, here);
    let pattern = b"ribbon ribbon ribbon ribbon";
    let mut wires = Vec::new();
    for _ in 0..3 {
        near.send(&[0; HEAD], View::of(pattern), 0).unwrap();
        let mut wire = Message::awaited(HEAD + pattern.len() + BESIDE - HEAD);
        assert_eq!(wire.receive(&mut far, 0).unwrap(), wire.len());
        wires.push(wire.bytes());
    }
    assert!(wires[0] != wires[1] && wires[1] != wires[2] && wires[0] != wires[2]);
    for wire in wires {
        assert!(wire.windows(6).all(|six| six != b"ribbon"));
    }
}

/// A partly sent record continues where it stopped, and the end follows it.
#[test]
fn an_end_waits_for_what_the_link_has_not_taken() {
    let [here, there] = channels();
    let (near, far) = mem::pair(30);
    let mut near = EncryptedStream::new(near, here);
    let mut far = EncryptedStream::new(far, there);
    let message = Message::new(7, 0, 100);
    assert_eq!(message.send(&mut near, 0).unwrap(), 0, "a record does not fit");
    near.finish();
    assert!(near.unsent() > 100);
    let deadline = TestDeadline::new();
    let mut into = Message::awaited(100);
    let mut received = 0;
    while received < message.len() {
        received += into.receive(&mut far, received).unwrap();
        // Receiving also sends the rest of the record.
        assert_eq!(Message::awaited(0).receive(&mut near, 0).unwrap(), 0);
        deadline.wait("the record");
    }
    assert_eq!(into, message);
    loop {
        match Message::awaited(0).receive(&mut far, 0) {
            Ok(0) => assert_eq!(Message::awaited(0).receive(&mut near, 0).unwrap(), 0),
            Err(Fault::Closed) => break,
            other => panic!("{other:?}"),
        }
        deadline.wait("the goodbye");
    }
    assert_eq!(near.unsent(), 0);
}

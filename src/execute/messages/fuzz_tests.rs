//! Arbitrary frames on both kinds of link, and arbitrary bytes.
//!
//! An input is a list of frames: four bytes (kind of frame, element type, tag, length of the body),
//! eight bytes for the number, and the body. The reader adds the checksum, without which nearly all
//! inputs would be refused at their first frame.

use super::batch::MessageBatch;
use super::frame::{Frame, parity};
use super::incoming::IncomingLink;
use super::message::MessageMemory::{Data, Room};
use super::outgoing::OutgoingLink;
use super::posted::Posted;
use super::requests::MessageRequests;
use crate::execute::AnyStream;
use crate::fuzz::Fuzz;
use maypole_kernels::{DataType, View, ViewMut};
use maypole_transports::{HEAD, Mem, Stream, mem};

/// Bytes of a frame in an input, without its body.
const RECORD: usize = 12;
/// Buffer space for the replies of a link.
const ANSWERS: usize = 64 << 10;

/// The bytes on the wire of an input.
fn wire(mut input: &[u8]) -> Vec<u8> {
    let mut wire = Vec::new();
    while let Some((record, rest)) = input.split_first_chunk::<RECORD>() {
        let mut head = [0; HEAD];
        head[..2].copy_from_slice(&record[..2]);
        head[4] = record[2];
        head[8..].copy_from_slice(&record[4..]);
        let check = parity(u128::from_le_bytes(head)).to_le_bytes();
        head[2..4].copy_from_slice(&check);
        let (body, rest) = rest.split_at(rest.len().min(usize::from(record[3])));
        wire.extend(head);
        wire.extend(body);
        input = rest;
    }
    wire
}

/// One frame of an input.
fn record(frame: u8, tag: u8, number: u64, body: &[u8]) -> Vec<u8> {
    let kind = DataType::U8 as u8;
    [&[frame, kind, tag, body.len() as u8][..], &number.to_le_bytes(), body].concat()
}

/// Both ends of a stream, on whose near end all of `bytes` have been sent.
fn stream(bytes: &[u8]) -> (Mem, AnyStream) {
    let (mut near, far) = mem::pair(bytes.len().max(ANSWERS));
    if !bytes.is_empty() {
        assert_eq!(near.send(&[0; HEAD], View::of(bytes), HEAD).unwrap(), bytes.len());
    }
    (near, AnyStream::Mem(far))
}

/// Lets a receiver read `bytes`, for receives of several lengths, types and tags.
fn receive(bytes: &[u8]) -> String {
    let (_near, far) = stream(bytes);
    let mut link = IncomingLink::new(0, far, true);
    let mut small = [0u8; 3];
    let mut exact = [0u8; 20];
    let mut any = [0u64; 9];
    let mut batch = MessageBatch::default();
    batch.add(Room(ViewMut::of(&mut small)), DataType::U8, Some(0), 1);
    batch.add(Room(ViewMut::of(&mut exact)), DataType::U8, Some(0), 2);
    batch.add(Room(ViewMut::of(&mut any)), DataType::U64, None, 3);
    let mut posted = Posted { batch: &mut batch, requests: &mut MessageRequests::default() };
    // Each turn takes a frame, and a frame has a head.
    for _ in 0..=bytes.len() / HEAD + 1 {
        if !link.drive(&mut posted) {
            break;
        }
    }
    let states: Vec<_> = batch.messages.iter().map(|message| message.head.state).collect();
    format!("{:?} {states:?}", link.carrier.fault.as_ref().map(ToString::to_string))
}

/// Lets a sender read `bytes` as the replies to messages that it has posted.
fn send(bytes: &[u8]) -> String {
    let (_near, far) = stream(bytes);
    let mut link = OutgoingLink::new(far, None);
    let long = vec![7u8; 20_000];
    let mut batch = MessageBatch::default();
    batch.add(Data(View::of(&long[..100])), DataType::U8, Some(0), 1);
    batch.add(Data(View::of(&long)), DataType::U8, Some(0), 1);
    batch.add(Data(View::of(&long)), DataType::U8, Some(0), 2);
    let mut posted = Posted { batch: &mut batch, requests: &mut MessageRequests::default() };
    for at in 0..3 {
        link.post(at, &mut posted);
    }
    for _ in 0..=bytes.len() / HEAD + 4 {
        if !link.drive(&mut posted, false) {
            break;
        }
    }
    let complete: Vec<_> = batch.messages.iter().map(|message| message.head.is_over()).collect();
    format!("{:?} {complete:?}", link.carrier.fault.as_ref().map(ToString::to_string))
}

/// Well-formed dialogues.
fn frames() -> Vec<Vec<u8>> {
    let eager = record(1, 2, 20, &[5; 20]);
    let announced = record(2, 2, 20, &[]);
    let data = record(3, 0, 0, &[6; 20]);
    vec![
        [record(1, 1, 3, &[1, 2, 3]), eager.clone()].concat(),
        [announced, data].concat(),
        [record(6, 0, 30, &[9; 30]), eager, record(7, 0, 0, &[])].concat(),
        [record(4, 0, 1, &[]), record(5, 0, 164, &[])].concat(),
        [record(4, 0, 2, &[]), record(4, 0, 1, &[])].concat(),
        [record(8, 0, 1, &[]), record(4, 0, 2, &[])].concat(),
    ]
}

#[test]
fn frames_to_a_receiver() {
    Fuzz::new("frames").corpus(frames()).memory(512 << 10, 64).run(|input| receive(&wire(input)));
}

#[test]
fn frames_to_a_sender() {
    Fuzz::new("replies").corpus(frames()).memory(512 << 10, 64).run(|input| send(&wire(input)));
}

#[test]
fn any_bytes_on_a_link() {
    let corpus = frames().into_iter().map(|input| wire(&input));
    Fuzz::new("links").corpus(corpus).memory(512 << 10, 64).run(|input| {
        let first = input.first_chunk::<HEAD>().and_then(|head| Frame::from_bytes(*head));
        format!("{:?} {} {}", first.is_some(), receive(input), send(input))
    });
}

//! Bytes and values whose length is not an argument on every rank.

use crate::common::SeededRng;
use crate::spawn::{as_told, everywhere};
use maypole::{Communicator, Error};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
enum Setting {
    Off,
    Rate(f64),
    Layers(Vec<(u16, String)>),
    Table(BTreeMap<String, Option<i64>>),
}

fn setting(rng: &mut SeededRng) -> Setting {
    let word = |rng: &mut SeededRng| format!("{:x}", rng.next_u64() >> rng.below(60));
    match rng.below(4) {
        0 => Setting::Off,
        1 => Setting::Rate(rng.next_u64() as f64),
        2 => Setting::Layers(
            (0..rng.below(300)).map(|_| (rng.next_u64() as u16, word(rng))).collect(),
        ),
        _ => Setting::Table(
            (0..rng.below(300)).map(|_| (word(rng), Some(rng.next_u64() as i64))).collect(),
        ),
    }
}

/// A value that cannot be serialized.
#[derive(Debug, Deserialize)]
struct Unwritable;

impl Serialize for Unwritable {
    fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("never"))
    }
}

fn bytes(comm: &mut Communicator) {
    let mut rng = SeededRng::new(5);
    for (nth, len) in
        [0, 1, 39, 40, 41, 64, 65, 1000, 70_000, (3 << 20) + 1].into_iter().enumerate()
    {
        let root = nth % comm.world();
        let all: Vec<u8> = (0..len).map(|_| rng.next_u64() as u8).collect();
        // The values of others are ignored.
        let mine = if comm.rank() == root { all.clone() } else { vec![1; nth * comm.rank()] };
        assert!(comm.broadcast_bytes(mine, root).unwrap() == all, "{len} bytes");
    }
}

fn values(comm: &mut Communicator) {
    let (rank, world) = (comm.rank(), comm.world());
    let mut rng = SeededRng::new(6);
    for round in 0..12 {
        let all: Vec<Setting> = (0..world).map(|_| setting(&mut rng)).collect();
        let root = round % world;
        let mine = (rank == root || round == 3).then(|| all[rank].clone());
        assert_eq!(comm.broadcast_value(mine, root).unwrap(), all[root]);
        assert_eq!(comm.all_gather_values(&all[rank]).unwrap(), all);
    }
    assert_eq!(comm.all_gather_values(&()).unwrap(), vec![(); world]);
}

/// The error of `result`, which must be harmless.
fn harmless<T>(result: Result<T, Error>) -> Error {
    let Err(error) = result else { panic!("no error") };
    assert!(error.is_harmless(), "{error}");
    error
}

/// A value that cannot be serialized or deserialized is a harmless error.
fn wrong(comm: &mut Communicator) {
    let rank = comm.rank();
    let world = comm.world();
    let error = harmless(comm.broadcast_value::<u8>(None, 0));
    let why = if rank == 0 {
        "the root brings no value"
    } else {
        "rank 0 brings a value that it could not serialize"
    };
    assert_eq!(error.to_string(), format!("rank {rank}: broadcast_value: {why}"));

    let error = harmless(comm.broadcast_value((rank == 0).then_some(Unwritable), 0));
    assert!(matches!(error, Error::Value { peer: 0, .. }), "{error:?}");
    let error = harmless(if rank == 0 {
        comm.all_gather_values(&Unwritable).map(drop)
    } else {
        comm.all_gather_values(&7u8).map(drop)
    });
    assert!(matches!(error, Error::Value { peer: 0, .. }), "{error:?}");
    assert!(harmless(comm.broadcast_value(Some(1u8), world)).to_string().contains("is not one of"));

    // Rank 0 sends a text. The other ranks expect a shorter type, and then another type.
    if rank == 0 {
        comm.broadcast_value(Some("a text".to_owned()), 0).unwrap();
        comm.broadcast_value(Some("a text".to_owned()), 0).unwrap();
    } else {
        let error = harmless(comm.broadcast_value::<u8>(None, 0));
        let why = "brings bytes that are not a value of the type asked for: 6 of its 7 bytes are \
                   left over";
        assert_eq!(error.to_string(), format!("rank {rank}: broadcast_value: rank 0 {why}"));
        let error = harmless(comm.broadcast_value::<[Option<u64>; 4]>(None, 0));
        assert!(
            matches!(&error, Error::Value { peer: 0, why, .. }
                if why.contains("not a value of the type")),
            "{error}"
        );
    }
    comm.barrier().unwrap();
}

fn everything(mut comm: Communicator) {
    bytes(&mut comm);
    values(&mut comm);
    wrong(&mut comm);
    values(&mut comm);
    comm.close().unwrap();
}

pub(crate) fn rank_process(role: &str) {
    as_told(role, everything);
}

#[test]
fn values_of_threads_and_processes() {
    everywhere(everything);
}

/// Rank 1 reads the bytes of another call as a length, which is more than any memory has.
#[test]
fn a_length_that_no_memory_has_is_an_error_on_both_ranks() {
    let errors = Communicator::run_local(2, |mut comm| {
        if comm.rank() == 1 {
            return comm.broadcast_bytes(Vec::new(), 0).unwrap_err();
        }
        let mut header = [0x7f_u8; 48];
        comm.broadcast(&mut header, 0).unwrap();
        // The other rank aborts; its cause arrives with one of the next calls.
        loop {
            if let Err(error) = comm.barrier() {
                return error;
            }
        }
    });
    for error in errors {
        let text = error.to_string();
        assert!(text.contains("rank 1 has no memory for the 9223372036854775808 bytes"), "{text}");
        assert!(matches!(error, Error::Aborted { .. }) && !error.is_retryable(), "{text}");
        assert_eq!(error.culprit(), Some(1));
    }
}

//! Arbitrary messages on control connections.

use super::message::{ControlRequest, ExchangePurpose, ExchangeRound, Notice};
use super::{Cause, GroupId};
use crate::fuzz::Fuzz;
use crate::wire::{decode, encode};

/// For a list that claims to be long the decoder allocates up to 1 MiB, and lists may be nested.
const MEMORY: (usize, usize) = (4 << 20, 100);

fn kind<T: std::fmt::Debug>(message: Option<T>) -> String {
    let Some(message) = message else { return "no message".to_owned() };
    // The name of the variant.
    let shown = format!("{message:.0?}");
    shown.split(|letter: char| !letter.is_alphanumeric()).next().unwrap_or_default().to_owned()
}

fn round() -> ExchangeRound {
    let group = GroupId { parent_epoch: 3, counter: 1 };
    let purpose = ExchangePurpose::Operation;
    ExchangeRound { group, purpose, members: vec![0, 2, 5], number: 7 }
}

fn cause() -> Cause {
    Cause::death(1, "it lost its way")
}

#[test]
fn requests_to_rank_0() {
    let corpus = [
        encode(&ControlRequest::Heartbeat),
        encode(&ControlRequest::Abort(cause())),
        encode(&ControlRequest::Contribute { round: round(), payload: vec![1; 40] }),
        encode(&ControlRequest::AskMissing { round: round() }),
        encode(&ControlRequest::ProcessEnded { rank: 3 }),
    ];
    let fuzz = Fuzz::new("requests").corpus(corpus).memory(MEMORY.0, MEMORY.1);
    fuzz.run(|bytes| kind(decode::<ControlRequest>(bytes).ok()));
}

#[test]
fn notices_of_rank_0() {
    let corpus = [
        encode(&Notice::Heartbeat),
        encode(&Notice::Abort(cause())),
        encode(&Notice::Exchanged { round: round(), payloads: vec![vec![1; 9], vec![], vec![2]] }),
        encode(&Notice::Incomplete { round: round(), rank: 5 }),
        encode(&Notice::Missing { round: round(), ranks: vec![2, 5] }),
        encode(&Notice::Left { rank: 1 }),
        encode(&Notice::Farewell),
    ];
    let fuzz = Fuzz::new("notices").corpus(corpus).memory(MEMORY.0, MEMORY.1);
    fuzz.run(|bytes| kind(decode::<Notice>(bytes).ok()));
}

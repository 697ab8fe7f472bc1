//! What ranks say to one another on their control connections.

use super::{Cause, GroupId, ProgressReport};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The longest message of a rank that has not joined yet.
pub(crate) const MAX_JOIN_MESSAGE: usize = 64 << 10;
/// The longest message afterwards.
pub(crate) const MAX_MESSAGE: usize = 16 << 20;

/// One round of an exchange, the same for all its members.
#[derive(Clone, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub(crate) struct ExchangeRound {
    pub(crate) group: GroupId,
    pub(crate) members: Vec<usize>,
    pub(crate) number: u64,
}

/// From a member to rank 0.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) enum ControlRequest {
    /// I live.
    Beat,
    /// This happened; tell everybody.
    Abort(Cause),
    /// My part of an exchange.
    Offer { round: ExchangeRound, payload: Vec<u8> },
    /// Whose part of this exchange is missing?
    Who { round: ExchangeRound },
    /// Where is everybody?
    Survey { id: u64, group: GroupId },
    /// An answer to [`Notice::Ask`].
    Answer { survey: u64, place: ProgressReport },
    /// The process of this rank has ended, as its host tells me.
    Ended { rank: usize },
    /// I leave after this operation.
    Goodbye { last: u64 },
}

/// From rank 0 to a member.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) enum Notice {
    /// I live.
    Beat,
    /// The first cause known so far.
    Abort(Cause),
    /// Everybody's part of an exchange.
    Gathered { round: ExchangeRound, payloads: Vec<Vec<u8>> },
    /// An exchange will never complete, because this rank left.
    Unmet { round: ExchangeRound, rank: usize },
    /// Whose part of an exchange is missing.
    Missing { round: ExchangeRound, ranks: Vec<usize> },
    /// Where are you?
    Ask { survey: u64, group: GroupId },
    /// Where everybody is who answered.
    Surveyed { id: u64, places: Vec<Option<ProgressReport>> },
    /// This rank left after this operation.
    Left { rank: usize, last: u64 },
    /// Your goodbye was heard.
    Farewell,
}

pub(crate) fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    postcard::to_stdvec(message).expect("messages are plain data")
}

/// `None` if the bytes are no such message, or have something after it.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Some(message),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn messages_survive_the_wire() {
        let round = ExchangeRound {
            group: GroupId { parent_epoch: 1, counter: 2 },
            members: vec![0, 3],
            number: 9,
        };
        let sent = Notice::Gathered { round: round.clone(), payloads: vec![vec![1], vec![]] };
        let Some(Notice::Gathered { round: got, payloads }) = decode(&encode(&sent)) else {
            panic!("another message")
        };
        assert_eq!((got, payloads), (round, vec![vec![1], vec![]]));
        assert!(decode::<Notice>(&[&encode(&sent)[..], &[0]].concat()).is_none());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_none(bytes in prop::collection::vec(any::<u8>(), 0..500)) {
            let _ = decode::<ControlRequest>(&bytes);
            let _ = decode::<Notice>(&bytes);
        }

        #[test]
        fn a_length_that_lies_costs_nothing(variant in 0u8..10, bytes in prop::collection::vec(200u8.., 0..40)) {
            // Every `Vec` in these claims about 2^60 elements.
            let lie = [&[variant][..], &bytes].concat();
            let _ = decode::<ControlRequest>(&lie);
            let _ = decode::<Notice>(&lie);
        }
    }
}

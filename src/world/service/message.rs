//! The messages on control connections, between rank 0 and every other rank.

use super::{Cause, GroupId};
use crate::world::calls::GroupStatus;
use serde::{Deserialize, Serialize};

/// Most bytes of a message from a rank that has not joined yet.
pub(crate) const MAX_JOIN_MESSAGE: usize = 64 << 10;
/// Most bytes of a message from a rank that has joined.
pub(crate) const MAX_MESSAGE: usize = 16 << 20;

/// The purpose of an exchange. Exchanges for different purposes are numbered apart, so that ranks
/// in different calls do not mix their parts.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub(crate) enum ExchangePurpose {
    /// An operation of the group.
    Operation,
    /// Distributing shared memory.
    SharedMemory,
}

/// One exchange, equal on all its members.
#[derive(Clone, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub(crate) struct ExchangeRound {
    pub(crate) group: GroupId,
    pub(crate) purpose: ExchangePurpose,
    pub(crate) members: Vec<usize>,
    pub(crate) number: u64,
}

/// The rank whose status is requested.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) enum AskedRank {
    /// This rank of the world.
    World(usize),
    /// A rank whose part is missing in the exchange that the sender waits for.
    Missing,
}

/// A request for a rank's status in a group.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct StatusQuestion {
    /// Distinguishes the sender's requests; zero if no thread waits for the reply.
    pub(crate) token: u64,
    pub(crate) group: GroupId,
    /// The request covers the calls before this operation.
    pub(crate) end: u64,
}

/// A message from any rank to rank 0.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) enum ControlRequest {
    /// Sign of life.
    Heartbeat,
    /// A failure for rank 0 to broadcast.
    Abort(Cause),
    /// The sender's part of an exchange.
    Contribute { round: ExchangeRound, payload: Vec<u8> },
    /// Requests the ranks whose part of an exchange is missing.
    AskMissing { round: ExchangeRound },
    /// The process of this rank has ended, as the kernel of the sender's host reports.
    ProcessEnded { rank: usize },
    /// The sender leaves after this operation, with its last calls in each of its groups. A patient
    /// sender waits for the confirmation until the others have done the same operations.
    Goodbye { last: u64, calls: Vec<GroupStatus>, patient: bool },
    /// Requests the status of a rank.
    AskStatus { of: AskedRank, question: StatusQuestion },
    /// The reply to [`Notice::AskStatus`]; `None` if the sender is not in the group.
    TellStatus { to: Option<usize>, question: StatusQuestion, status: Option<GroupStatus> },
}

/// A message from rank 0 to any rank.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) enum Notice {
    /// Sign of life.
    Heartbeat,
    /// The least cause so far.
    Abort(Cause),
    /// All parts of an exchange.
    Exchanged { round: ExchangeRound, payloads: Vec<Vec<u8>> },
    /// An exchange that cannot complete, because this rank has left.
    Incomplete { round: ExchangeRound, rank: usize },
    /// The ranks whose part of an exchange is missing.
    Missing { round: ExchangeRound, ranks: Vec<usize> },
    /// This rank has left.
    Left { rank: usize },
    /// Confirms the receiver's goodbye.
    Farewell,
    /// Requests the receiver's status, for rank `asker`, or for rank 0 as the coordinator.
    AskStatus { asker: Option<usize>, question: StatusQuestion },
    /// The status of `rank`; `None` if it is unknown.
    Status { rank: Option<usize>, question: StatusQuestion, status: Option<GroupStatus> },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{decode, encode};
    use proptest::prelude::*;

    #[test]
    fn messages_survive_the_wire() {
        let round = ExchangeRound {
            group: GroupId { parent_epoch: 1, counter: 2 },
            purpose: ExchangePurpose::Operation,
            members: vec![0, 3],
            number: 9,
        };
        let sent = Notice::Exchanged { round: round.clone(), payloads: vec![vec![1], vec![]] };
        let Ok(Notice::Exchanged { round: got, payloads }) = decode(&encode(&sent)) else {
            panic!("another message")
        };
        assert_eq!((got, payloads), (round, vec![vec![1], vec![]]));
        assert!(decode::<Notice>(&[&encode(&sent)[..], &[0]].concat()).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_none(bytes in prop::collection::vec(any::<u8>(), 0..500)) {
            let _ = decode::<ControlRequest>(&bytes);
            let _ = decode::<Notice>(&bytes);
        }

        #[test]
        fn a_false_length_allocates_nothing(
            variant in 0u8..10,
            bytes in prop::collection::vec(200u8.., 0..40),
        ) {
            // Every `Vec` in these claims about 2^60 elements.
            let lie = [&[variant][..], &bytes].concat();
            let _ = decode::<ControlRequest>(&lie);
            let _ = decode::<Notice>(&lie);
        }
    }
}

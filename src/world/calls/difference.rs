//! The two first causes that ranks find out by comparing what they do. All ranks of the group are
//! told the same cause, field by field.

use super::CallRecord;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// The first two calls that do not match. Equal on all ranks of the group.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[non_exhaustive]
pub struct CallMismatch {
    /// The number of the operation: how many operations of the group came before it.
    pub sequence: u64,
    /// The calls of two ranks. Where one rank receives a message that it did not expect, that rank
    /// comes first; else the lower rank comes first.
    pub calls: [RankCall; 2],
    /// The arguments that differ, in words, such as `algorithm (ring, tree)`. `None` if other
    /// things were called.
    pub difference: Option<String>,
}

/// What one rank called.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[non_exhaustive]
pub struct RankCall {
    /// The rank, as numbered in the group.
    pub rank: usize,
    /// The call in words.
    pub call: String,
}

/// The first deadline that passed. Equal on all ranks of the group.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[non_exhaustive]
pub struct MissedDeadline {
    /// The number of the operation: how many operations of the group came before it.
    pub sequence: u64,
    /// The rank whose deadline passed.
    pub waiter: usize,
    /// The rank that it waited for; `None` if a message of any rank would do.
    pub peer: Option<usize>,
    /// The call of `waiter`.
    pub operation: String,
    /// The number of the fold in the program, or of the message in its group.
    pub step: usize,
    /// How long `waiter` had.
    pub after: Duration,
    /// What the ranks report about themselves.
    pub detail: Option<String>,
    /// The rank that holds the others up: the end of the chain of waits that begins at `peer`.
    pub culprit: Option<usize>,
}

impl CallMismatch {
    pub(crate) fn new(
        sequence: u64,
        calls: [(usize, &str); 2],
        difference: Option<String>,
    ) -> Self {
        let calls = calls.map(|(rank, call)| RankCall { rank, call: call.to_owned() });
        Self { sequence, calls, difference }
    }

    /// The calls of two ranks, the lower rank first.
    pub(crate) fn between(
        sequence: u64,
        one: (usize, &CallRecord),
        other: (usize, &CallRecord),
    ) -> Self {
        let [low, high] = if one.0 < other.0 { [one, other] } else { [other, one] };
        let difference = low.1.difference(high.1);
        Self::new(sequence, [(low.0, &*low.1.call), (high.0, &*high.1.call)], difference)
    }

    /// True if the sentence of the mismatch tells what `rank` called as operation `sequence`.
    pub(crate) fn tells(&self, rank: usize, sequence: u64) -> bool {
        self.sequence == sequence && self.calls.iter().any(|call| call.rank == rank)
    }
}

impl fmt::Display for CallMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sequence, calls: [one, other], difference } = self;
        write!(
            f,
            "ranks do not match: rank {} calls {} as operation {sequence}, but rank {} calls {}",
            one.rank, one.call, other.rank, other.call
        )?;
        match difference {
            Some(difference) => write!(f, "; they differ in {difference}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for MissedDeadline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { waiter, operation, sequence, step, .. } = self;
        write!(f, "rank {waiter} waited {} s for ", self.after.as_secs_f64())?;
        match self.peer {
            Some(peer) => write!(f, "rank {peer} in step {step} of {operation}")?,
            None => write!(f, "a message of any rank in {operation}")?,
        }
        write!(f, " (operation {sequence})")?;
        match &self.detail {
            Some(detail) => write!(f, "; {detail}"),
            None => Ok(()),
        }
    }
}

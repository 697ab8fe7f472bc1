//! The calls of the ranks of a group: the record of a rank's own calls, the comparison of two
//! ranks' records, and the error on all ranks when calls do not match. [`RankStatus`] is the one
//! record of a rank's activity, for every reader.
//!
//! A call is data here ([`CallRecord`]): a fingerprint of everything that the ranks must agree on,
//! and the same in words. Equal calls in a row are one entry, so a program that repeats a call
//! writes nothing here: see [`GroupActivity`].
//!
//! After a long wait, a rank requests the awaited rank's call of the same number, and compares
//! fingerprints. This detects mismatches that no message shows: a deadlock of two ranks, an
//! exchange against a collective, a broadcast with different roots. The reply also contains whether
//! that rank has left the group. A goodbye contains the last calls, and a rank that closes waits
//! until the others have made as many.

mod activity;
mod difference;
mod history;
mod numbered;
mod pulse;
mod record;
mod status;
mod text;

pub use activity::{GroupActivity, MissedOperation, PendingWait, WaitTarget};
pub use difference::{CallMismatch, MissedDeadline, RankCall};
pub use history::{CallHistory, CallRun, RUNS_KEPT};
pub use pulse::Pulse;
pub use record::CallRecord;
use serde::{Deserialize, Serialize};
pub use status::{GroupStatus, NetworkStatus, PendingOperation, RankStatus, RecentCalls};

/// The number of a group of ranks: equal on all its members, and different for every group.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize,
)]
pub struct GroupId {
    /// Distinguishes groups of different parents; equal on all members.
    pub parent_epoch: u64,
    /// The number of the group among those of its parent.
    pub counter: u64,
}

impl GroupId {
    /// The group of all ranks.
    pub const WORLD: Self = Self { parent_epoch: 0, counter: 0 };

    pub(crate) fn words(self) -> [u64; 2] {
        [self.parent_epoch, self.counter]
    }
}

//! Why a world cannot go on. Causes are totally ordered, so that all ranks name the same first one.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What kind of failure, in the order in which causes are told from consequences.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub enum CauseKind {
    /// A process is gone.
    Death,
    /// A rank's program asked for the end.
    UserAbort,
    /// Ranks called different things.
    Mismatch,
    /// A deadline passed.
    Timeout,
}

/// A failure as it is told to all ranks; the least one is the first cause.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct Cause {
    /// The operation it happened in. A death that the control plane noticed precedes everything:
    /// zero.
    pub sequence: u64,
    /// What kind of failure.
    pub kind: CauseKind,
    /// Whose: of a death, who died; otherwise who noticed.
    pub rank: usize,
    /// What to tell the user.
    pub text: String,
    /// The rank to look at first; `None` if no single rank can be named.
    pub culprit: Option<usize>,
}

impl Cause {
    /// The death of `rank`, as the control plane notices it. Equal on all ranks.
    pub(crate) fn death(rank: usize, how: &str) -> Self {
        let text = format!("rank {rank} died: {how}");
        Self { sequence: 0, kind: CauseKind::Death, rank, text, culprit: Some(rank) }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Which group of ranks: equal on all its members, and new for every group.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize,
)]
pub struct GroupId {
    /// Tells the parents apart; the maker of a group chooses it, equally on all members.
    pub parent_epoch: u64,
    /// Which group of that parent.
    pub counter: u64,
}

impl GroupId {
    /// The group of all ranks.
    pub const WORLD: Self = Self { parent_epoch: 0, counter: 0 };

    pub(crate) fn words(self) -> [u64; 2] {
        [self.parent_epoch, self.counter]
    }
}

//! What a rank is doing, for people and tools that look for the reason of a hang.
//!
//! | question | answer |
//! |---|---|
//! | what does this rank do now? | [`Communicator::status`](crate::Communicator::status), from another thread [`StatusHandle`] |
//! | the same, of a program that hangs | the signal that `MAYPOLE_STATUS_SIGNAL` names prints it |
//! | what did it do before it failed? | a file in the directory that `MAYPOLE_REPORT` names |
//! | what do all ranks do? | `maypole run` makes one page of all: see its `--help` |
//!
//! Nothing of this costs a repeated call anything. A rank notes a call when it differs from the one
//! before, and a wait when it has become slow.

pub(crate) mod collect;
mod file;
pub(crate) mod server;
mod text;

use crate::control::Control;
use crate::world::calls::done_words;
pub(crate) use file::report_failure;
use maypole_transports::OwnerProcess;
use serde::{Deserialize, Serialize};
#[doc(hidden)]
pub use server::StatusMessage;
use std::fmt;
use std::sync::{Arc, Weak};

/// What one rank is doing, in each of its groups. `Display` prints it in plain words.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RankStatus {
    /// The rank, as numbered in the world.
    pub rank: usize,
    /// How many ranks the world has.
    pub world: usize,
    /// The number of the rank's process.
    pub process: u32,
    /// When this was written, in seconds since 1970.
    pub unix_seconds: f64,
    /// The groups that the rank is in. The world comes first.
    pub groups: Vec<GroupStatus>,
    /// What the control plane has seen.
    pub network: NetworkStatus,
    /// Why the rank's world has failed; `None` while it works.
    pub failure: Option<String>,
}

/// What a rank is doing in one group.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[non_exhaustive]
pub struct GroupStatus {
    /// The members: ranks of the world, by rank in the group.
    pub members: Vec<usize>,
    /// This rank, as numbered in the group.
    pub rank: usize,
    /// How many operations of the group this rank has ended.
    pub completed: u64,
    /// How many messages between this rank and another one are over.
    pub messages: u64,
    /// The operation of the group, or the message, that the rank is in.
    pub pending: Option<PendingOperation>,
    /// The last calls, the oldest first; at most 1000 entries. Equal calls in a row are one entry.
    pub recent: Vec<RecentCalls>,
}

/// An operation that has begun and not ended.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PendingOperation {
    /// How many operations of the group came before it.
    pub sequence: u64,
    /// The call in words.
    pub call: String,
    /// A hash of everything that the ranks must agree on in the call; zero for a message between two
    /// ranks.
    pub fingerprint: u64,
    /// The rank that it waits for, as numbered in the group; `None` if it has not waited for long,
    /// or if it waits for any rank.
    pub awaits: Option<usize>,
    /// The number of the fold in the program that waits.
    pub step: usize,
    /// For how many seconds the operation has been waiting; `None` if it has not waited for long.
    pub waiting_seconds: Option<f64>,
    /// True of a request that no thread of the rank waits for: the rank computes meanwhile.
    pub in_background: bool,
    /// Bytes of the vector, or of all blocks together.
    pub bytes: u64,
    /// How many of them belong to windows that are done.
    pub bytes_done: u64,
}

impl RankStatus {
    /// True while the rank is in a call of the library in any group, and does nothing else.
    pub fn is_inside(&self) -> bool {
        let mut pending = self.groups.iter().filter_map(|group| group.pending.as_ref());
        pending.any(|pending| !pending.in_background)
    }
}

impl GroupStatus {
    /// What the rank does that is in no operation of this group, in words; `is_inside`: it is in a
    /// call in another group.
    pub fn absence(&self, is_inside: bool) -> String {
        let last = self.recent.last().map(|calls| calls.call.as_str());
        let done = done_words(self.completed, self.messages, last);
        match (is_inside, done.is_empty()) {
            (true, true) => "in a call in another group".to_owned(),
            (true, false) => format!("in a call in another group, here {done}"),
            (false, true) => "has called nothing yet".to_owned(),
            (false, false) => format!("outside the library {done}"),
        }
    }
}

/// Equal calls in a row.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RecentCalls {
    /// The number of the first one.
    pub first: u64,
    /// How many there are.
    pub count: u64,
    /// The call in words.
    pub call: String,
    /// What settings or the tuner chose for it: names and values.
    pub choices: Vec<(String, String)>,
    /// How many seconds ago the first one began.
    pub seconds_ago: f64,
}

/// What the control plane of a rank has seen.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub struct NetworkStatus {
    /// Connections that were refused because they did not prove the job's key.
    pub refused: u64,
    /// Connections that have not proved the job's key yet.
    pub half_open: usize,
    /// Ranks of the world that have left.
    pub left: Vec<usize>,
    /// Ranks of the world that were silent for 10 s or more. Rank 0 knows all of them, other ranks
    /// only rank 0.
    pub silent: Vec<usize>,
}

/// Tells the status of a rank from any thread, also while a call of the rank blocks. See
/// [`Communicator::status_handle`](crate::Communicator::status_handle).
#[derive(Clone)]
pub struct StatusHandle {
    control: Weak<dyn Control>,
    owner: OwnerProcess,
}

impl StatusHandle {
    pub(crate) fn new(control: &Arc<dyn Control>, owner: OwnerProcess) -> Self {
        Self { control: Arc::downgrade(control), owner }
    }

    /// Returns what the rank is doing; `None` once its communicator is gone, and in a forked child.
    pub fn status(&self) -> Option<RankStatus> {
        // A lock that another thread held during the fork stays locked in the child.
        let control = self.control.upgrade().filter(|_| self.owner.is_current())?;
        Some(collect::status(&*control))
    }
}

impl fmt::Debug for StatusHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatusHandle").finish_non_exhaustive()
    }
}

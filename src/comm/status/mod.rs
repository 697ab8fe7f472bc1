//! What a rank is doing, for people and tools that look for the reason of a hang.
//!
//! | question | answer |
//! |---|---|
//! | what does this rank do now? | [`Communicator::status`], from another thread [`StatusHandle`] |
//! | the same, of a program that hangs | the signal that `MAYPOLE_STATUS_SIGNAL` names prints it |
//! | what did it do before it failed? | a file in the directory that `MAYPOLE_REPORT` names |
//! | what do all ranks do? | `maypole run` makes one page of all: see its `--help` |
//!
//! Nothing of this costs a repeated call anything. A rank notes a call when it differs from the one
//! before, and a wait when it has become slow.

mod collect;
mod file;
pub(crate) mod server;
mod text;

use crate::comm::Communicator;
use crate::comm::control::Control;
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
/// [`Communicator::status_handle`].
#[derive(Clone)]
pub struct StatusHandle {
    control: Weak<dyn Control>,
    owner: OwnerProcess,
}

impl StatusHandle {
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

impl Communicator {
    /// Returns what this rank is doing in all of its groups: the operation that it is in and which
    /// rank that waits for, the last 1000 calls, and what the control plane has seen. Does not wait
    /// for requests in flight, and tells no other rank anything. In a forked child the status only
    /// says that the communicator was created before the fork.
    ///
    /// ```
    /// use maypole::{Communicator, ReduceOp};
    /// let said = Communicator::run_local(2, |mut comm| {
    ///     for _ in 0..5 {
    ///         comm.all_reduce(&mut [1.0f32; 8], ReduceOp::Sum).unwrap();
    ///     }
    ///     comm.barrier().unwrap();
    ///     let status = comm.status();
    ///     let world = &status.groups[0];
    ///     assert_eq!((world.completed, world.pending.is_none()), (6, true));
    ///     assert_eq!((world.recent[0].first, world.recent[0].count), (0, 5));
    ///     status.to_string()
    /// });
    /// assert!(said[0].contains("outside the library after 6 operations, the last of them barrier()"));
    /// ```
    pub fn status(&self) -> RankStatus {
        match self.engine.is_forked() {
            false => collect::status(&*self.engine.control),
            true => collect::status_of_child(self.rank(), self.world()),
        }
    }

    /// Returns a handle that tells the [status](Self::status) of this rank from other threads, also
    /// while a call blocks.
    ///
    /// ```
    /// use maypole::Communicator;
    /// use std::time::Duration;
    /// let mut comms = Communicator::local(2);
    /// let handle = comms[0].status_handle();
    /// std::thread::scope(|threads| {
    ///     // Rank 1 never calls.
    ///     let call = threads.spawn(|| comms[0].within(Duration::from_secs(5)).barrier());
    ///     let awaits = loop {
    ///         let status = handle.status().unwrap();
    ///         let pending = status.groups[0].pending.as_ref();
    ///         match pending.and_then(|pending| pending.awaits) {
    ///             Some(rank) => break rank,
    ///             None => assert!(!call.is_finished(), "{status}"),
    ///         }
    ///     };
    ///     assert_eq!(awaits, 1);
    /// });
    /// ```
    pub fn status_handle(&self) -> StatusHandle {
        StatusHandle { control: Arc::downgrade(&self.engine.control), owner: self.engine.owner() }
    }
}

//! What a rank is doing, for people and tools that look for the reason of a hang.
//!
//! | question | source |
//! |---|---|
//! | what does this rank do now? | [`Communicator::status`](crate::Communicator::status), also while requests are in flight |
//! | the same, of a program that hangs | the signal that `MAYPOLE_STATUS_SIGNAL` names prints it |
//! | what did it do before it failed? | a file in the directory that `MAYPOLE_REPORT` names |
//! | what do all ranks do? | `maypole run` makes one page of all: see its `--help` |
//!
//! Nothing of this costs a repeated call anything. A rank notes a call when it differs from the one
//! before, and a wait when it has become slow.

mod file;
pub(crate) mod server;

pub use crate::world::calls::{
    GroupStatus, NetworkStatus, PendingOperation, RankStatus, RecentCalls,
};
pub(crate) use file::report_failure;
#[doc(hidden)]
pub use server::StatusMessage;

//! What the ranks of a group have called: how a rank remembers its own calls, how two ranks compare
//! theirs, and what all ranks are told when the calls do not match.
//!
//! A call appears here as data ([`CallRecord`]): a fingerprint of everything that the ranks must
//! agree on, and the same in words. Equal calls in a row are one entry, so a program that repeats a
//! call writes nothing here: see [`GroupActivity`].

mod activity;
mod difference;
mod history;
mod pulse;
mod record;

pub use activity::{GroupActivity, PendingWait, WaitTarget};
pub use difference::{CallMismatch, MissedDeadline, RankCall};
pub use history::{CallExcerpt, CallHistory, CallRun, RUNS_KEPT};
pub use pulse::Pulse;
pub use record::CallRecord;

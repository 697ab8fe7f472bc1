//! The methods of `Communicator` that users call, one page for each subject.

mod collectives;
pub(crate) mod counters;
mod explain;
mod groups;
pub(crate) mod messages;
pub(crate) mod operation;
mod scans;
mod schedules;
pub(crate) mod settings;
mod trace;
mod values;
mod variable;

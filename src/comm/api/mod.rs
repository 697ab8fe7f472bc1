//! The methods of `Communicator` that users call, one page for each subject.

pub(crate) mod abort;
mod collectives;
mod groups;
pub(crate) mod messages;
pub(crate) mod observe;
pub(crate) mod operation;
mod registered;
mod scans;
mod schedules;
pub(crate) mod settings;
mod shrink;
mod values;
mod variable;

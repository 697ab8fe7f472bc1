//! The methods of `Communicator` that users call, one page for each subject.

mod collectives;
pub(crate) mod erased;
pub(crate) mod failure;
mod groups;
pub(crate) mod messages;
mod observe;
pub(crate) mod operation;
mod registered;
pub(crate) mod requests;
mod scans;
mod schedules;
pub(crate) mod settings;
mod values;
mod variable;

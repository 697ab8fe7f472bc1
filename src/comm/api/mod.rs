//! The methods of `Communicator` that users call, one page for each subject.

pub(crate) mod buffers;
mod collectives;
pub(crate) mod failure;
mod groups;
mod issue;
pub(crate) mod messages;
mod observe;
pub(crate) mod operation;
mod registered;
pub(crate) mod requests;
mod schedules;
pub(crate) mod settings;
pub(crate) mod slices;
mod values;
mod variable;

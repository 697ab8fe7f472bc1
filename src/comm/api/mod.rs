//! The methods of `Communicator` that users call, one page for each subject.

pub(crate) mod arguments;
mod collectives;
pub(crate) mod failure;
mod groups;
mod issue;
pub(crate) mod messages;
mod observe;
mod registered;
pub(crate) mod requests;
mod schedules;
pub(crate) mod settings;
mod values;
mod variable;

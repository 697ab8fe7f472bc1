//! Asynchronous calls: requests, messages, and the threads that run them.

pub(crate) mod handle;
pub(crate) mod messages;
pub(crate) mod outcome;
pub(crate) mod progress;
pub(crate) mod request;

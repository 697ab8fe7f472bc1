//! Calls that run while their caller does something else: requests, scopes and the thread that runs
//! them.

pub(crate) mod departures;
pub(crate) mod handle;
pub(crate) mod progress;
pub(crate) mod request;
pub(crate) mod scope;
mod starts;

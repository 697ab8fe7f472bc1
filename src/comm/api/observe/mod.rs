//! What a user can learn about calls: why they run as they do, what they moved, and when.

pub(crate) mod counters;
mod explain;
pub(crate) mod last_call;
pub(crate) mod programs;
mod trace;

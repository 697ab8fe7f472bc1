//! What a user can learn about calls: why they run as they do, what they moved, and when.

mod counters;
mod explain;
mod last_call;
mod programs;
mod status;
mod trace;

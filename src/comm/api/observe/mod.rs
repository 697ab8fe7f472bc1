//! What a user can learn about calls: why they run as they do, what they moved, and when.

mod calls;
mod explain;
mod status;
mod trace;

//! Observations of calls: reasons, traffic and times.

mod calls;
mod explain;
mod trace;

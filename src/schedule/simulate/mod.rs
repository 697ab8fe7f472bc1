//! The simulator of machines: predicts the time of the schedules of all ranks on cores and links.
//!
//! Within a host the bottleneck is not links but cores, which copy and combine every byte. A
//! [`MachineModel`] describes ranks that do this work on cores of their own or on shared ones. Windows
//! `0..W` run the same steps, each on an equal fraction of every chunk, in
//! [conflict order](crate::schedule::conflict), so that windows overlap. Time is counted in whole
//! picoseconds, so equal arguments give equal results on all hosts.
//!
//! The clocks of the literature, in which only messages and sums cost time, are in the package
//! `maypole-pictures`.

mod machine;
mod simulation;
mod tallies;
mod turns;

pub use machine::{LinkCost, MachineModel, MemoryRates, RunTime};
pub use simulation::Simulation;

/// Bytes of short messages that leave together on a stream, at most, as a multiple of the longest short
/// message. The executor keeps to the same number.
pub const SHORT_MESSAGES_TOGETHER: u64 = 4;

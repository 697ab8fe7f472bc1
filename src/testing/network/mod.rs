//! Threads that take turns, on a clock of their own, joined by links that a seed controls.
//!
//! # The problem
//!
//! A mistake that shows once in ten thousand runs cannot be found by running a test once, and
//! cannot be debugged by a run that cannot be repeated. Two runs differ in the order of threads, in
//! how many bytes a link takes at a time, in the latency of bytes, and in the moment at which a
//! peer dies.
//!
//! # The idea
//!
//! In a simulated network all of these follow from one number, the seed.
//!
//! * **Turns.** The ranks are threads, but only one of them runs at a time. A thread keeps its turn
//!   until it waits; at a link it sometimes passes the turn on, too. The seed chooses the next
//!   thread.
//! * **Links.** A [`SimulatedStream`] takes a part of the offered bytes, buffers them for a
//!   latency, and delivers a part of the arrived ones. Bytes of one direction never overtake each
//!   other. Bytes of different links do.
//! * **Time.** The clock counts microseconds of turns. If all threads are blocked, it jumps to the
//!   next event: bytes that arrive, the detection of a death, a deadline. So a timeout of five
//!   minutes takes no time, and ends at the same turn in each run.
//! * **Faults.** A rank is dropped at a turn ([`SimulatedFault`]): its threads end, the bytes that
//!   it had sent are cut off somewhere, and the [`WorldObserver`] receives the event a little
//!   later. A byte is corrupted.
//!
//! The same seed gives the same turns. [`NetworkReport::trace`] is a hash of all decisions, which
//! two runs have in common if nothing else decided.
//!
//! # The limits
//!
//! Threads see each other only where they pass the turn on, so this finds wrong orders, lost
//! messages and missing waits, but not missing memory barriers. A thread that waits for another one
//! by a means of its own (a lock, a barrier of the standard library) keeps its turn, and the other
//! never gets one.

mod conditions;
mod fault;
mod hang;
mod link;
mod state;
mod stream;
mod thread;
mod turns;

pub use conditions::{NetworkConditions, NetworkReport, WorldObserver};
pub use fault::{CorruptedByte, SimulatedFault};
pub use state::SimulatedNetwork;
pub use stream::SimulatedStream;
pub use thread::SimulatedThread;

/// The panic of a thread of a simulated network that the network ends. It unwinds the thread, so
/// that all values are dropped, and prints nothing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ForcedEnd {
    /// The rank was dropped by [`SimulatedFault::Drop`].
    Dropped,
    /// All threads were blocked.
    Hang,
}

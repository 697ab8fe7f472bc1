//! The conditions of a simulated network, and its report.

use super::fault::{CorruptedByte, SimulatedFault};
use std::time::Duration;

/// How a simulated network behaves. Everything else follows from the seed.
#[derive(Clone, Debug)]
pub struct NetworkConditions {
    /// The number from which all decisions follow.
    pub seed: u64,
    /// The host of each rank. Ranks of one host see each other's memory.
    pub hosts: Vec<usize>,
    /// Bytes that a link holds in each direction; at least 1.
    pub capacity: usize,
    /// The longest time that bytes travel.
    pub longest_delay: Duration,
    /// The faults.
    pub faults: Vec<SimulatedFault>,
    /// Turns after which a run counts as a hang.
    pub most_turns: u64,
}

/// The events for the control plane.
pub trait WorldObserver: Send + Sync {
    /// The death of `rank` is detected. Called once, in the turn of any thread.
    fn died(&self, rank: usize);
}

/// How a run went.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NetworkReport {
    /// Turns of all threads.
    pub turns: u64,
    /// A hash of all decisions. Equal for equal runs.
    pub trace: u64,
    /// The time that the run took by the network's clock.
    pub elapsed: Duration,
    /// The ranks that were dropped, in this order.
    pub dropped: Vec<usize>,
    /// The bytes that were corrupted, in this order.
    pub corrupted: Vec<CorruptedByte>,
    /// The waits of the threads, if the run was ended because all were blocked.
    pub hang: Option<String>,
}

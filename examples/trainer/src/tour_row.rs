//! A line of the tour: an axis, and how it compares with one process and with theory.
//!
//! What it does: holds what was measured beside what should be. What is sharded, which collective runs
//! where, what it costs: nothing.

use crate::memory::Memory;

/// How a run compares with the same in one process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Equal {
    /// Losses and weights have the same bits.
    Bitwise,
    /// The greatest relative difference of a loss, the greatest difference of a weight, and what both may be.
    Within(f64, f64, f64),
}

/// One axis, or several together.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// What is shown.
    pub axis: String,
    /// On which ranks.
    pub mesh: String,
    /// Against one process.
    pub equal: Equal,
    /// Bytes that rank 0 holds, measured and by theory.
    pub memory: [Memory; 2],
    /// Bytes that leave rank 0 in a step, measured and by theory.
    pub wire: [u64; 2],
    /// The share of time in which ranks of the pipeline wait: by the clock, which shows too who else wanted the cores; by
    /// the plan with the measured work of each operation; by the formula for equal stages.
    pub bubble: Option<[f64; 3]>,
    /// Of the whole run.
    pub seconds: f64,
}

impl Row {
    /// True if everything is as it should be. Times are not judged.
    pub fn holds(&self) -> bool {
        let equal = match self.equal {
            Equal::Bitwise => true,
            Equal::Within(loss, weights, bound) => loss <= bound && weights <= bound,
        };
        equal && self.memory[0] == self.memory[1] && self.wire[0] == self.wire[1]
    }
}

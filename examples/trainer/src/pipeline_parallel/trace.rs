//! The times of the passes of a pipeline. `maypole_lab::replay` computes their cost.
//!
//! What is sharded, which collective runs where, cost: nothing.

use crate::pipeline_parallel::plan::StagePass;

/// A pass of one rank with its times, in any unit of time: seconds, if measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PassSpan {
    /// The rank that ran it.
    pub rank: usize,
    /// The pass.
    pub op: StagePass,
    /// The time at which it began.
    pub start: f64,
    /// The time at which it ended.
    pub end: f64,
    /// Its processor time. It is less than `end - start` if other threads used the core too.
    pub work: f64,
}

/// The passes of a pipeline with their times, simulated or measured.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelineTrace {
    /// Ranks of the pipeline.
    pub ranks: usize,
    /// Stages on each rank.
    pub chunks: usize,
    /// The passes, by rank, then by time.
    pub spans: Vec<PassSpan>,
}

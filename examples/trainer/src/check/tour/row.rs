//! A line of the tour: an axis, and how it compares with one process and with theory.
//!
//! What it does: holds each measured value beside its theoretical value, and writes them as a line
//! of a table and as a JSON object. What is sharded, which collective runs where, what it costs:
//! nothing.

use crate::check::memory::RankMemory;
use serde::Serialize;

/// The result of one configuration. Bytes are those of rank 0; `wire_bytes` are those of one step.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[allow(
    missing_docs,
    reason = "each measurement stands beside the theory of it, under the same name"
)]
pub struct TourRow {
    /// The title of the row.
    pub axis: String,
    /// The ranks along each axis, as in `dp=2,tp=2`.
    pub mesh: String,
    /// The number of ranks.
    pub ranks: usize,
    /// The values that are compared, and the greatest difference that passes.
    pub criterion: String,
    /// The greatest measured difference of the criterion's values.
    pub difference: f64,
    /// True if the criterion is met, the bytes of every rank equal the theory of that rank, and the
    /// bubble differs from theory by a quarter of the time at most.
    pub pass: bool,
    pub params_bytes: u64,
    pub params_bytes_theory: u64,
    pub grads_bytes: u64,
    pub grads_bytes_theory: u64,
    pub optimizer_bytes: u64,
    pub optimizer_bytes_theory: u64,
    /// The payload that rank 0 sends in one step.
    pub wire_bytes: u64,
    pub wire_bytes_theory: u64,
    /// The share of a pipeline's time in which ranks wait for other stages; 0 without a pipeline.
    /// Computed by replaying the executed plan with the measured processor time of each operation.
    /// Wall time would also count waiting for cores, which ranks share on a small machine.
    pub bubble: f64,
    /// The same share by the formula for equal stages.
    pub bubble_theory: f64,
    /// Wall time of the training on ranks in seconds, without the training in one process.
    pub seconds: f64,
}

/// The text below all rows.
pub const NOTE: &str = "\
bytes: those of rank 0; a row fails if the bytes of any rank differ from theory
bubble: the executed plan, replayed with the measured processor time of each operation (ranks
share cores here), beside the formula for equal stages; a row fails if the two differ by more
than 25 % of the time";

/// The line above all rows.
pub fn heading() -> String {
    format!(
        "{:<28} {:<14} {:<22} {:>9} {:<4} {:>17} {:>17} {:>17} {:>17} {:>11} {:>6}\n\
         {:>97} {:>17} {:>17} {:>17}",
        "axis",
        "mesh",
        "criterion",
        "difference",
        "pass",
        "weights",
        "gradients",
        "optimizer",
        "sent a step",
        "bubble %",
        "s",
        "KiB (theory)",
        "KiB (theory)",
        "KiB (theory)",
        "KiB (theory)"
    )
}

impl TourRow {
    /// The row of a run that took `seconds`, with the bytes that a rank held and should hold.
    /// The bytes sent and the bubble are 0, and the comparison fails, until the caller sets them.
    pub(crate) fn new(
        axis: &str,
        mesh: String,
        ranks: usize,
        [held, theory]: [RankMemory; 2],
        seconds: f64,
    ) -> Self {
        Self {
            axis: axis.to_owned(),
            mesh,
            ranks,
            criterion: String::new(),
            difference: f64::INFINITY,
            pass: false,
            params_bytes: held.weights as u64,
            params_bytes_theory: theory.weights as u64,
            grads_bytes: held.gradients as u64,
            grads_bytes_theory: theory.gradients as u64,
            optimizer_bytes: held.optimizer as u64,
            optimizer_bytes_theory: theory.optimizer as u64,
            wire_bytes: 0,
            wire_bytes_theory: 0,
            bubble: 0.0,
            bubble_theory: 0.0,
            seconds,
        }
    }

    /// The row as a line below [`heading`].
    pub fn line(&self) -> String {
        let kib = |bytes: u64| format!("{:.1}", bytes as f64 / 1024.0);
        let pair = |measured, theory| format!("{} ({})", kib(measured), kib(theory));
        let bubble = match self.bubble_theory {
            0.0 => "-".to_owned(),
            theory => format!("{:.0} ({:.0})", 100.0 * self.bubble, 100.0 * theory),
        };
        format!(
            "{:<28} {:<14} {:<22} {:>9.1e} {:<4} {:>17} {:>17} {:>17} {:>17} {:>11} {:>6.1}",
            self.axis,
            self.mesh,
            self.criterion,
            self.difference,
            if self.pass { "yes" } else { "NO" },
            pair(self.params_bytes, self.params_bytes_theory),
            pair(self.grads_bytes, self.grads_bytes_theory),
            pair(self.optimizer_bytes, self.optimizer_bytes_theory),
            pair(self.wire_bytes, self.wire_bytes_theory),
            bubble,
            self.seconds
        )
    }
}

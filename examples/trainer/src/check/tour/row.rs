//! A line of the tour: an axis, and how it compares with one process and with theory.
//!
//! What it does: holds what was measured beside what should be, as a line of a table and as an
//! object of JSON. What is sharded, which collective runs where, what it costs: nothing.

use crate::check::memory::RankMemory;
use serde::Serialize;

/// What came of one configuration. Bytes are those of rank 0, and of the wire in one step.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[allow(
    missing_docs,
    reason = "each measurement stands beside the theory of it, under the same name"
)]
pub struct TourRow {
    /// What is shown.
    pub axis: String,
    /// Ranks along each axis.
    pub mesh: String,
    /// How many ranks there are.
    pub ranks: usize,
    /// What has to be equal, and how closely.
    pub criterion: String,
    /// The greatest difference that the criterion is about.
    pub difference: f64,
    /// Whether it is met, the bytes of every rank are to the byte what theory says of that rank,
    /// and a bubble is within a quarter of all time of theory.
    pub pass: bool,
    pub params_bytes: u64,
    pub params_bytes_theory: u64,
    pub grads_bytes: u64,
    pub grads_bytes_theory: u64,
    pub optimizer_bytes: u64,
    pub optimizer_bytes_theory: u64,
    /// Payload.
    pub wire_bytes: u64,
    pub wire_bytes_theory: u64,
    /// The share of a pipeline's time in which a rank waits; 0 without a pipeline. Not by the
    /// clock, since ranks share the cores of a small machine and wait for those too: it is that of
    /// the plan that was executed, replayed with the measured processor time of each operation.
    pub bubble: f64,
    /// By the formula for stages that are equal.
    pub bubble_theory: f64,
    /// Wall time of the training that is shown, without that of the one process it is compared
    /// with.
    pub seconds: f64,
}

/// What is to be said below all rows.
pub const NOTE: &str = "\
bytes are those of rank 0; of every rank they are to the byte what theory says of it, or the row fails
bubble: the plan that was executed, replayed with the measured processor time of each operation (ranks share cores here),
beside the formula for equal stages; further than 25 % of the time from it the row fails";

/// The line above all rows.
pub fn heading() -> String {
    format!(
        "{:<28} {:<14} {:<22} {:>9} {:<4} {:>17} {:>17} {:>17} {:>17} {:>11} {:>6}\n{:>97} {:>17} {:>17} {:>17}",
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
    /// Nothing is sent, nobody waits, and nothing is compared yet.
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

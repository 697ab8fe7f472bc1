//! The tour: every axis trained and compared with one process, and what it holds and sends beside theory.
//!
//! A [`Stop`] trains one configuration and gives a [`Row`]. [`stops`] lists all of them; each axis brings its own.

use crate::tour_data;
use serde::Serialize;

/// What came of one configuration. Bytes are of the rank that has most; those of the wire are of one step.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[allow(missing_docs, reason = "each measurement stands beside the theory of it, under the same name")]
pub struct Row {
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
    /// Whether it is met.
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
    /// The share of a pipeline's time in which a rank waits; 0 without a pipeline.
    pub bubble: f64,
    pub bubble_theory: f64,
    /// Wall time of the training that is shown, without that of the one process it is compared with.
    pub seconds: f64,
}

/// One configuration.
#[derive(Clone, Copy, Debug)]
pub struct Stop {
    /// What is shown.
    pub axis: &'static str,
    /// Trains it.
    pub run: fn(&'static str) -> Row,
}

impl Stop {
    /// Trains it and gives the row.
    pub fn visit(self) -> Row {
        (self.run)(self.axis)
    }
}

/// All configurations, in the order in which they are shown.
pub fn stops() -> Vec<Stop> {
    tour_data::STOPS.to_vec()
}

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

impl Row {
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

//! The tour: every axis trained and compared with one process, and what it holds and sends beside theory.
//!
//! A [`Stop`] trains one configuration and gives a [`Row`]. [`stops`] lists all of them; each axis brings its own.

use crate::tour_row::Equal;
use crate::{tour_data, tour_mesh, tour_row};
use maypole::Result;
use serde::Serialize;

/// What came of one configuration. Bytes are of one rank, those of the wire of one step too.
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
    /// Whether it is met, and bytes are as theory says.
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
#[derive(Clone, Debug)]
pub struct Stop {
    /// What is shown.
    pub axis: &'static str,
    pub(crate) show: Show,
}

/// Who trains it.
#[derive(Clone, Debug)]
pub(crate) enum Show {
    /// A form of data parallelism.
    Data(fn(&'static str) -> Row),
    /// Axes that divide the model.
    Mesh(Box<tour_mesh::Stop>),
}

/// Steps of the stops that divide the model.
const STEPS: u64 = 10;

impl Stop {
    /// Trains it and gives the row.
    ///
    /// # Errors
    /// As the collectives in it.
    pub fn visit(&self) -> Result<Row> {
        match &self.show {
            Show::Data(show) => Ok(show(self.axis)),
            Show::Mesh(stop) => Ok(Row::of(&stop.run(STEPS)?, stop.setup.mesh.world())),
        }
    }
}

/// All configurations, in the order in which they are shown.
pub fn stops() -> Vec<Stop> {
    let mesh = |stop: tour_mesh::Stop| Stop { axis: stop.axis, show: Show::Mesh(Box::new(stop)) };
    tour_data::stops().into_iter().chain(tour_mesh::stops().into_iter().map(mesh)).collect()
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
    /// The row of axes that divide the model, on `ranks` ranks.
    fn of(row: &tour_row::Row, ranks: usize) -> Self {
        let (criterion, difference) = match row.equal {
            Equal::Bitwise => ("bitwise".to_owned(), 0.0),
            Equal::Within(loss, weights, 0.0) => ("bitwise".to_owned(), loss.max(weights)),
            Equal::Within(loss, weights, bound) => (format!("loss, weights {bound:.0e}"), loss.max(weights)),
        };
        // Of the three shares that are measured or computed, the one by the work of each operation: the clock's shows who
        // else wanted the cores.
        let [_, bubble, bubble_theory] = row.bubble.unwrap_or_default();
        let [measured, theory] = row.memory;
        Self {
            axis: row.axis.clone(),
            mesh: row.mesh.clone(),
            ranks,
            criterion,
            difference,
            pass: row.holds(),
            params_bytes: measured.weights as u64,
            params_bytes_theory: theory.weights as u64,
            grads_bytes: measured.gradients as u64,
            grads_bytes_theory: theory.gradients as u64,
            optimizer_bytes: measured.optimizer as u64,
            optimizer_bytes_theory: theory.optimizer as u64,
            wire_bytes: row.wire[0],
            wire_bytes_theory: row.wire[1],
            bubble,
            bubble_theory,
            seconds: row.seconds,
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

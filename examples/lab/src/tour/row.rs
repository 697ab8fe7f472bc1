//! A row of the tour: an axis, and how it compares with one process and with theory.
//!
//! What it does: pairs each measured value with its theoretical value, and writes them as two
//! lines of a table and as a JSON object. What is sharded, which collective runs where, cost: nothing.

use crate::overlap::OverlappedPasses;
use crate::tour::measure::StepMeasure;
use maypole_trainer::pipeline_parallel::trace::PipelineTrace;
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
    /// The greatest difference that passes; 0: bitwise equal.
    pub bound: f64,
    /// The greatest measured difference of the criterion's values.
    pub difference: f64,
    /// True if the criterion is met and every rank fits theory: weights, gradients, optimizer and
    /// bytes sent are equal to it, activations and units differ by 5 % at most, as many passes
    /// overlap, passes of a pipeline ran in the order of the plan, and its bubble differs by 12 % of
    /// the time at most.
    pub pass: bool,
    pub params_bytes: u64,
    pub params_bytes_theory: u64,
    pub grads_bytes: u64,
    pub grads_bytes_theory: u64,
    pub optimizer_bytes: u64,
    pub optimizer_bytes_theory: u64,
    /// Peak bytes of activations that waited for their backward pass, as the allocator counts them.
    pub activations_bytes: u64,
    pub activations_bytes_theory: u64,
    /// Peak bytes of units that the store gathered, made or widened, as the allocator counts them.
    pub units_bytes: u64,
    pub units_bytes_theory: u64,
    /// The payload that rank 0 sends in one step.
    pub wire_bytes: u64,
    pub wire_bytes_theory: u64,
    /// The share of a pipeline's time in which ranks wait for other stages; 0 without a pipeline.
    /// Computed by replaying the executed passes with the least processor time of each kind of pass.
    /// Wall time would also count waiting for cores, which ranks share on a small machine.
    pub bubble: f64,
    /// The same share of the plan, with as many multiplications as each stage needs.
    pub bubble_theory: f64,
    /// Passes of units in a step during which a collective of the store was in flight.
    pub overlapped: u64,
    pub overlapped_theory: u64,
    /// All passes of units in a step.
    pub passes: u64,
    /// Wall time of the training on ranks in seconds, without the training in one process.
    pub seconds: f64,
    /// The passes of a pipeline, for the picture.
    #[serde(skip)]
    pub pipeline: Option<PipelineTrace>,
}

/// The text below all rows.
pub const NOTE: &str = "\
Each row has a line of measured values and below it the theory of each; KiB are those of rank 0.
difference: of losses and weights from one process; below it the greatest that passes.
activ: activations that wait for their backward pass; units: weights and gradients that a store
holds for a moment; both by the allocator, the most of a step. sent: payload of one step.
bubble: share of the time in which stages wait; the executed passes replayed, each with the least
processor time that a pass of its kind took; below it the plan with the multiplications of a stage.
overlap: passes of units during which a sum or a gather is under way, of all in a step.
A row fails if any rank differs: weights, grads, optim, sent and overlap by anything, activ and
units by more than 5 %, the bubble by more than 12 % of the time (not with --device cuda), or if
passes ran in another order.";

/// The line above all rows.
pub fn heading() -> String {
    format!(
        "{:<26} {:>8} {:<4} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>7}",
        "axis, and mesh",
        "differ",
        "pass",
        "weight",
        "grads",
        "optim",
        "activ",
        "units",
        "sent",
        "bubble",
        "overlap"
    )
}

impl TourRow {
    /// The row of a run that took `seconds`, with the measured and the theoretical values of a rank.
    /// The bytes sent and the bubble are 0, and the comparison fails, until the caller sets them.
    pub(crate) fn new(
        axis: &str,
        mesh: String,
        ranks: usize,
        [held, theory]: [StepMeasure; 2],
        seconds: f64,
    ) -> Self {
        Self {
            axis: axis.to_owned(),
            mesh,
            ranks,
            criterion: String::new(),
            bound: 0.0,
            difference: f64::INFINITY,
            pass: false,
            params_bytes: held.memory.weights as u64,
            params_bytes_theory: theory.memory.weights as u64,
            grads_bytes: held.memory.gradients as u64,
            grads_bytes_theory: theory.memory.gradients as u64,
            optimizer_bytes: held.memory.optimizer as u64,
            optimizer_bytes_theory: theory.memory.optimizer as u64,
            activations_bytes: held.activations as u64,
            activations_bytes_theory: theory.activations as u64,
            units_bytes: held.units as u64,
            units_bytes_theory: theory.units as u64,
            wire_bytes: 0,
            wire_bytes_theory: 0,
            bubble: 0.0,
            bubble_theory: 0.0,
            overlapped: held.passes.overlapped,
            overlapped_theory: theory.passes.overlapped,
            passes: held.passes.all,
            seconds,
            pipeline: None,
        }
    }

    /// The row as two lines below [`heading`]: measured values, and theory.
    pub fn line(&self) -> String {
        let pass = if self.pass { "yes" } else { "NO" };
        let head = format!("{:<26} {:>8.1e} {pass:<4}", self.axis, self.difference);
        let bound =
            if self.bound == 0.0 { "bitwise".to_owned() } else { format!("{:.0e}", self.bound) };
        let time = format!("{:.1}s", self.seconds);
        let below = format!("  {:<24} {bound:>8} {time:<4}", self.mesh);
        let measured = [
            self.params_bytes,
            self.grads_bytes,
            self.optimizer_bytes,
            self.activations_bytes,
            self.units_bytes,
            self.wire_bytes,
        ];
        let theory = [
            self.params_bytes_theory,
            self.grads_bytes_theory,
            self.optimizer_bytes_theory,
            self.activations_bytes_theory,
            self.units_bytes_theory,
            self.wire_bytes_theory,
        ];
        let (all, overlapped) = (self.passes, self.overlapped_theory);
        let of = |overlapped| OverlappedPasses { overlapped, all };
        let first = head + &numbers(measured, self.bubble, of(self.overlapped));
        first + "\n" + &below + &numbers(theory, self.bubble_theory, of(overlapped))
    }
}

/// The columns of numbers: bytes as KiB, the bubble in per cent.
fn numbers(bytes: [u64; 6], bubble: f64, overlap: OverlappedPasses) -> String {
    let kib = |bytes: u64| format!(" {:>6}", (bytes + 512) / 1024);
    let bubble = if bubble == 0.0 { "-".to_owned() } else { format!("{:.0} %", 100.0 * bubble) };
    let overlap = if overlap.overlapped == 0 { "-".to_owned() } else { overlap.to_string() };
    let bytes: String = bytes.map(kib).concat();
    format!("{bytes} {bubble:>6} {overlap:>7}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::RankMemory;

    #[test]
    fn lines_fit_in_a_hundred_columns() {
        let memory = RankMemory { weights: 1 << 29, gradients: 1 << 29, optimizer: 1 << 29 };
        let passes = OverlappedPasses { overlapped: 110, all: 120 };
        let held = StepMeasure { memory, activations: 1 << 29, units: 1 << 29, passes };
        let mesh = "dp=2,pp=2,ep=2,cp=2,tp=2".to_owned();
        let row = TourRow::new("checkpoint, there and back", mesh, 32, [held; 2], 9.5);
        let row = TourRow { bubble: 0.5, bubble_theory: 0.5, wire_bytes: 1 << 29, ..row };
        for line in row.line().lines().chain(heading().lines()).chain(NOTE.lines()) {
            assert!(line.chars().count() <= 100, "{} columns: {line}", line.chars().count());
        }
        assert_eq!(row.line().lines().count(), 2);
    }
}

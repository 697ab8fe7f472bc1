//! A row of the tour: an axis, and how it compares with one process and with theory.
//!
//! What it does: pairs each measured value with its theoretical value, and writes them as two
//! lines of a table and as a JSON object. What is sharded, which collective runs where, cost: nothing.

use crate::overlap::OverlappedPasses;
use crate::tour::measure::StepMeasure;
use maypole_trainer::pipeline_parallel::trace::PipelineTrace;
use serde::{Serialize, Serializer};

/// The kinds of bytes of a row, as JSON names them.
pub const KINDS: [&str; 6] = ["params", "grads", "optimizer", "activations", "units", "wire"];

fn with_names<S: Serializer>(bytes: &[[u64; 2]; KINDS.len()], out: S) -> Result<S::Ok, S::Error> {
    out.collect_map(KINDS.iter().zip(bytes).flat_map(|(kind, [measured, theory])| {
        [(format!("{kind}_bytes"), measured), (format!("{kind}_bytes_theory"), theory)]
    }))
}

/// The result of one configuration. Bytes are those of rank 0.
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
    /// The bytes of each of [`KINDS`], measured and by theory. Activations that waited for their
    /// backward pass, and units that the store gathered, made or widened, are the peaks of a step, as
    /// the allocator counts them; those on the wire are the payload that rank 0 sends in a step. In
    /// JSON each is two fields, as `params_bytes` and `params_bytes_theory`.
    #[serde(flatten, serialize_with = "with_names")]
    pub bytes: [[u64; 2]; KINDS.len()],
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
    /// The bubble is 0, and the comparison fails, until the caller sets them.
    pub(crate) fn new(
        axis: &str,
        mesh: String,
        ranks: usize,
        [held, theory]: [StepMeasure; 2],
        sent: [u64; 2],
        seconds: f64,
    ) -> Self {
        let [measured, expected] =
            [held, theory].map(|StepMeasure { memory, activations, units, .. }| {
                [memory.weights, memory.gradients, memory.optimizer, activations, units]
            });
        let bytes = |kind: usize| match kind {
            5 => sent,
            _ => [measured[kind] as u64, expected[kind] as u64],
        };
        Self {
            axis: axis.to_owned(),
            mesh,
            ranks,
            criterion: String::new(),
            bound: 0.0,
            difference: f64::INFINITY,
            pass: false,
            bytes: std::array::from_fn(bytes),
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
        let (all, overlapped) = (self.passes, self.overlapped_theory);
        let of = |overlapped| OverlappedPasses { overlapped, all };
        let first = head + &numbers(self.bytes.map(|it| it[0]), self.bubble, of(self.overlapped));
        first
            + "\n"
            + &below
            + &numbers(self.bytes.map(|it| it[1]), self.bubble_theory, of(overlapped))
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
        let row =
            TourRow::new("checkpoint, there and back", mesh, 32, [held; 2], [1 << 29; 2], 9.5);
        let row = TourRow { bubble: 0.5, bubble_theory: 0.5, ..row };
        for line in row.line().lines().chain(heading().lines()).chain(NOTE.lines()) {
            assert!(line.chars().count() <= 100, "{} columns: {line}", line.chars().count());
        }
        assert_eq!(row.line().lines().count(), 2);
    }
}

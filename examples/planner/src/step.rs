//! The time of a step as a sum over its causes.

use crate::cluster::Accelerator;
use crate::sizes::ModelSizes;
use crate::strategy::{NumberFormat, ParallelStrategy};
use serde::Serialize;

/// Seconds of a step by cause. Their sum is the step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct StepPrice {
    /// Forward and backward passes.
    pub compute: f64,
    /// Recomputation.
    pub again: f64,
    /// Collectives of tensor parallelism.
    pub tp: f64,
    /// The ring of context parallelism.
    pub cp: f64,
    /// All-to-alls of experts.
    pub ep: f64,
    /// Sends between stages.
    pub stages: f64,
    /// Waiting for other stages.
    pub bubble: f64,
    /// Exposed collectives of data parallelism.
    pub copies: f64,
    /// The optimizer.
    pub update: f64,
}

impl StepPrice {
    /// The kinds, with their names.
    pub fn parts(&self) -> [(&'static str, f64); 9] {
        [
            ("compute", self.compute),
            ("again", self.again),
            ("tp", self.tp),
            ("cp", self.cp),
            ("ep", self.ep),
            ("stages", self.stages),
            ("bubble", self.bubble),
            ("copies", self.copies),
            ("update", self.update),
        ]
    }

    /// Seconds of the whole step.
    pub fn total(&self) -> f64 {
        self.parts().iter().map(|part| part.1).sum()
    }

    /// The model FLOP utilisation: operations of the model (PaLM's count) over the peak of the
    /// accelerators in the time of the step.
    pub fn utilisation(
        &self,
        model: &ModelSizes,
        strategy: &ParallelStrategy,
        accelerator: &Accelerator,
    ) -> f64 {
        let tokens = strategy.global_rows() as f64 * model.sequence as f64;
        let could =
            self.total() * rate(accelerator, strategy.format) * strategy.mesh.world() as f64;
        model.operations_per_token() * tokens / could
    }
}

/// Operations a second on dense matrices of numbers of this format.
pub(crate) fn rate(accelerator: &Accelerator, format: NumberFormat) -> f64 {
    if format == NumberFormat::F32 { accelerator.wide } else { accelerator.narrow }
}

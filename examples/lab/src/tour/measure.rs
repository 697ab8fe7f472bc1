//! The measured memory and overlap of a rank of the tour, and their comparison with theory.

use crate::averaging::DataForm;
use crate::memory::{FULL, RankMemory};
use crate::overlap::OverlappedPasses;
use crate::theory::RankTheory;
use maypole_trainer::expert_parallel::layer::RoutingRecord;
use maypole_trainer::ranks::mesh::MeshAxis;
use maypole_trainer::tensor::math::Real;
use maypole_trainer::train::{trainer::Trainer, watch::StepPeaks};

/// The greatest share by which activations and units may differ from theory.
const NEAR: f64 = 0.05;
/// Bytes by which activations and units may differ from theory at any size: lists of buffers, and
/// boxes.
const LISTS: f64 = 8192.0;

/// The memory of one rank, and its overlapped passes; measured, or by theory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct StepMeasure {
    pub(crate) memory: RankMemory,
    /// Peak bytes of activations that waited for their backward pass.
    pub(crate) activations: usize,
    /// Peak bytes of units in the store.
    pub(crate) units: usize,
    /// The passes of the units of one step.
    pub(crate) passes: OverlappedPasses,
}

impl StepMeasure {
    /// What `trainer` holds between steps, and held in its last step, which had these `passes`.
    pub(crate) fn of<T: Real>(trainer: &Trainer<T>, passes: OverlappedPasses) -> Self {
        let StepPeaks { activations, units } = trainer.watch.peaks;
        Self { memory: RankMemory::of(trainer), activations, units, passes }
    }

    /// What the rank of `site` should hold and overlap, with this form of data parallelism and so many
    /// numbers of the optimizer a parameter, in full precision or `mixed` with 16 bits.
    pub(crate) fn theory(
        site: &RankTheory<'_>,
        (form, states): (DataForm, usize),
        mixed: bool,
        routing: &RoutingRecord,
    ) -> Self {
        let layout = site.layout();
        let copies = site.setup.mesh.sizes(&MeshAxis::COPIES);
        let (width, activations) = match mixed {
            false => (FULL, site.activations(routing)),
            true => (2, site.activations_in_16_bits(routing)),
        };
        Self {
            memory: RankMemory::theory(form, layout.len(), copies, states, width),
            activations,
            units: site.units(form, mixed),
            passes: OverlappedPasses::theory(&layout, (form, copies), site.setup.micros, FULL),
        }
    }

    /// True if weights, gradients, optimizer and passes are those of `theory`, and activations and
    /// units near them.
    pub(crate) fn fits(&self, theory: &Self) -> bool {
        let near = |held: usize, theory: usize| {
            (held as f64 - theory as f64).abs() <= NEAR * theory as f64 + LISTS
        };
        self.memory == theory.memory
            && self.passes == theory.passes
            && near(self.activations, theory.activations)
            && near(self.units, theory.units)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_per_cent_and_two_pages_are_near() {
        let memory = RankMemory { weights: 1, gradients: 2, optimizer: 3 };
        let passes = OverlappedPasses { overlapped: 3, all: 12 };
        let theory = StepMeasure { memory, activations: 1 << 20, units: 0, passes };
        assert!(theory.fits(&theory));
        assert!(
            StepMeasure { activations: (1 << 20) + 50_000, units: 4_000, ..theory }.fits(&theory)
        );
        assert!(!StepMeasure { activations: (1 << 20) + 70_000, ..theory }.fits(&theory));
        assert!(!StepMeasure { units: 9_000, ..theory }.fits(&theory));
        let passes = OverlappedPasses { overlapped: 2, all: 12 };
        assert!(!StepMeasure { passes, ..theory }.fits(&theory));
    }
}

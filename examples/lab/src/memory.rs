//! The bytes that a rank holds, and the bytes that it should hold by theory.
//!
//! Bytes with P parameters, N ranks and AdamW in `f32` (4 bytes a number). "A unit" is the
//! parameters of a block, of the embedding or of the head:
//!
//! | | weights | gradients | optimizer | in all | and at the peak of a step |
//! |---|---|---|---|---|---|
//! | replicated, local SGD, gossip | 4 P | 4 P | 8 P | 16 P | nothing |
//! | stale sums, L steps late | 4 P | 4 P | 8 P | 16 P | 4 L P |
//! | DiLoCo | 4 P | 4 P | 16 P | 24 P | nothing |
//! | ZeRO-1 | 4 P | 4 P | 8 P / N | 8 P + 8 P / N | gradients of one unit |
//! | ZeRO-2 | 4 P | 4 P / N | 8 P / N | 4 P + 12 P / N | gradients of two units |
//! | ZeRO-3, FSDP | 4 P / N | 4 P / N | 8 P / N | 16 P / N | weights and gradients of two units |
//!
//! In 16 bits ([`mixed`](maypole_trainer::model::mixed)) weights take half of these bytes, and gradients
//! as many. The optimizer takes 4 P more for the `f32` masters: 2 P, 4 P and 12 P where nothing is
//! sharded.
//!
//! The measured bytes are the lengths of the buffers after a step. They leave out the units of the
//! last column, which a rank holds only during a step: [`UnitTheory`](crate::held::UnitTheory) counts
//! them.

use crate::averaging::DataForm;
use maypole_trainer::data_parallel::sharding::Sharding;
use maypole_trainer::tensor::math::Real;
use maypole_trainer::train::trainer::Trainer;

/// Bytes of a number in full precision.
pub const FULL: usize = size_of::<f32>();

/// The bytes that one rank holds between steps.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RankMemory {
    /// Of weights.
    pub weights: usize,
    /// Of gradients.
    pub gradients: usize,
    /// Of the optimizer's state, and of masters.
    pub optimizer: usize,
}

impl RankMemory {
    /// The bytes of the buffers of `trainer`.
    pub fn of<T: Real>(trainer: &Trainer<T>) -> Self {
        let bytes = trainer.parts.store.bytes();
        Self {
            weights: bytes.weights,
            gradients: bytes.gradients,
            optimizer: trainer.optimizer().bytes() + bytes.masters,
        }
    }

    /// The bytes that a rank should hold: `parameters` parameters with weights of `width` bytes, over
    /// `ranks` ranks, with `states` numbers of optimizer state for each parameter.
    pub fn theory(
        form: impl Into<DataForm>,
        parameters: usize,
        ranks: usize,
        states: usize,
        width: usize,
    ) -> Self {
        let whole = parameters;
        let part = parameters.div_ceil(ranks);
        let form = form.into();
        let (weights, gradients, optimizer) = match form.sharding() {
            Sharding::Replicated { .. } => (whole, whole, whole),
            Sharding::Zero1 => (whole, whole, part),
            Sharding::Zero2 => (whole, part, part),
            Sharding::Fsdp { .. } => (part, part, part),
        };
        // An outer optimizer has an anchor and a velocity.
        let outer = if matches!(form, DataForm::Diloco { .. }) { 2 } else { 0 };
        let masters = usize::from(width < FULL) + outer;
        Self {
            weights: width * weights,
            gradients: FULL * gradients,
            optimizer: FULL * (states + masters) * optimizer,
        }
    }

    /// The sum of weights, gradients and optimizer state, in bytes.
    pub fn total(self) -> usize {
        self.weights + self.gradients + self.optimizer
    }
}

/// The numbers that a rank sends in one step, by kind: of 16 bits are only weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WireNumbers {
    /// Weights.
    pub weights: f64,
    /// Gradients.
    pub gradients: f64,
}

impl WireNumbers {
    /// Both kinds.
    pub fn all(self) -> f64 {
        self.weights + self.gradients
    }
}

/// The numbers that each rank of a ring sends in one step, for `parameters` parameters over `ranks`
/// ranks.
pub fn wire(
    form: impl Into<DataForm>,
    parameters: usize,
    ranks: usize,
    micro_batches: usize,
) -> WireNumbers {
    let once = parameters as f64 * (ranks - 1) as f64 / ranks as f64;
    let micros = micro_batches as f64;
    let [weights, gradients] = match form.into() {
        DataForm::Summed(Sharding::Replicated { .. }) | DataForm::Stale { .. } => [0.0, 2.0 * once],
        DataForm::Summed(Sharding::Zero1) => [once; 2],
        DataForm::Summed(Sharding::Zero2) => [once, micros * once],
        DataForm::Summed(Sharding::Fsdp { .. }) => [2.0 * micros * once, micros * once],
        DataForm::Local { every } | DataForm::Diloco { every } => [2.0 * once / every as f64, 0.0],
        DataForm::Gossip { .. } if ranks == 1 => [0.0; 2],
        DataForm::Gossip { every } => [parameters as f64 / every as f64, 0.0],
    };
    WireNumbers { weights, gradients }
}

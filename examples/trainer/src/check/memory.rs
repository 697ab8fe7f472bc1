//! Bytes a rank holds, beside what theory says it should.
//!
//! With P parameters, N ranks and AdamW in `f32` (4 bytes a number):
//!
//! | | weights | gradients | optimizer | in all |
//! |---|---|---|---|---|
//! | replicated, local SGD | 4 P | 4 P | 8 P | 16 P |
//! | ZeRO-1 | 4 P | 4 P | 8 P / N | 8 P + 8 P / N |
//! | ZeRO-2 | 4 P | 4 P / N and a unit | 8 P / N | 4 P + 12 P / N |
//! | ZeRO-3, FSDP | 4 P / N and two units | 4 P / N and a unit | 8 P / N | 16 P / N |
//!
//! In 16 bits ([`mixed`](crate::model::mixed)) weights and gradients take half of it, and the
//! optimizer 4 more for masters: 2 P, 2 P and 12 P where nothing is sharded.
//!
//! What is measured is the length of the buffers that are there after a step; "and a unit" is held
//! for a moment and counted apart.

use crate::data_parallel::sharding::Sharding;
use crate::tensor::math::Real;
use crate::train::session::TrainingSession;

/// Bytes of a number that is not narrow.
pub const FULL: usize = size_of::<f32>();

/// Bytes of one rank from step to step.
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
    /// What the buffers of `session` take.
    pub fn of<T: Real>(session: &TrainingSession<T>) -> Self {
        let bytes = session.store.bytes();
        Self {
            weights: bytes.weights,
            gradients: bytes.gradients,
            optimizer: session.optimizer.bytes() + bytes.masters,
        }
    }

    /// What they should, for `parameters` parameters of `width` bytes over `ranks` ranks with
    /// `states` numbers of state each.
    pub fn theory(
        sharding: Sharding,
        parameters: usize,
        ranks: usize,
        states: usize,
        width: usize,
    ) -> Self {
        let whole = parameters;
        let part = parameters.div_ceil(ranks);
        let (weights, gradients, optimizer) = match sharding {
            Sharding::Replicated { .. } | Sharding::Local { .. } => (whole, whole, whole),
            Sharding::Zero1 => (whole, whole, part),
            Sharding::Zero2 => (whole, part, part),
            Sharding::Fsdp { .. } => (part, part, part),
        };
        let masters = usize::from(width < FULL);
        Self {
            weights: width * weights,
            gradients: width * gradients,
            optimizer: FULL * (states + masters) * optimizer,
        }
    }

    /// The sum.
    pub fn total(self) -> usize {
        self.weights + self.gradients + self.optimizer
    }
}

/// Numbers that leave each rank of a ring in one step, for `parameters` parameters over `ranks`
/// ranks.
pub fn wire(sharding: Sharding, parameters: usize, ranks: usize, micro_batches: usize) -> f64 {
    let once = parameters as f64 * (ranks - 1) as f64 / ranks as f64;
    match sharding {
        Sharding::Replicated { .. } | Sharding::Zero1 => 2.0 * once,
        Sharding::Zero2 => (micro_batches + 1) as f64 * once,
        Sharding::Fsdp { .. } => 3.0 * micro_batches as f64 * once,
        Sharding::Local { every } => 2.0 * once / every as f64,
    }
}

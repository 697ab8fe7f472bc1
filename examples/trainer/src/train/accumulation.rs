//! Gradient accumulation: a batch that does not fit is trained on in pieces, and the step is taken
//! at the end.
//!
//! * **Sharded:** the batch, over time instead of over ranks.
//! * **Collective:** none of its own. With data parallelism gradients travel with the *last*
//!   micro-batch only (what PyTorch calls `no_sync` for the others): one sum a step, whatever the
//!   number of micro-batches.
//! * **Cost:** nothing but time; activations of one micro-batch instead of all.
//!
//! Every token's loss was weighted by one over the tokens of the whole batch, so gradients just add
//! up.

use crate::model::batch::TokenBatch;
use crate::model::gpt::Gpt;
use crate::model::store::Store;
use crate::tensor::math::Real;
use maypole::Result;

/// Forward and backward over `batches`, one after the other; gradients of all are added to the
/// store's. Returns the summed loss of these batches.
///
/// # Errors
/// As the collectives of the model and of the store.
pub fn micro_batches<T: Real>(
    gpt: &mut Gpt<T>,
    store: &mut dyn Store<T>,
    batches: &[TokenBatch],
) -> Result<f64> {
    let mut loss = 0.0;
    for (nth, batch) in batches.iter().enumerate() {
        loss += gpt.train(store, batch, nth + 1 == batches.len())?;
    }
    Ok(loss)
}

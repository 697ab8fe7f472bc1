//! Validation: the loss of a model on text that it has not seen.
//!
//! The training loss also falls when a model memorizes its text. So the end of the text is kept out
//! of training ([`Text::divided`]), and the validation loss is that of the end. All meshes are
//! compared alike: one rank has the whole model
//! ([`whole_weights`](crate::train::sample::whole_weights)) and the same rows, so two losses differ
//! only if the weights do.

use crate::model::batch::TokenBatch;
use crate::model::store::Store;
use crate::model::transformer::Transformer;
use crate::tensor::math::Real;
use crate::train::text::{Text, TextError};

/// The least number of tokens that the loss is a mean of: 512 rows of 64, whatever the length of a
/// row.
const TOKENS: usize = 1 << 15;

/// Rows of a batch. A forward pass keeps activations of so many rows, which are never used here.
const EACH: usize = 8;

/// Rows that are spread evenly over `text`, in batches for a model with rows of `context` tokens.
///
/// # Errors
/// As [`Text::spread`].
pub fn judged_rows(text: &Text, context: usize) -> Result<Vec<TokenBatch>, TextError> {
    text.spread(TOKENS.div_ceil(context), EACH)
}

/// The mean loss of a token, in nats, over [`judged_rows`].
///
/// # Errors
/// As the collectives of the model, if it has any.
pub fn validation_loss<T: Real>(
    gpt: &mut Transformer<T>,
    store: &mut dyn Store<T>,
    judged: &[TokenBatch],
) -> maypole::Result<f64> {
    let mut loss = 0.0;
    for batch in judged {
        loss += gpt.forward(0..gpt.units(), store, batch, Vec::new())?.1.loss;
    }
    Ok(loss)
}

//! Validation: the loss of a model on text that it has not seen.
//!
//! The training loss also falls when a model memorizes its text. So the end of the text is kept out
//! of training ([`Text::divided`]), and the validation loss is that of the end. The ranks compute it
//! together, by forward passes alone, so that none needs more of the model than for training. The
//! rows are the same on every mesh.
//!
//! * **Sharded:** the rows over `dp` and `ep`, positions over `cp`, the model as in training.
//! * **Collective:** those of the forward pass, and a sum of one number.
//! * **Cost:** a third of the arithmetic of training on these rows.

use crate::model::batch::TokenBatch;
use crate::tensor::math::Real;
use crate::train::rows::{RankRows, unreadable};
use crate::train::text::Text;
use crate::train::trainer::{Parts, Trainer};
use maypole::Result;

/// The least number of tokens that the loss of a run is a mean of: 512 rows of 64.
pub const JUDGED: usize = 1 << 15;

/// Rows of a forward pass.
const EACH: usize = 8;

impl<T: Real> Trainer<T> {
    /// The mean loss of a token of `text`, in nats, over at least `tokens` tokens: rows that begin at
    /// equal distances. The auxiliary loss of experts is not in it. All ranks call it, and get the
    /// same number.
    ///
    /// # Errors
    /// As every collective. [`maypole::Error::Invalid`], if the text cannot be read.
    pub fn validate(&mut self, text: &Text, tokens: usize) -> Result<f64> {
        let Parts { model, pipeline, store, .. } = &mut self.parts;
        let rows = RankRows::new(&model.config, &self.parallelism, &self.groups);
        let each = self.parallelism.rows_of_a_pass(&model.config, EACH);
        let count = tokens.div_ceil(model.config.context).next_multiple_of(each);
        let batches =
            text.spread(count, each).map_err(|why| unreadable(&self.groups.world, why))?;
        pipeline.judge(model, &mut **store, &rows.dealt(&batches))
    }
}

impl RankRows {
    /// This rank's positions of its replica's `batches`: every n-th of them, with n replicas. All
    /// replicas get equally many, the last of which may count nothing.
    fn dealt(&self, batches: &[TokenBatch]) -> Vec<TokenBatch> {
        let nothing = TokenBatch { weight: 0.0, ..batches[0].clone() };
        let rounds = batches.chunks(self.replica.of);
        let mine = rounds.map(|round| round.get(self.replica.index).unwrap_or(&nothing));
        mine.map(|batch| batch.cut(self.columns())).collect()
    }
}

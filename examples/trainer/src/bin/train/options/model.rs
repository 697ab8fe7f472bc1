//! The sizes of the model, and what its blocks are made of.

use super::{TrainOptions, named};
use anyhow::ensure;
use maypole_trainer::model::config::{Architecture, Config, divisor};

impl TrainOptions {
    /// The model, with the vocabulary that is wanted: a text may give less.
    pub(super) fn sizes(&self) -> anyhow::Result<Config> {
        Ok(Config {
            vocab: self.bpe.unwrap_or(256),
            context: self.context.unwrap_or(64),
            width: self.width.unwrap_or(128),
            heads: self.heads(),
            layers: self.layers.unwrap_or(4),
            experts: self.experts.unwrap_or(0),
            architecture: self.architecture()?,
        })
    }

    fn heads(&self) -> usize {
        self.heads.unwrap_or(4)
    }

    fn architecture(&self) -> anyhow::Result<Architecture> {
        let heads = self.heads();
        let kv_heads = self.kv_heads.unwrap_or_else(|| divisor(heads, heads / 2));
        let models = [("gpt", Architecture::Gpt), ("llama", Architecture::Llama { kv_heads })];
        let architecture = named(&self.model, "model", &models)?;
        ensure!(
            self.kv_heads.is_none() || architecture != Architecture::Gpt,
            "--kv-heads: every head of a gpt has keys of its own; \
             leave it out, or give --model llama"
        );
        Ok(architecture)
    }
}

//! The section of the model: its sizes, what its blocks are made of, and its experts.

use super::{named, section};
use anyhow::ensure;
use maypole_trainer::expert_parallel::router::Router;
use maypole_trainer::model::config::{Architecture, Config, divisor};
use serde::{Deserialize, Serialize};

section! {
    #[command(next_help_heading = "The model")]
    ModelOptions {
        /// What blocks are made of: gpt; llama (RMS norms, rotary positions, SwiGLU, grouped queries,
        /// no biases) [default: gpt].
        model: String,
        /// Heads of keys and values of a llama, each of which several heads of queries use [default: the
        /// most up to half of --heads that divide them].
        kv_heads: usize,
        /// Width of the model: numbers in the vector of a token [default: 128].
        width: usize,
        /// Tokens of a row [default: 64].
        context: usize,
        /// Number of attention heads [default: 4].
        heads: usize,
        /// Number of blocks [default: 4].
        layers: usize,
        /// Experts of each block; each token goes to two [default: none].
        experts: usize,
        /// Tokens that an expert takes, as a multiple of the even share [default: all].
        capacity: f32,
        /// Tokens of a row over which capacity and the load of experts are reckoned [default: the most
        /// up to 8 that divide it].
        group: usize,
    }
}

impl ModelOptions {
    /// Refuses numbers that are impossible with any other options.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        ensure!(self.group != Some(0), "--group needs a positive number");
        if let Some(capacity) = self.capacity {
            let even = "1 is the even share, and without --capacity experts take all";
            ensure!(
                capacity.is_finite() && capacity > 0.0,
                "--capacity {capacity} is no share of tokens: {even}"
            );
        }
        Ok(())
    }

    /// The model, with `vocab` tokens.
    pub(super) fn build(&self, vocab: usize) -> anyhow::Result<Config> {
        let config = Config {
            vocab,
            context: self.context.unwrap_or(64),
            width: self.width.unwrap_or(128),
            heads: self.heads(),
            layers: self.layers.unwrap_or(4),
            experts: self.experts.unwrap_or(0),
            architecture: self.architecture()?,
        };
        config.check().map_err(anyhow::Error::msg)?;
        Ok(config)
    }

    /// The rule by which tokens choose experts, if the model has some.
    pub(super) fn router(&self, config: &Config) -> Option<Router> {
        let group = self.group.unwrap_or_else(|| divisor(config.context, 8));
        let (experts, capacity) = (config.experts, self.capacity);
        (experts > 0).then_some(Router { experts, top: 2, group, capacity, balance: 0.01 })
    }

    /// Refuses options that change nothing in this model.
    pub(super) fn check_effects(&self, config: &Config) -> anyhow::Result<()> {
        for (name, given) in
            [("capacity", self.capacity.is_some()), ("group", self.group.is_some())]
        {
            ensure!(
                !given || config.experts > 0,
                "--{name} needs experts, and the model has none: see --experts"
            );
        }
        Ok(())
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

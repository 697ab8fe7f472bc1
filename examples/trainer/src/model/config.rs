//! The sizes of the model, and its architecture.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What blocks are made of.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Architecture {
    /// That of GPT-2: layer normalisation, learnt positions, GELU, biases.
    #[default]
    Gpt,
    /// That of Llama: RMS normalisation, rotary positions, SwiGLU, grouped queries, no biases.
    Llama {
        /// Heads of keys and values, which divide those of queries.
        kv_heads: usize,
    },
}

impl Architecture {
    /// Its name as `--model` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gpt => "gpt",
            Self::Llama { .. } => "llama",
        }
    }

    fn is_gpt(&self) -> bool {
        *self == Self::Gpt
    }
}

/// The sizes of a model.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The number of different tokens.
    pub vocab: usize,
    /// Tokens of a row.
    pub context: usize,
    /// Numbers of a token's vector.
    pub width: usize,
    /// Heads of attention, which divide the width.
    pub heads: usize,
    /// Blocks.
    pub layers: usize,
    /// Experts of each block's feed-forward part; 0 means a dense part without a router.
    pub experts: usize,
    /// What blocks are made of.
    #[serde(skip_serializing_if = "Architecture::is_gpt")]
    pub architecture: Architecture,
}

impl fmt::Display for Config {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { vocab, context, width, heads, layers, experts, architecture } = self;
        write!(out, "{layers} blocks of width {width} with {heads} heads and {experts} experts, ")?;
        if let Architecture::Llama { kv_heads } = architecture {
            write!(out, "{kv_heads} heads of keys as in a Llama, ")?;
        }
        write!(out, "{vocab} different tokens, {context} in a row")
    }
}

impl Default for Config {
    /// The model of the tests: a quarter of a million parameters.
    fn default() -> Self {
        Self {
            vocab: 256,
            context: 64,
            width: 64,
            heads: 4,
            layers: 4,
            experts: 0,
            architecture: Architecture::Gpt,
        }
    }
}

/// Returns the sentence `why` from a check, unless it is `ok`.
macro_rules! ensure {
    ($ok:expr, $($why:tt)+) => {
        let is_ok: bool = $ok;
        if !is_ok {
            return Err(format!($($why)+));
        }
    };
}
pub(crate) use ensure;

/// The most parameters of a model: with AdamW they take a TiB.
const MOST: f64 = (1u64 << 36) as f64;
/// The most tensors of a model: their list takes some hundred MiB.
const MOST_TENSORS: f64 = (1u64 << 20) as f64;

impl Config {
    /// Checks that a model of these sizes is possible.
    ///
    /// # Errors
    /// A sentence that names the size by its option of `train`, and a size to give instead.
    pub fn check(&self) -> Result<(), String> {
        let Self { vocab, context, width, heads, layers, experts, .. } = *self;
        for (name, size) in [("context", context), ("width", width), ("heads", heads)] {
            ensure!(size != 0, "--{name} 0: a model has at least 1");
        }
        // An estimate. The list of tensors would give the exact number, but may be too long to
        // make.
        let [vocab, context, wide, layers] =
            [vocab, context, width, layers].map(|size| size as f64);
        let block = (4.0 + 8.0 * experts.max(1) as f64) * wide * wide;
        let parameters = (2.0 * vocab + context) * wide + layers * block;
        ensure!(
            parameters <= MOST,
            "--width, --context, --layers and --experts make about {parameters:.0e} parameters, and \
             {MOST:.0e} is the most: give less"
        );
        let tensors = layers * (12.0 + 4.0 * experts as f64);
        ensure!(
            tensors <= MOST_TENSORS,
            "--layers and --experts make about {tensors:.0e} tensors, \
                 and {MOST_TENSORS:.0e} is the most: give less"
        );
        ensure!(
            width.is_multiple_of(heads),
            "{heads} heads do not divide a width of {width}: give --width {} or --heads {}",
            width.next_multiple_of(heads),
            divisor(width, heads)
        );
        match self.architecture {
            Architecture::Gpt => Ok(()),
            Architecture::Llama { kv_heads } => self.check_llama(kv_heads),
        }
    }

    fn check_llama(&self, kv_heads: usize) -> Result<(), String> {
        let Self { width, heads, experts, .. } = *self;
        ensure!(
            experts == 0,
            "--experts {experts}: the blocks of --model llama have one feed-forward part each: \
                 leave out --experts, or give --model gpt"
        );
        ensure!(
            kv_heads > 0 && heads.is_multiple_of(kv_heads),
            "--kv-heads {kv_heads}: as many queries use each head of keys, and {heads} heads \
             are no multiple of it: give --kv-heads {}",
            divisor(heads, kv_heads.max(1))
        );
        let size = width / heads;
        ensure!(
            size.is_multiple_of(2),
            "--model llama turns pairs of numbers by their position, and a head of {size} has \
                 an odd number of them: give --width {}",
            2 * width
        );
        Ok(())
    }

    /// Numbers between the matrices of a feed-forward part. A Llama has three matrices where a GPT
    /// has two, so it has two thirds of the hidden numbers, rounded up until heads divide them.
    pub fn hidden(&self) -> usize {
        match self.architecture {
            Architecture::Gpt => 4 * self.width,
            Architecture::Llama { .. } => (8 * self.width).div_ceil(3).next_multiple_of(self.heads),
        }
    }

    /// Heads of keys and values.
    pub fn kv_heads(&self) -> usize {
        match self.architecture {
            Architecture::Gpt => self.heads,
            Architecture::Llama { kv_heads } => kv_heads,
        }
    }

    /// Parameters of the whole model.
    pub fn parameters(&self) -> usize {
        self.tensors().last().map_or(0, |last| last.range().end)
    }
}

/// The most heads that are looked at: no model has as many.
const MOST_HEADS: usize = 1 << 16;

/// Returns the greatest number up to `most` that divides `whole`, at least 1. Tries no number
/// above 65,536, so that an absurd number of heads is refused immediately.
pub fn divisor(whole: usize, most: usize) -> usize {
    let most = most.min(whole).min(MOST_HEADS);
    (1..=most).rev().find(|part| whole.is_multiple_of(*part)).unwrap_or(1)
}

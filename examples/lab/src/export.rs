//! Export to other tools: the weights of a checkpoint as one safetensors file, tensors by name.
//!
//! The file's metadata has one entry, `config`: a JSON object with the configuration of the model
//! ([`ExportedConfig`]). `pytorch/sample.py` reads such a file and writes text with it.

use maypole_trainer::model::config::{Architecture, Config};
use maypole_trainer::model::layout::ParameterLayout;
use maypole_trainer::tensor::{norm, rotary};
use maypole_trainer::train::bpe::Bpe;
use maypole_trainer::train::checkpoint::files::replace;
use maypole_trainer::train::checkpoint::load::read_whole;
use maypole_trainer::train::checkpoint::manifest::Manifest;
use maypole_trainer::train::checkpoint::{CheckpointError, failed};
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde::Serialize;
use std::collections::HashMap;
use std::io;
use std::path::Path;

/// The metadata of exported weights.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExportedConfig {
    /// `gpt` or `llama`.
    pub architecture: &'static str,
    /// Different tokens.
    pub vocab: usize,
    /// Tokens of a row.
    pub context: usize,
    /// Numbers of a token's vector.
    pub width: usize,
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys and of values: query head `h` uses number `h / (heads / kv_heads)`.
    pub kv_heads: usize,
    /// Blocks.
    pub layers: usize,
    /// Numbers between the matrices of a feed-forward part.
    pub hidden: usize,
    /// `gelu_tanh` or `swiglu`.
    pub activation: &'static str,
    /// `layer_norm` or `rms_norm`.
    pub norm: &'static str,
    /// What norms add to the variance, or to the mean square.
    pub eps: f64,
    /// The base of rotary angles, if positions are rotary. Numbers `i` and `i + size/2` of a head
    /// are turned together. Without it, positions are a table.
    pub rope_base: Option<f64>,
    /// Whether the head's matrix is the table of tokens.
    pub tied: bool,
    /// Experts of each block; none, if there is one feed-forward part.
    pub experts: usize,
    /// Experts that each token goes to.
    pub experts_per_token: usize,
    /// The pairs of tokens that are merged into token 256, 257 and so on, in the order of the merges;
    /// tokens below 256 are bytes. Absent if the checkpoint does not contain its vocabulary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merges: Option<Bpe>,
    /// Steps done.
    pub step: u64,
}

impl ExportedConfig {
    /// A model of `config` before its first step, without a vocabulary.
    pub fn of(config: &Config) -> Self {
        let Config { vocab, context, width, heads, layers, experts, architecture } = *config;
        let gpt = architecture == Architecture::Gpt;
        Self {
            architecture: architecture.name(),
            vocab,
            context,
            width,
            heads,
            kv_heads: config.kv_heads(),
            layers,
            hidden: config.hidden(),
            activation: if gpt { "gelu_tanh" } else { "swiglu" },
            norm: if gpt { "layer_norm" } else { "rms_norm" },
            eps: norm::EPSILON,
            rope_base: (!gpt).then_some(rotary::BASE),
            tied: false,
            experts,
            experts_per_token: 0,
            merges: None,
            step: 0,
        }
    }

    fn of_checkpoint(manifest: &Manifest) -> Self {
        let settings = manifest.settings.as_ref();
        let router = settings.and_then(|settings| settings.router);
        let merges = settings.map(|settings| settings.bpe.clone());
        Self {
            experts_per_token: router.map_or(0, |router| router.top),
            merges: merges.filter(|bpe| bpe.vocab() == manifest.config.vocab),
            step: manifest.step,
            ..Self::of(&manifest.config)
        }
    }
}

/// Writes the weights of the checkpoint in `place` to `file`, which is complete or absent, and
/// returns its metadata. Every file of the checkpoint is compared with its digest first.
///
/// # Errors
/// [`CheckpointError`].
pub fn export(place: &Path, file: &Path) -> Result<ExportedConfig, CheckpointError> {
    let (manifest, weights) = read_whole(place)?;
    let layout = ParameterLayout::whole(&manifest.config);
    let tensors = layout.entries.iter().map(|entry| {
        let shape = if entry.full[1] == 1 { vec![entry.full[0]] } else { entry.full.to_vec() };
        (entry.name.as_str(), shape, &weights[entry.global..][..entry.len()])
    });
    let views = tensors.map(|(name, shape, weights)| {
        let view = TensorView::new(Dtype::F32, shape, bytemuck::cast_slice(weights));
        (name, view.expect("four bytes a number"))
    });
    let config = ExportedConfig::of_checkpoint(&manifest);
    let text = serde_json::to_string(&config).expect("a configuration is JSON");
    let metadata = HashMap::from([("config".to_owned(), text)]);
    let bytes = safetensors::serialize(views, Some(metadata));
    replace(file, &bytes.map_err(|why| failed(file)(io::Error::other(why)))?)?;
    Ok(config)
}

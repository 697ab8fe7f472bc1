//! The settings of a run that decide its result.

use crate::expert_parallel::router::Router;
use crate::tensor::precision::Precision;
use crate::train::bpe::Bpe;
use crate::train::text::DataFingerprint;
use serde::{Deserialize, Serialize};

/// The settings of a run that are not in its trainer.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct RunSettings {
    /// Rows of a global batch.
    pub rows: usize,
    /// The seed of weights and rows.
    pub seed: u64,
    /// The numbers that layers compute with.
    pub precision: Precision,
    /// The routing of tokens to experts, if the model has experts.
    pub router: Option<Router>,
    /// The name of the deliberate mistake, if there is one.
    pub fault: Option<String>,
    /// The text and its vocabulary.
    pub data: DataFingerprint,
    /// What each token stands for. Checkpoints of older builds have no merges, whatever the
    /// vocabulary.
    #[serde(default, skip_serializing_if = "Bpe::is_bytes")]
    pub bpe: Bpe,
}

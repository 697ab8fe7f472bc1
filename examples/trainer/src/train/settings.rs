//! What a checkpoint records of a run besides its trainer.

use crate::expert_parallel::router::Router;
use crate::train::bpe::Bpe;
use crate::train::text::DataFingerprint;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What a run is besides its trainer: its text, and the options that it was given.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct RunRecord {
    /// The routing of tokens to experts, if the model has experts.
    pub router: Option<Router>,
    /// The text and its vocabulary.
    pub data: DataFingerprint,
    /// What each token stands for. Checkpoints of older builds have no merges, whatever the
    /// vocabulary.
    #[serde(default, skip_serializing_if = "Bpe::is_bytes")]
    pub bpe: Bpe,
    /// The options by name, which the program that trains reads again.
    #[serde(flatten)]
    pub options: Map<String, Value>,
}

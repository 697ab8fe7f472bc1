//! The settings of a run outside its trainer, as a checkpoint records them.

use crate::expert_parallel::router::Router;
use crate::train::bpe::Bpe;
use crate::train::text::DataFingerprint;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The text and the options of a run.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct RunRecord {
    /// The routing of tokens to experts, if the model has experts.
    pub router: Option<Router>,
    /// The text and its vocabulary.
    pub data: DataFingerprint,
    /// The string of each token. Checkpoints of older builds have no merges, for any vocabulary.
    #[serde(default, skip_serializing_if = "Bpe::is_bytes")]
    pub bpe: Bpe,
    /// The options by name, which the program that trains reads again.
    #[serde(flatten)]
    pub options: Map<String, Value>,
}

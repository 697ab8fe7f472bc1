//! The sizes of a transformer, as a file gives them; its parameters and its operations.
//!
//! What it does: reads the sizes of a decoder from TOML, and counts. `d`: the width; `q`, `k`: the
//! widths of all query heads and of all key-value heads together; `f`: the hidden width; `V`: the
//! vocabulary; `T`: the sequence; `m`: matrices of a feed-forward part, 3 if it is gated, else 2.
//!
//! ```text
//! attention       2 d q + 2 d k        query and output, key and value
//! feed-forward    m d f                of a dense layer, or of each expert
//! norms           2 d                  of a layer, and d at the end
//! router          d experts            of a layer with experts
//! vocabulary      d V                  twice unless tied
//! ```
//!
//! A forward pass does two operations (a multiplication and an addition) for each token and each
//! parameter of a matrix that the token meets, and `4 T q` for the scores of attention and the sum
//! of values. With a causal mask half of the scores and of the sum is needed. A backward
//! pass does twice as much as a forward pass.
//!
//! What is sharded, which collective runs where: nothing here.
//!
//! Source: Chowdhery et al., "PaLM" (2022), appendix B, for the count of operations.

use serde::{Deserialize, Serialize};

/// The sizes of a decoder-only transformer.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ModelSizes {
    /// Blocks.
    pub layers: usize,
    /// Numbers in the vector of a token.
    pub width: usize,
    /// Query heads of attention.
    pub heads: usize,
    /// Key-value heads, which groups of query heads share; 0 in a file means as many as `heads`.
    #[serde(default)]
    pub key_value_heads: usize,
    /// Numbers of a head; 0 in a file means `width / heads`.
    #[serde(default)]
    pub head_width: usize,
    /// Numbers between the matrices of a feed-forward part; 0 in a file means `4 * width`.
    #[serde(default)]
    pub hidden: usize,
    /// Whether a third matrix gates the hidden numbers, as in SwiGLU.
    #[serde(default)]
    pub gated: bool,
    /// Number of different tokens.
    pub vocabulary: usize,
    /// Tokens of a sequence.
    pub sequence: usize,
    /// Experts of a layer; 0 means none.
    #[serde(default)]
    pub experts: usize,
    /// Experts that each token goes to.
    #[serde(default)]
    pub experts_per_token: usize,
    /// Hidden width of an expert; 0 in a file means `hidden`.
    #[serde(default)]
    pub expert_hidden: usize,
    /// Experts that receive every token, in addition to the chosen ones.
    #[serde(default)]
    pub shared_experts: usize,
    /// Layers that have a dense feed-forward part although others have experts.
    #[serde(default)]
    pub dense_layers: usize,
    /// Whether the embedding of tokens and the head are one matrix.
    #[serde(default)]
    pub tied: bool,
    /// Whether positions have an embedding that is learnt.
    #[serde(default)]
    pub positions: bool,
    /// Whether linear layers and norms have biases.
    #[serde(default)]
    pub biases: bool,
}

/// The presets: name and file.
const PRESETS: [(&str, &str); 7] = [
    ("7b", include_str!("presets/7b.toml")),
    ("8b", include_str!("presets/8b.toml")),
    ("70b", include_str!("presets/70b.toml")),
    ("405b", include_str!("presets/405b.toml")),
    ("175b", include_str!("presets/175b.toml")),
    ("mixtral", include_str!("presets/mixtral.toml")),
    ("deepseek-v3", include_str!("presets/deepseek-v3.toml")),
];

/// The largest size that a file may give.
const MOST_SIZE: usize = 1 << 30;
/// The most parameters of a model.
const MOST_PARAMETERS: f64 = 1e16;

impl ModelSizes {
    /// The most bytes of a file that describes a model. A program that has read one byte more can
    /// stop: [`parse`](Self::parse) refuses the text.
    pub const LONGEST: usize = 64 << 10;

    /// The model called `name`, with its sizes from its publication.
    ///
    /// ```
    /// use maypole_planner::sizes::ModelSizes;
    /// let model = ModelSizes::preset("7b").unwrap();
    /// assert_eq!((model.parameters() / 1e7).round() / 100.0, 6.74);
    /// ```
    ///
    /// # Errors
    /// A sentence that lists the valid names.
    pub fn preset(name: &str) -> Result<Self, String> {
        let found = PRESETS.iter().find(|preset| preset.0 == name);
        let Some((_, text)) = found else {
            let names: Vec<&str> = PRESETS.iter().map(|preset| preset.0).collect();
            return Err(format!("no model is called '{name}'; there are {}", names.join(", ")));
        };
        Self::parse(text)
    }

    /// Reads a model from TOML.
    ///
    /// ```
    /// use maypole_planner::sizes::ModelSizes;
    /// let text = "layers = 2\nwidth = 64\nheads = 4\nvocabulary = 256\nsequence = 32";
    /// let model = ModelSizes::parse(text).unwrap();
    /// assert_eq!((model.hidden, model.key_value_heads, model.head_width), (256, 4, 16));
    /// ```
    ///
    /// # Errors
    /// A sentence that names the invalid line, or the invalid size and the valid ones.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > Self::LONGEST {
            let most = Self::LONGEST >> 10;
            return Err(format!("a description of a model has at most {most} KiB"));
        }
        let mut model: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        model.fill_in()?;
        model.check()?;
        Ok(model)
    }

    fn fill_in(&mut self) -> Result<(), String> {
        if self.heads == 0 {
            return Err("heads = 0: a model has at least 1".to_owned());
        }
        if self.key_value_heads == 0 {
            self.key_value_heads = self.heads;
        }
        if self.head_width == 0 {
            if !self.width.is_multiple_of(self.heads) {
                return Err(format!(
                    "{} heads do not divide a width of {}: give head-width",
                    self.heads, self.width
                ));
            }
            self.head_width = self.width / self.heads;
        }
        if self.hidden == 0 {
            self.hidden = self.width.saturating_mul(4);
        }
        if self.expert_hidden == 0 {
            self.expert_hidden = self.hidden;
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        let sizes = [
            ("layers", self.layers),
            ("width", self.width),
            ("heads", self.heads),
            ("key-value-heads", self.key_value_heads),
            ("head-width", self.head_width),
            ("hidden", self.hidden),
            ("vocabulary", self.vocabulary),
            ("sequence", self.sequence),
            ("expert-hidden", self.expert_hidden),
        ];
        for (name, size) in sizes {
            if size == 0 {
                return Err(format!("{name} = 0: a model has at least 1"));
            }
        }
        let counts = [("experts", self.experts), ("shared-experts", self.shared_experts)];
        let large = sizes.into_iter().chain(counts).find(|(_, size)| *size > MOST_SIZE);
        if let Some((name, size)) = large {
            return Err(format!("{name} = {size}: the most is {MOST_SIZE}"));
        }
        self.check_experts()?;
        if self.parameters() > MOST_PARAMETERS {
            return Err(format!(
                "these sizes make {:.1e} parameters, and {MOST_PARAMETERS:.0e} is the most",
                self.parameters()
            ));
        }
        if !self.heads.is_multiple_of(self.key_value_heads) {
            return Err(format!(
                "{} key-value heads do not divide {} heads: each serves equally many query heads",
                self.key_value_heads, self.heads
            ));
        }
        Ok(())
    }

    fn check_experts(&self) -> Result<(), String> {
        let Self { experts, experts_per_token: top, dense_layers: dense, layers, .. } = *self;
        if experts > 0 && !(1..=experts).contains(&top) {
            return Err(format!(
                "experts-per-token = {top}: each token goes to 1 to {experts} of {experts} experts"
            ));
        }
        if experts == 0 && (top > 0 || self.shared_experts > 0 || dense > 0) {
            let which = "experts-per-token, shared-experts and dense-layers";
            return Err(format!("{which} need a model with experts, and this one has none"));
        }
        if dense > layers {
            return Err(format!("dense-layers = {dense}: the model has {layers} layers"));
        }
        Ok(())
    }

    /// Matrices of a feed-forward part.
    pub(crate) fn matrices(&self) -> f64 {
        if self.gated { 3.0 } else { 2.0 }
    }

    /// Width of all query heads together.
    pub(crate) fn query_width(&self) -> f64 {
        self.heads as f64 * self.head_width as f64
    }

    /// Width of all key-value heads together.
    pub(crate) fn key_width(&self) -> f64 {
        self.key_value_heads as f64 * self.head_width as f64
    }

    /// The part of the layers that has experts.
    pub(crate) fn expert_share(&self) -> f64 {
        if self.experts == 0 {
            return 0.0;
        }
        (self.layers - self.dense_layers) as f64 / self.layers as f64
    }

    /// Parameters of attention in a layer, those that tensor parallelism divides.
    pub(crate) fn attention_parameters(&self) -> f64 {
        let width = self.width as f64;
        let matrices = 2.0 * width * self.query_width() + 2.0 * width * self.key_width();
        let biases = self.query_width() + 2.0 * self.key_width();
        matrices + if self.biases { biases } else { 0.0 }
    }

    /// Replicated parameters of a layer under tensor parallelism: norms, and biases of the outputs that are
    /// added to the residual stream.
    pub(crate) fn replicated_parameters(&self) -> f64 {
        let width = self.width as f64;
        let router = self.expert_share() * self.experts as f64 * width;
        2.0 * width + router + if self.biases { 4.0 * width } else { 0.0 }
    }

    fn feed_forward(&self, hidden: usize) -> f64 {
        let hidden = hidden as f64;
        let biases = if self.biases { (self.matrices() - 1.0) * hidden } else { 0.0 };
        self.matrices() * self.width as f64 * hidden + biases
    }

    /// Parameters of a dense feed-forward part: the mean of all layers, shared experts included.
    pub(crate) fn dense_feed_forward(&self) -> f64 {
        let shared = self.shared_experts as f64 * self.feed_forward(self.expert_hidden);
        let share = self.expert_share();
        (1.0 - share) * self.feed_forward(self.hidden) + share * shared
    }

    /// Parameters of all experts of a layer: the mean of all layers.
    pub(crate) fn expert_parameters(&self) -> f64 {
        self.expert_share() * self.experts as f64 * self.feed_forward(self.expert_hidden)
    }

    /// Parameters of the vocabulary's matrix.
    pub(crate) fn vocabulary_parameters(&self) -> f64 {
        self.vocabulary as f64 * self.width as f64
    }

    /// Parameters of the learnt positions.
    pub(crate) fn position_parameters(&self) -> f64 {
        if self.positions { self.sequence as f64 * self.width as f64 } else { 0.0 }
    }

    /// Parameters of the last norm.
    pub(crate) fn last_norm(&self) -> f64 {
        self.width as f64 * if self.biases { 2.0 } else { 1.0 }
    }

    /// All parameters.
    pub fn parameters(&self) -> f64 {
        let layer = self.attention_parameters()
            + self.replicated_parameters()
            + self.dense_feed_forward()
            + self.expert_parameters();
        let vocabulary = if self.tied { 1.0 } else { 2.0 } * self.vocabulary_parameters();
        self.layers as f64 * layer + vocabulary + self.position_parameters() + self.last_norm()
    }

    /// Parameters of the matrices of a layer that one token meets.
    pub(crate) fn active_in_layer(&self) -> f64 {
        let experts = if self.experts == 0 {
            0.0
        } else {
            self.expert_parameters() * self.experts_per_token as f64 / self.experts as f64
        };
        self.attention_parameters() + self.dense_feed_forward() + experts
    }

    /// Operations of the scores of attention and the sum of values in a forward pass of one token
    /// through a layer, without regard to a causal mask.
    pub(crate) fn attention_operations(&self) -> f64 {
        4.0 * self.sequence as f64 * self.query_width()
    }

    /// Operations of the model for one token, forward and backward, without a second forward pass:
    /// the numerator of the model FLOP utilisation (MFU) as PaLM defines it.
    ///
    /// ```
    /// use maypole_planner::sizes::ModelSizes;
    /// // About 6 operations a parameter, and the scores of attention.
    /// let model = ModelSizes::preset("7b").unwrap();
    /// let operations = model.operations_per_token();
    /// assert!((operations / (6.0 * model.parameters()) - 1.14).abs() < 0.01);
    /// ```
    pub fn operations_per_token(&self) -> f64 {
        let layer = 2.0 * self.active_in_layer() + self.attention_operations();
        let head = 2.0 * self.vocabulary_parameters();
        3.0 * (self.layers as f64 * layer + head)
    }
}

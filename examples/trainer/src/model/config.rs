//! The sizes of the model, and the list of its tensors.

use crate::model::layout::{Initialization, ModelPart, ModelTensor, TensorCut};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The sizes of a GPT.
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
}

impl fmt::Display for Config {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { vocab, context, width, heads, layers, experts } = self;
        write!(out, "{layers} blocks of width {width} with {heads} heads and {experts} experts, ")?;
        write!(out, "{vocab} different tokens, {context} in a row")
    }
}

impl Default for Config {
    /// The model of the tests: a quarter of a million parameters.
    fn default() -> Self {
        Self { vocab: 256, context: 64, width: 64, heads: 4, layers: 4, experts: 0 }
    }
}

/// Rows are cut: each rank has some outputs.
const ROWS: Option<TensorCut> = Some(TensorCut { dimension: 0, groups: 1 });
/// Columns are cut: each rank has some inputs.
const COLUMNS: Option<TensorCut> = Some(TensorCut { dimension: 1, groups: 1 });
/// Rows of q, of k and of v are cut: each rank has some heads.
const HEADS: Option<TensorCut> = Some(TensorCut { dimension: 0, groups: 3 });

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
        let Self { vocab, context, width, heads, layers, experts } = *self;
        for (name, size) in [("context", context), ("width", width), ("heads", heads)] {
            if size == 0 {
                return Err(format!("--{name} 0: a model has at least 1"));
            }
        }
        // An estimate. The list of tensors would give the exact number, but may be too long to
        // make.
        let [vocab, context, wide, layers] =
            [vocab, context, width, layers].map(|size| size as f64);
        let block = (4.0 + 8.0 * experts.max(1) as f64) * wide * wide;
        let parameters = (2.0 * vocab + context) * wide + layers * block;
        if parameters > MOST {
            let sizes = "--width, --context, --layers and --experts";
            return Err(format!(
                "{sizes} make about {parameters:.0e} parameters, and {MOST:.0e} is the most: give less"
            ));
        }
        let tensors = layers * (12.0 + 4.0 * experts as f64);
        if tensors > MOST_TENSORS {
            return Err(format!(
                "--layers and --experts make about {tensors:.0e} tensors, \
                 and {MOST_TENSORS:.0e} is the most: give less"
            ));
        }
        if !width.is_multiple_of(heads) {
            let fitting = width.next_multiple_of(heads);
            let fewer = divisor(width, heads);
            let give = format!("give --width {fitting} or --heads {fewer}");
            return Err(format!("{heads} heads do not divide a width of {width}: {give}"));
        }
        Ok(())
    }

    /// Parameters of the whole model.
    pub fn parameters(&self) -> usize {
        self.tensors().iter().map(|tensor| tensor.shape[0] * tensor.shape[1]).sum()
    }

    /// Every tensor of the whole model, in the order of its flat buffer.
    pub(crate) fn tensors(&self) -> Vec<ModelTensor> {
        let mut list = TensorList {
            part: ModelPart::Embed,
            expert: None,
            prefix: "embed.".to_owned(),
            tensors: Vec::new(),
        };
        list.push("token.weight", [self.vocab, self.width], ROWS, Initialization::Random(0.02));
        list.push(
            "position.weight",
            [self.context, self.width],
            None,
            Initialization::Random(0.02),
        );
        for layer in 0..self.layers {
            self.block(&mut list, layer);
        }
        list.part = ModelPart::Head;
        list.prefix = "head.".to_owned();
        list.norm("norm", self.width);
        list.push("weight", [self.vocab, self.width], ROWS, self.random(self.width));
        list.tensors
    }

    fn block(&self, list: &mut TensorList, layer: usize) {
        let width = self.width;
        list.part = ModelPart::Block(layer);
        list.prefix = format!("block.{layer}.");
        list.norm("norm1", width);
        list.push("qkv.weight", [3 * width, width], HEADS, self.random(width));
        list.push("qkv.bias", [3 * width, 1], HEADS, Initialization::Constant(0.0));
        list.push("projection.weight", [width, width], COLUMNS, self.random_residual(width));
        list.push("projection.bias", [width, 1], None, Initialization::Constant(0.0));
        list.norm("norm2", width);
        if self.experts == 0 {
            return self.feed_forward(list);
        }
        list.push("router.weight", [self.experts, width], None, self.random(width));
        for expert in 0..self.experts {
            list.expert = Some(expert);
            list.prefix = format!("block.{layer}.expert.{expert}.");
            self.feed_forward(list);
        }
        list.expert = None;
    }

    fn feed_forward(&self, list: &mut TensorList) {
        let width = self.width;
        let hidden = 4 * self.width;
        list.push("up.weight", [hidden, width], ROWS, self.random(width));
        list.push("up.bias", [hidden, 1], ROWS, Initialization::Constant(0.0));
        list.push("down.weight", [width, hidden], COLUMNS, self.random_residual(hidden));
        list.push("down.bias", [width, 1], None, Initialization::Constant(0.0));
    }

    fn random(&self, inputs: usize) -> Initialization {
        Initialization::Random(0.5 / (inputs as f64).sqrt())
    }

    /// The weights of a layer that adds to the residual stream: the more layers add, the smaller.
    fn random_residual(&self, inputs: usize) -> Initialization {
        Initialization::Random(0.5 / (inputs as f64 * 2.0 * self.layers as f64).sqrt())
    }
}

/// Returns the greatest number up to `most` that divides `whole`, at least 1.
pub fn divisor(whole: usize, most: usize) -> usize {
    (1..=most.min(whole)).rev().find(|part| whole.is_multiple_of(*part)).unwrap_or(1)
}

struct TensorList {
    part: ModelPart,
    expert: Option<usize>,
    prefix: String,
    tensors: Vec<ModelTensor>,
}

impl TensorList {
    fn push(
        &mut self,
        name: &str,
        shape: [usize; 2],
        cut: Option<TensorCut>,
        start: Initialization,
    ) {
        let name = format!("{}{name}", self.prefix);
        self.tensors.push(ModelTensor {
            name,
            part: self.part,
            expert: self.expert,
            shape,
            cut,
            start,
        });
    }

    fn norm(&mut self, name: &str, width: usize) {
        self.push(&format!("{name}.weight"), [width, 1], None, Initialization::Constant(1.0));
        self.push(&format!("{name}.bias"), [width, 1], None, Initialization::Constant(0.0));
    }
}

//! The tensors of the whole model, in the order of its flat buffer: one list for each
//! architecture.

use crate::model::config::{Architecture, Config};
use crate::model::layout::{Initialization, LayoutEntry, ModelPart, TensorCut};
use crate::ranks::shard::Shard;

/// Rows are cut: each rank has some outputs.
const ROWS: Option<TensorCut> = Some(TensorCut { dimension: 0, groups: 1 });
/// Columns are cut: each rank has some inputs.
const COLUMNS: Option<TensorCut> = Some(TensorCut { dimension: 1, groups: 1 });
/// Rows of q, of k and of v are cut: each rank has some heads.
const HEADS: Option<TensorCut> = Some(TensorCut { dimension: 0, groups: 3 });

const ZERO: Initialization = Initialization::Constant(0.0);

impl Config {
    /// Every tensor of the whole model, in the order of its flat buffer.
    pub(crate) fn tensors(&self) -> Vec<LayoutEntry> {
        let mut list = TensorList {
            part: ModelPart::Embed,
            expert: None,
            gathered: false,
            prefix: "embed.".to_owned(),
            tensors: Vec::new(),
        };
        let table = Initialization::Random(0.02);
        list.push("token.weight", [self.vocab, self.width], ROWS, table);
        if self.architecture == Architecture::Gpt {
            list.push("position.weight", [self.context, self.width], None, table);
        }
        for layer in 0..self.layers {
            list.part = ModelPart::Block(layer);
            list.prefix = format!("block.{layer}.");
            match self.architecture {
                Architecture::Gpt => self.gpt_block(&mut list, layer),
                Architecture::Llama { kv_heads } => self.llama_block(&mut list, kv_heads),
            }
        }
        list.part = ModelPart::Head;
        list.prefix = "head.".to_owned();
        self.norm(&mut list, "norm");
        list.push("weight", [self.vocab, self.width], ROWS, self.random(self.width));
        list.tensors
    }

    fn gpt_block(&self, list: &mut TensorList, layer: usize) {
        let width = self.width;
        self.norm(list, "norm1");
        list.push("qkv.weight", [3 * width, width], HEADS, self.random(width));
        list.push("qkv.bias", [3 * width, 1], HEADS, ZERO);
        list.push("projection.weight", [width, width], COLUMNS, self.random_residual(width));
        list.push("projection.bias", [width, 1], None, ZERO);
        self.norm(list, "norm2");
        if self.experts == 0 {
            return self.feed_forward(list);
        }
        list.gathered = true;
        list.push("router.weight", [self.experts, width], None, self.random(width));
        for expert in 0..self.experts {
            list.expert = Some(expert);
            list.prefix = format!("block.{layer}.expert.{expert}.");
            self.feed_forward(list);
        }
        list.expert = None;
        list.gathered = false;
    }

    fn feed_forward(&self, list: &mut TensorList) {
        let width = self.width;
        let hidden = self.hidden();
        list.push("up.weight", [hidden, width], ROWS, self.random(width));
        list.push("up.bias", [hidden, 1], ROWS, ZERO);
        list.push("down.weight", [width, hidden], COLUMNS, self.random_residual(hidden));
        list.push("down.bias", [width, 1], None, ZERO);
    }

    fn llama_block(&self, list: &mut TensorList, kv_heads: usize) {
        let width = self.width;
        let hidden = self.hidden();
        let keys = width / self.heads * kv_heads;
        self.norm(list, "norm1");
        list.push("q.weight", [width, width], ROWS, self.random(width));
        list.push("k.weight", [keys, width], ROWS, self.random(width));
        list.push("v.weight", [keys, width], ROWS, self.random(width));
        list.push("projection.weight", [width, width], COLUMNS, self.random_residual(width));
        self.norm(list, "norm2");
        list.push("gate.weight", [hidden, width], ROWS, self.random(width));
        list.push("up.weight", [hidden, width], ROWS, self.random(width));
        list.push("down.weight", [width, hidden], COLUMNS, self.random_residual(hidden));
    }

    fn norm(&self, list: &mut TensorList, name: &str) {
        let vector = [self.width, 1];
        list.push(&format!("{name}.weight"), vector, None, Initialization::Constant(1.0));
        if self.architecture == Architecture::Gpt {
            list.push(&format!("{name}.bias"), vector, None, ZERO);
        }
    }

    fn random(&self, inputs: usize) -> Initialization {
        Initialization::Random(0.5 / (inputs as f64).sqrt())
    }

    /// The weights of a layer that adds to the residual stream: the more layers add, the smaller.
    fn random_residual(&self, inputs: usize) -> Initialization {
        Initialization::Random(0.5 / (inputs as f64 * 2.0 * self.layers as f64).sqrt())
    }
}

struct TensorList {
    part: ModelPart,
    expert: Option<usize>,
    gathered: bool,
    prefix: String,
    tensors: Vec<LayoutEntry>,
}

impl TensorList {
    fn push(
        &mut self,
        name: &str,
        shape: [usize; 2],
        cut: Option<TensorCut>,
        start: Initialization,
    ) {
        let global = self.tensors.last().map_or(0, |last| last.range().end);
        self.tensors.push(LayoutEntry {
            name: format!("{}{name}", self.prefix),
            part: self.part,
            expert: self.expert,
            full: shape,
            shape,
            offset: global,
            global,
            cut: cut.map(|cut| (cut, Shard::WHOLE)),
            gathered: self.gathered,
            start,
        });
    }
}

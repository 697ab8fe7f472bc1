//! The place of every parameter: the one table from which sharding, checkpoints and resharding
//! work.
//!
//! A rank keeps its parameters in one flat buffer and their gradients in another of the same form.
//! So a bucket of data parallelism, a shard of ZeRO and a gathered block of FSDP are sub-slices of
//! a buffer, and no axis depends on the meaning of the numbers. The [`ModelShare`] of a rank determines
//! its numbers: some layers (pipeline), some rows or columns of each matrix (tensor), some experts
//! (expert).
//!
//! A [`LayoutEntry`] holds the offset of a tensor in the rank's buffer *and* its elements of the
//! whole model. By the numbers in the whole model two meshes can be compared: initial weight
//! `i` is a function of the seed and of its number `i` in the whole model, and any mesh can load
//! the checkpoint of any other.

use crate::model::config::Config;
use crate::ranks::mesh::MeshAxis;
use crate::ranks::shard::Shard;
use crate::tensor::math::Real;
use crate::tensor::random::{RandomUse, centred};
use std::ops::Range;

/// The part of the model that a rank has. Several ranks may have the same part.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ModelShare {
    /// The part of each matrix that tensor parallelism cuts, and of the vocabulary.
    pub tensor: Shard,
    /// The part of the experts.
    pub expert: Shard,
    /// The numbers of the layers, ascending.
    pub layers: Vec<usize>,
    /// True if the rank has the embedding.
    pub embed: bool,
    /// True if the rank has the last norm and the head.
    pub head: bool,
}

impl ModelShare {
    /// The whole model.
    pub fn whole(config: &Config) -> Self {
        let layers = (0..config.layers).collect();
        Self { tensor: Shard::WHOLE, expert: Shard::WHOLE, layers, embed: true, head: true }
    }

    fn holds(&self, tensor: &LayoutEntry, config: &Config) -> bool {
        let part = match tensor.part {
            ModelPart::Embed => self.embed,
            ModelPart::Block(layer) => self.layers.contains(&layer),
            ModelPart::Head => self.head,
        };
        part && tensor
            .expert
            .is_none_or(|expert| self.expert.range(config.experts).contains(&expert))
    }
}

/// A part of the model that runs as one unit. Its parameters lie together.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ModelPart {
    /// The tables of tokens and positions.
    Embed,
    /// The layer of this number in the whole model.
    Block(usize),
    /// The last norm and the matrix that gives logits.
    Head,
}

/// The values of a tensor before the first step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Initialization {
    /// All elements have this value.
    Constant(f64),
    /// Random, with mean 0 and this standard deviation.
    Random(f64),
}

/// The cut of a tensor by tensor parallelism. Dimension `dimension` consists of `groups` equal
/// parts, and each part is cut (q, k and v are three groups of rows of one matrix).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TensorCut {
    /// 0 for rows, 1 for columns.
    pub dimension: usize,
    /// The number of equal parts, each of which is cut.
    pub groups: usize,
}

/// The placement of a tensor along an axis of the mesh, as DTensor of PyTorch names it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Placement {
    /// Each rank has another part, or another tensor.
    Shard,
    /// All ranks have equal numbers.
    Replicate,
    /// Each rank has one term of a sum.
    Partial,
}

/// A tensor, or a rank's part of it, and where it lies.
#[derive(Clone, Debug, PartialEq)]
pub struct LayoutEntry {
    /// Its name in checkpoints, such as `block.3.qkv.weight`.
    pub name: String,
    /// The part of the model that it belongs to.
    pub part: ModelPart,
    /// The expert that it belongs to, if any.
    pub expert: Option<usize>,
    /// Rows and columns of the whole tensor. A vector has one column.
    pub full: [usize; 2],
    /// Rows and columns of this rank's part.
    pub shape: [usize; 2],
    /// Its first element in this rank's flat buffer.
    pub offset: usize,
    /// The first element of the whole tensor in the flat buffer of the whole model.
    pub global: usize,
    /// The cut and the part of this rank, if tensor parallelism cuts the tensor. Without a cut all
    /// ranks of a tensor group have the same numbers.
    pub cut: Option<(TensorCut, Shard)>,
    /// True if ranks of a tensor group apply it to the tokens of all of them, which sequence
    /// parallelism gathers first: the router, and what belongs to an expert.
    pub gathered: bool,
    /// The values before the first step.
    pub start: Initialization,
}

/// Some consecutive elements: where they are here and in the whole model.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LayoutPiece {
    /// The first, in this rank's flat buffer.
    pub local: usize,
    /// The first, in the flat buffer of the whole model.
    pub global: usize,
    /// The number of elements.
    pub len: usize,
}

impl LayoutEntry {
    /// Returns the placement of the weights along `axis`, and of their gradients at the end of the
    /// backward pass, if `sequence` parallelism divides tokens over `tp` or not. From this table
    /// follow the sums of gradients and the counts of their norm:
    ///
    /// ```text
    ///                         dp, cp        pp       ep            tp         tp with sequence
    /// matrix of an expert     R, partial    shard    shard         shard      shard
    /// its last bias           R, partial    shard    shard         R, R       R, R
    /// router                  R, partial    shard    R, partial    R, R       R, R
    /// other matrix, its bias  R, partial    shard    R, partial    shard      shard
    /// norm, other last bias   R, partial    shard    R, partial    R, R       R, partial
    /// ```
    pub fn placement(&self, axis: MeshAxis, sequence: bool) -> [Placement; 2] {
        match axis {
            MeshAxis::Pp => [Placement::Shard; 2],
            MeshAxis::Ep if self.expert.is_some() => [Placement::Shard; 2],
            MeshAxis::Tp if self.cut.is_some() => [Placement::Shard; 2],
            MeshAxis::Tp if self.gathered || !sequence => [Placement::Replicate; 2],
            _ => [Placement::Replicate, Placement::Partial],
        }
    }

    /// True if ranks along `axis` have terms of its gradient, with sequence parallelism over `tp`.
    pub fn is_partial(&self, axis: MeshAxis) -> bool {
        self.placement(axis, true)[1] == Placement::Partial
    }

    /// Returns the number of this rank's elements.
    pub fn len(&self) -> usize {
        self.shape[0] * self.shape[1]
    }

    /// True if this rank has no element of it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns its elements in this rank's flat buffer.
    pub fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.len()
    }

    /// Returns its elements as runs that are consecutive here and in the whole model, in the order
    /// of this rank's buffer.
    pub fn pieces(&self) -> Vec<LayoutPiece> {
        let [rows, columns] = self.full;
        let Some((cut, slice)) = self.cut else {
            return vec![LayoutPiece {
                local: self.offset,
                global: self.global,
                len: rows * columns,
            }];
        };
        let (runs, run, unit) = match cut.dimension {
            0 => (cut.groups, rows / cut.groups, columns),
            _ => (rows * cut.groups, columns / cut.groups, 1),
        };
        let mine = slice.range(run);
        let whole = run * unit;
        let len = mine.len() * unit;
        let piece = |nth| LayoutPiece {
            local: self.offset + nth * len,
            global: self.global + nth * whole + mine.start * unit,
            len,
        };
        (0..runs).map(piece).collect()
    }
}

/// A part of the model that runs as one unit, and where its parameters lie.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LayoutUnit {
    /// The part.
    pub part: ModelPart,
    /// Its elements in the flat buffer.
    pub range: Range<usize>,
    /// Its entries in [`ParameterLayout::entries`].
    pub entries: Range<usize>,
}

/// The table of one rank's parameters.
#[derive(Clone, Debug)]
pub struct ParameterLayout {
    /// The sizes of the whole model.
    pub config: Config,
    /// The share of the model that this rank holds.
    pub share: ModelShare,
    /// Tensors in the order of the flat buffer.
    pub entries: Vec<LayoutEntry>,
    /// The units in the order of the forward pass, which is the order of the flat buffer, too.
    pub units: Vec<LayoutUnit>,
}

impl ParameterLayout {
    /// The table of a rank that has `share` of the model.
    pub fn new(config: &Config, share: ModelShare) -> Self {
        let mut layout =
            Self { config: config.clone(), share, entries: Vec::new(), units: Vec::new() };
        for tensor in config.tensors() {
            if layout.share.holds(&tensor, config) {
                layout.push(tensor);
            }
        }
        layout
    }

    /// The table of a rank that has the whole model.
    pub fn whole(config: &Config) -> Self {
        Self::new(config, ModelShare::whole(config))
    }

    /// Adds this rank's part of a tensor of the whole model.
    fn push(&mut self, tensor: LayoutEntry) {
        let slice = self.share.tensor;
        let (offset, nth, part) = (self.len(), self.entries.len(), tensor.part);
        let mut shape = tensor.full;
        if let Some((TensorCut { dimension, groups }, _)) = tensor.cut {
            shape[dimension] = groups * slice.range(shape[dimension] / groups).len();
        }
        let cut = tensor.cut.filter(|_| slice.of > 1).map(|(cut, _)| (cut, slice));
        self.entries.push(LayoutEntry { shape, offset, cut, ..tensor });
        if self.units.last().is_none_or(|unit| unit.part != part) {
            self.units.push(LayoutUnit { part, range: offset..offset, entries: nth..nth });
        }
        let unit = self.units.last_mut().expect("a unit was just added if there was none");
        unit.range.end = offset + shape[0] * shape[1];
        unit.entries.end = nth + 1;
    }

    /// Returns the number of elements of each tensor of unit `unit`, in the order of the flat buffer.
    pub fn tensors(&self, unit: usize) -> Vec<usize> {
        self.entries[self.units[unit].entries.clone()].iter().map(LayoutEntry::len).collect()
    }

    /// Returns the number of elements of the flat buffer.
    pub fn len(&self) -> usize {
        self.entries.last().map_or(0, |entry| entry.range().end)
    }

    /// True if this rank has nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the entry of this name, if this rank has it.
    pub fn entry(&self, name: &str) -> Option<&LayoutEntry> {
        self.entries.iter().find(|entry| entry.name == name)
    }

    /// Every element, as runs that are consecutive both here and in the whole model.
    pub fn pieces(&self) -> impl Iterator<Item = LayoutPiece> + '_ {
        self.entries.iter().flat_map(LayoutEntry::pieces)
    }

    /// The flat buffer before the first step: element `i` of the whole model is a function of
    /// `seed` and `i`.
    pub fn initial<T: Real>(&self, seed: u64) -> Vec<T> {
        let stream = RandomUse::Weights.stream(seed);
        let mut weights = vec![T::zero(); self.len()];
        for entry in &self.entries {
            for LayoutPiece { local, global, len } in entry.pieces() {
                for (nth, weight) in weights[local..local + len].iter_mut().enumerate() {
                    *weight = T::of(match entry.start {
                        Initialization::Constant(value) => value,
                        Initialization::Random(deviation) => {
                            deviation * centred(stream, (global + nth) as u64)
                        }
                    });
                }
            }
        }
        weights
    }

    /// Returns this rank's part of `whole`, the buffer of the whole model.
    ///
    /// # Panics
    /// If `whole` is too short.
    pub fn gather_from<T: Real>(&self, whole: &[T]) -> Vec<T> {
        let mut local = vec![T::zero(); self.len()];
        for piece in self.pieces() {
            local[piece.local..][..piece.len].copy_from_slice(&whole[piece.global..][..piece.len]);
        }
        local
    }
}

#[cfg(test)]
mod tests {
    use super::Placement::{Partial, Replicate, Shard as Divided};
    use super::*;

    #[test]
    fn gradients_are_partial_where_ranks_see_other_tokens() {
        let config = Config { experts: 2, ..Config::default() };
        let tensor = Shard { index: 1, of: 2 };
        let layout =
            ParameterLayout::new(&config, ModelShare { tensor, ..ModelShare::whole(&config) });
        let placed = |name: &str, axis| layout.entry(name).unwrap().placement(axis, true);
        for (name, tp, ep) in [
            ("block.0.qkv.weight", [Divided; 2], [Replicate, Partial]),
            ("block.0.norm1.weight", [Replicate, Partial], [Replicate, Partial]),
            ("block.0.projection.bias", [Replicate, Partial], [Replicate, Partial]),
            ("block.0.router.weight", [Replicate; 2], [Replicate, Partial]),
            ("block.0.expert.1.up.weight", [Divided; 2], [Divided; 2]),
            ("block.0.expert.1.down.bias", [Replicate; 2], [Divided; 2]),
        ] {
            assert_eq!(
                [placed(name, MeshAxis::Tp), placed(name, MeshAxis::Ep)],
                [tp, ep],
                "{name}"
            );
            assert_eq!(placed(name, MeshAxis::Dp), [Replicate, Partial], "{name}");
        }
        let norm = layout.entry("head.norm.weight").unwrap();
        assert_eq!(norm.placement(MeshAxis::Tp, false), [Replicate; 2]);
    }
}

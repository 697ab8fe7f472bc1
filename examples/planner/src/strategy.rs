//! A strategy for training a model on many ranks: the mesh, and every other choice.
//!
//! What it does: names the choices, and explains in a sentence why one does not suit the model.
//! What is sharded, which collective runs where, cost: in [`memory`](crate::memory) and
//! [`price`](crate::price).

use crate::sizes::ModelSizes;
use maypole_trainer::pipeline_parallel::plan::PipelineSchedule;
use maypole_trainer::ranks::mesh::{Mesh, MeshAxis};
use std::fmt;

/// What the ranks of data parallelism share, as ZeRO numbers it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, PartialOrd)]
pub enum ZeroStage {
    /// Nothing: gradients are all-reduced.
    Replicated,
    /// The optimizer.
    One,
    /// The optimizer and gradients.
    Two,
    /// The optimizer, gradients and weights, as FSDP does.
    Three,
}

impl ZeroStage {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Replicated, Self::One, Self::Two, Self::Three];

    /// The name, as `--sharding` takes it.
    pub fn name(self) -> &'static str {
        ["replicated", "zero1", "zero2", "fsdp"][self as usize]
    }

    /// Reads a name.
    ///
    /// # Errors
    /// A sentence that lists the valid names.
    pub fn parse(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|stage| stage.name() == text);
        found.ok_or_else(|| {
            format!("'{text}' is no sharding; there are replicated, zero1, zero2 and fsdp")
        })
    }
}

/// What a block computes again in its backward pass instead of keeping it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Recomputation {
    /// Nothing: the probabilities of attention are kept too.
    Nothing,
    /// The scores and probabilities of attention: "selective" recomputation.
    Attention,
    /// The same in one fused kernel, so they never leave the chip: FlashAttention.
    Fused,
    /// Everything but the block's input, with attention as in [`Fused`](Self::Fused).
    Blocks,
}

impl Recomputation {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Nothing, Self::Attention, Self::Fused, Self::Blocks];

    /// Those that can be fastest: writing scores to memory is slower and saves no memory.
    pub const USUAL: [Self; 2] = [Self::Fused, Self::Blocks];

    /// Whether scores and probabilities of attention are written to memory.
    pub(crate) fn writes_scores(self) -> bool {
        matches!(self, Self::Nothing | Self::Attention)
    }

    /// The name.
    pub fn name(self) -> &'static str {
        ["nothing", "attention", "fused", "blocks"][self as usize]
    }

    /// Reads a name.
    ///
    /// # Errors
    /// A sentence that lists the valid names.
    pub fn parse(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|choice| choice.name() == text);
        found.ok_or_else(|| {
            format!("'{text}' is no recomputation; there are nothing, attention, fused and blocks")
        })
    }
}

/// The numbers that a rank computes with and keeps.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum NumberFormat {
    /// 32 bits everywhere.
    F32,
    /// 16-bit weights, gradients and activations; 32-bit masters.
    Bf16,
    /// As [`Bf16`](Self::Bf16), but gradients are summed and kept in 32 bits.
    Bf16WideGradients,
}

impl NumberFormat {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::F32, Self::Bf16, Self::Bf16WideGradients];

    /// The name.
    pub fn name(self) -> &'static str {
        ["f32", "bf16", "bf16-f32-gradients"][self as usize]
    }

    /// Reads a name.
    ///
    /// # Errors
    /// A sentence that lists the valid names.
    pub fn parse(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|format| format.name() == text);
        found.ok_or_else(|| {
            format!("'{text}' is no precision; there are f32, bf16 and bf16-f32-gradients")
        })
    }

    /// Bytes of a weight or an activation.
    pub fn element(self) -> f64 {
        if self == Self::F32 { 4.0 } else { 2.0 }
    }

    /// Bytes of a gradient.
    pub fn gradient(self) -> f64 {
        if self == Self::Bf16 { 2.0 } else { 4.0 }
    }

    /// Bytes of a parameter's 32-bit master copy.
    pub fn master(self) -> f64 {
        if self == Self::F32 { 0.0 } else { 4.0 }
    }
}

/// Every choice of how to train a model on many ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ParallelStrategy {
    /// Ranks along each axis. Rows are divided over `dp` and `ep`.
    pub mesh: Mesh,
    /// Sequence parallelism: whether tokens are divided over `tp` where layers are not.
    pub sequence: bool,
    /// What is sharded over the ranks that have the same parameters.
    pub stage: ZeroStage,
    /// The order of the passes on `pp`.
    pub schedule: PipelineSchedule,
    /// Sequences of a micro-batch on a rank.
    pub rows: usize,
    /// Micro-batches of a step.
    pub micros: usize,
    /// What is computed again.
    pub recompute: Recomputation,
    /// The numbers.
    pub format: NumberFormat,
}

impl ParallelStrategy {
    /// One rank, one row, nothing shared.
    pub const ONE: Self = Self {
        mesh: Mesh::ONE,
        sequence: false,
        stage: ZeroStage::Replicated,
        schedule: PipelineSchedule::OneForwardOneBackward,
        rows: 1,
        micros: 1,
        recompute: Recomputation::Fused,
        format: NumberFormat::Bf16,
    };

    pub(crate) fn size(&self, axis: MeshAxis) -> f64 {
        self.mesh.size(axis) as f64
    }

    /// Ranks that have the same dense parameters. Those along `ep` do too.
    pub(crate) fn dense_copies(&self) -> f64 {
        self.mesh.sizes(&[MeshAxis::Dp, MeshAxis::Ep, MeshAxis::Cp]) as f64
    }

    /// Ranks that have the same experts.
    pub(crate) fn expert_copies(&self) -> f64 {
        self.mesh.sizes(&[MeshAxis::Dp, MeshAxis::Cp]) as f64
    }

    /// Ranks of `tp` that divide the tokens outside of the regions of tensor parallelism: all of
    /// them with sequence parallelism, else 1.
    pub(crate) fn outside(&self) -> f64 {
        if self.sequence { self.size(MeshAxis::Tp) } else { 1.0 }
    }

    /// Tokens of a micro-batch on a rank.
    pub(crate) fn tokens(&self, model: &ModelSizes) -> f64 {
        self.rows as f64 * model.sequence as f64 / self.size(MeshAxis::Cp)
    }

    /// Layers of the fullest rank: they are dealt out so that ranks differ by one at most.
    pub(crate) fn layers(&self, model: &ModelSizes) -> f64 {
        model.layers.div_ceil(self.mesh.size(MeshAxis::Pp)) as f64
    }

    /// Layers of the last rank of a pipeline, which has the head.
    pub(crate) fn last_layers(&self, model: &ModelSizes) -> f64 {
        (model.layers / self.mesh.size(MeshAxis::Pp)) as f64
    }

    /// Sequences of a whole step.
    pub fn global_rows(&self) -> usize {
        self.rows * self.micros * self.mesh.sizes(&[MeshAxis::Dp, MeshAxis::Ep])
    }

    /// Checks that `model` can be trained in this way.
    ///
    /// # Errors
    /// A sentence that names the two numbers of which one does not divide the other, and a remedy.
    pub fn check(&self, model: &ModelSizes) -> Result<(), String> {
        let [tp, pp, cp, ep] = [MeshAxis::Tp, MeshAxis::Pp, MeshAxis::Cp, MeshAxis::Ep]
            .map(|axis| self.mesh.size(axis));
        if self.rows == 0 || self.micros == 0 {
            return Err("a step has at least one micro-batch of one row".to_owned());
        }
        if !model.heads.is_multiple_of(tp) {
            return Err(format!(
                "each rank of tp has whole heads, and {} heads are no multiple of tp={tp}",
                model.heads
            ));
        }
        let stages = pp.saturating_mul(self.schedule.chunks());
        if stages > model.layers {
            return Err(format!(
                "pp={pp} with {} makes {stages} stages, and the model has {} layers: give a \
                 smaller pp",
                self.schedule.name(),
                model.layers
            ));
        }
        if self.schedule.chunks() > 1 && (pp == 1 || !self.micros.is_multiple_of(pp)) {
            return Err(format!(
                "{} needs micro-batches in groups of pp={pp}, and there are {}",
                self.schedule.name(),
                self.micros
            ));
        }
        let pieces = if cp > 1 { 2 * cp } else { 1 };
        if !model.sequence.is_multiple_of(pieces) {
            return Err(format!(
                "cp={cp} divides a sequence into {pieces} pieces, which do not divide {} tokens",
                model.sequence
            ));
        }
        if ep > 1 && (model.experts == 0 || !model.experts.is_multiple_of(ep)) {
            return Err(format!(
                "experts are divided over ep, and {} experts are no multiple of ep={ep}",
                model.experts
            ));
        }
        if self.sequence && tp > 1 && !(self.rows * model.sequence / cp).is_multiple_of(tp) {
            return Err(format!("tp={tp} does not divide the tokens of a micro-batch"));
        }
        Ok(())
    }
}

impl fmt::Display for ParallelStrategy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mesh =
            if self.mesh == Mesh::ONE { "one rank".to_owned() } else { self.mesh.to_string() };
        let sequence = if self.sequence { " +sp" } else { "" };
        write!(out, "{mesh}{sequence} {}", self.stage.name())?;
        if self.mesh.size(MeshAxis::Pp) > 1 {
            write!(out, " {}", self.schedule.name())?;
        }
        write!(out, " micros={} rows={}", self.micros, self.rows)?;
        write!(out, " recompute={} {}", self.recompute.name(), self.format.name())
    }
}

//! The bytes that a rank holds, by kind, by arithmetic alone.
//!
//! `P`: parameters of the rank; `N`: ranks that have the same ones; `e`, `g`: bytes of a weight and
//! of a gradient; `n`: tokens of a micro-batch on the rank; `t`: ranks of `tp`; `s`: `t` under
//! sequence parallelism, else 1; `d`, `q`, `k`, `f`, `m`, `V` as in
//! [`sizes`](crate::sizes); `h`: heads; `T`: the sequence; `c`: ranks of `cp`;
//! `rows`: sequences of a micro-batch. Lines from `norms` to `logits` count numbers of `e` bytes.
//!
//! ```text
//! weights         e P, with FSDP e P / N
//! gradients       g P, with ZeRO-2 and FSDP g P / N
//! masters         4 P where numbers have 16 bits, with any ZeRO stage / N
//! moments         8 P for AdamW, with any ZeRO stage / N
//! norms           inputs and outputs of two norms                         4 d n / s
//! attention       queries, keys, values, output; one sum a head in f32    (q + 2 k + q) n / t
//! probabilities   of attention, if they are kept                          rows h T T / (t c)
//! feed-forward    hidden numbers before and after the nonlinearity        m f n / t
//!                 (m: 3 if gated, else 2)
//! experts         scores; of each choice its row, hidden numbers, result  n (E + top (2 d + m f / t))
//! computed again  the block under way, where blocks are computed again
//! logits          input and output of the last norm, logits, and their    2 d n / s + V n / t
//!                 probabilities in f32
//! units           ZeRO-1: gradients of one unit; ZeRO-2: gradients of two;
//!                 FSDP: weights and gradients of two units
//! buffers         two buckets; what is sent to the next stage and received from the previous one;
//!                 the gathered input and the sum of a region
//! ```
//!
//! A unit is a layer or the vocabulary's matrix. Activations are counted for each micro-batch that
//! waits for its backward pass. The first rank of a pipeline holds most micro-batches, and the last
//! one has the logits: the fuller of the two counts. Experts get equal parts of the tokens.
//!
//! Which collective runs where: nothing here.
//!
//! Sources: Rajbhandari et al., "ZeRO" (2020), for the first four; Korthikanti et al., "Reducing
//! Activation Recomputation in Large Transformer Models" (2022), for activations (theirs include
//! masks of dropout, which these models do not use).

use crate::sizes::ModelSizes;
use crate::strategy::{NumberFormat, ParallelStrategy, Recomputation, ZeroStage};
use maypole_trainer::data_parallel::replicated::BUCKET;
use maypole_trainer::pipeline_parallel::plan::PipelineSchedule;
use maypole_trainer::ranks::mesh::MeshAxis;
use serde::Serialize;

/// Bytes of a 32-bit number.
const WIDE: f64 = 4.0;
/// Bytes of the two moments of AdamW.
const MOMENTS: f64 = 8.0;

/// Bytes of the state of the model on one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct StateBytes {
    /// Of weights.
    pub weights: f64,
    /// Of gradients.
    pub gradients: f64,
    /// Of 32-bit copies of 16-bit weights.
    pub masters: f64,
    /// Of the optimizer's two moments.
    pub moments: f64,
}

impl StateBytes {
    /// The bytes of `parameters` parameters on one of `copies` data-parallel ranks. `stage` is the
    /// sharding among these ranks.
    ///
    /// ```
    /// use maypole_planner::memory::StateBytes;
    /// use maypole_planner::strategy::{NumberFormat, ZeroStage};
    /// let bytes = StateBytes::of(7e9, 1.0, ZeroStage::Replicated, NumberFormat::Bf16);
    /// assert_eq!((bytes.weights, bytes.moments), (14e9, 56e9));
    /// ```
    pub fn of(parameters: f64, copies: f64, stage: ZeroStage, format: NumberFormat) -> Self {
        let part = parameters / copies;
        let held = |from: ZeroStage| if stage >= from { part } else { parameters };
        Self {
            weights: format.element() * held(ZeroStage::Three),
            gradients: format.gradient() * held(ZeroStage::Two),
            masters: format.master() * held(ZeroStage::One),
            moments: MOMENTS * held(ZeroStage::One),
        }
    }

    /// The sum of all kinds.
    pub fn total(self) -> f64 {
        self.weights + self.gradients + self.masters + self.moments
    }

    fn plus(self, other: Self) -> Self {
        Self {
            weights: self.weights + other.weights,
            gradients: self.gradients + other.gradients,
            masters: self.masters + other.masters,
            moments: self.moments + other.moments,
        }
    }
}

/// Bytes of activations on one rank, by part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ActivationBytes {
    /// Of inputs and outputs of norms, or of the inputs of blocks alone.
    pub norms: f64,
    /// Of queries, keys, values and outputs of attention.
    pub attention: f64,
    /// Of the probabilities of attention.
    pub probabilities: f64,
    /// Of hidden numbers of dense feed-forward parts.
    pub feed_forward: f64,
    /// Of rows, hidden numbers and results of experts.
    pub experts: f64,
    /// Of the block that is computed again.
    pub again: f64,
    /// Of the head: the last norm, logits and their probabilities.
    pub logits: f64,
}

impl ActivationBytes {
    /// The sum of all parts.
    pub fn total(self) -> f64 {
        self.of_blocks() + self.again + self.logits
    }

    fn of_blocks(self) -> f64 {
        self.norms + self.attention + self.probabilities + self.feed_forward + self.experts
    }

    fn times(self, count: f64) -> Self {
        Self {
            norms: self.norms * count,
            attention: self.attention * count,
            probabilities: self.probabilities * count,
            feed_forward: self.feed_forward * count,
            experts: self.experts * count,
            again: self.again,
            logits: self.logits,
        }
    }

    /// The activations that one layer keeps of one micro-batch.
    pub(crate) fn of_layer(model: &ModelSizes, strategy: &ParallelStrategy) -> Self {
        let all = Self::of_whole_layer(model, strategy);
        if strategy.recompute == Recomputation::Blocks {
            // The input of the block is one of the four that norms keep.
            return Self { norms: all.norms / 4.0, ..Self::default() };
        }
        all
    }

    /// All activations of one layer and one micro-batch, kept or not.
    pub(crate) fn of_whole_layer(model: &ModelSizes, strategy: &ParallelStrategy) -> Self {
        let element = strategy.format.element();
        let n = strategy.tokens(model);
        let t = strategy.size(MeshAxis::Tp);
        let d = model.width as f64;
        let heads = model.heads as f64;
        let share = model.expert_share();
        let matrices = model.matrices();
        let dense = (1.0 - share) * model.hidden as f64
            + share * (model.shared_experts * model.expert_hidden) as f64;
        let row = 2.0 * d + matrices * model.expert_hidden as f64 / t;
        let choices = model.experts as f64 + model.experts_per_token as f64 * row;
        let queries = 2.0 * model.query_width() + 2.0 * model.key_width();
        let square = strategy.rows as f64 * heads * (model.sequence as f64).powi(2)
            / (t * strategy.size(MeshAxis::Cp));
        let kept = strategy.recompute == Recomputation::Nothing;
        Self {
            norms: element * 4.0 * d * n / strategy.outside(),
            attention: (element * queries + WIDE * heads) * n / t,
            probabilities: if kept { element * square } else { 0.0 },
            feed_forward: element * matrices * dense * n / t,
            experts: element * share * choices * n,
            again: 0.0,
            logits: 0.0,
        }
    }
}

/// All bytes that a rank holds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RankBytes {
    /// The state of the model, held from step to step.
    #[serde(flatten)]
    pub state: StateBytes,
    /// Activations, held until their backward pass.
    pub activations: ActivationBytes,
    /// Buffers of units of weights and gradients, unsharded or in flight.
    pub units: f64,
    /// Buckets, send buffers and receive buffers.
    pub buffers: f64,
}

impl RankBytes {
    /// The bytes of the fullest rank.
    ///
    /// ```
    /// use maypole_planner::memory::RankBytes;
    /// use maypole_planner::strategy::ParallelStrategy;
    /// use maypole_planner::sizes::ModelSizes;
    /// let model = ModelSizes::preset("7b").unwrap();
    /// let bytes = RankBytes::of(&model, &ParallelStrategy::ONE);
    /// assert_eq!((bytes.state.weights / 1e8).round() / 10.0, 13.5);
    /// ```
    pub fn of(model: &ModelSizes, strategy: &ParallelStrategy) -> Self {
        let first = Self::of_stage(model, strategy, true);
        if strategy.mesh.size(MeshAxis::Pp) == 1 {
            return first;
        }
        let last = Self::of_stage(model, strategy, false);
        if last.total() > first.total() { last } else { first }
    }

    /// The bytes of the first rank of a pipeline, or of the last.
    fn of_stage(model: &ModelSizes, strategy: &ParallelStrategy, first: bool) -> Self {
        let alone = strategy.mesh.size(MeshAxis::Pp) == 1;
        let head = alone || !first;
        let parameters = RankParameters::of(model, strategy, first, head);
        let RankParameters { dense, expert, .. } = parameters;
        let state = |count, copies| StateBytes::of(count, copies, strategy.stage, strategy.format);
        Self {
            state: state(dense, strategy.dense_copies())
                .plus(state(expert, strategy.expert_copies())),
            activations: activations(model, strategy, first, head),
            units: units(strategy, parameters.unit),
            buffers: buffers(model, strategy),
        }
    }

    /// The sum of all kinds.
    pub fn total(&self) -> f64 {
        self.state.total() + self.activations.total() + self.units + self.buffers
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct RankParameters {
    /// Parameters of which all ranks along `dp`, `ep` and `cp` have copies.
    pub(crate) dense: f64,
    /// Parameters of which all ranks along `dp` and `cp` have copies.
    pub(crate) expert: f64,
    /// Parameters of the largest unit.
    pub(crate) unit: f64,
}

impl RankParameters {
    /// Of a rank with the embedding if it is the `first`, and with the `head`.
    pub(crate) fn of(
        model: &ModelSizes,
        strategy: &ParallelStrategy,
        first: bool,
        head: bool,
    ) -> Self {
        let t = strategy.size(MeshAxis::Tp);
        let layers = if first { strategy.layers(model) } else { strategy.last_layers(model) };
        let divided = model.attention_parameters() + model.dense_feed_forward();
        let layer = divided / t + model.replicated_parameters();
        let expert = model.expert_parameters() / (t * strategy.size(MeshAxis::Ep));
        let vocabulary = model.vocabulary_parameters() / t;
        // A tied matrix is on both ends of a pipeline, and once on a rank that is both.
        let twice = first && head && model.tied;
        let embedding = if first { vocabulary + model.position_parameters() } else { 0.0 };
        let end = if head { model.last_norm() + if twice { 0.0 } else { vocabulary } } else { 0.0 };
        let unit = (layer + expert).max(vocabulary);
        Self { dense: layers * layer + embedding + end, expert: layers * expert, unit }
    }
}

/// The maximum of micro-batches in flight, whose activations a rank holds. Each counts as all layers of
/// the rank.
fn waiting(strategy: &ParallelStrategy, first: bool) -> f64 {
    let ranks = strategy.mesh.size(MeshAxis::Pp);
    let micros = strategy.micros;
    if first {
        return strategy.schedule.held(ranks, micros);
    }
    match strategy.schedule {
        PipelineSchedule::GPipe => micros as f64,
        PipelineSchedule::OneForwardOneBackward | PipelineSchedule::Interleaved(1) => 1.0,
        PipelineSchedule::Interleaved(chunks) => {
            let passes = ((chunks - 1) * ranks + 1) as f64;
            (passes / chunks as f64).min(micros as f64)
        }
    }
}

fn activations(
    model: &ModelSizes,
    strategy: &ParallelStrategy,
    first: bool,
    head: bool,
) -> ActivationBytes {
    let own = if first { strategy.layers(model) } else { strategy.last_layers(model) };
    let layers = own * waiting(strategy, first);
    let mut bytes = ActivationBytes::of_layer(model, strategy).times(layers);
    if strategy.recompute == Recomputation::Blocks {
        bytes.again = ActivationBytes::of_whole_layer(model, strategy).of_blocks();
    }
    if head {
        bytes.logits = logits(model, strategy);
    }
    bytes
}

/// Bytes that the head keeps of one micro-batch.
fn logits(model: &ModelSizes, strategy: &ParallelStrategy) -> f64 {
    let n = strategy.tokens(model);
    let element = strategy.format.element();
    let norm = 2.0 * model.width as f64 * n / strategy.outside();
    let lines = model.vocabulary as f64 * n / strategy.size(MeshAxis::Tp);
    let copy = if strategy.format == NumberFormat::F32 { 0.0 } else { WIDE };
    element * norm + (element + copy) * lines
}

fn units(strategy: &ParallelStrategy, unit: f64) -> f64 {
    let weights = strategy.format.element() * unit;
    let gradients = strategy.format.gradient() * unit;
    match strategy.stage {
        _ if strategy.dense_copies() == 1.0 => 0.0,
        ZeroStage::Replicated => 0.0,
        ZeroStage::One => gradients,
        ZeroStage::Two => 2.0 * gradients,
        ZeroStage::Three => 2.0 * (weights + gradients),
    }
}

fn buffers(model: &ModelSizes, strategy: &ParallelStrategy) -> f64 {
    let vectors = strategy.format.element() * model.width as f64 * strategy.tokens(model);
    let buckets = if strategy.dense_copies() > 1.0 { 2.0 * BUCKET as f64 } else { 0.0 };
    let several = |axis| strategy.mesh.size(axis) > 1;
    let stages = if several(MeshAxis::Pp) { 2.0 * vectors / strategy.outside() } else { 0.0 };
    let regions = if several(MeshAxis::Tp) { 2.0 * vectors } else { 0.0 };
    buckets + stages + regions
}

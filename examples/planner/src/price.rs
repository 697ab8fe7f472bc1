//! The time of one step, by arithmetic and by the library's prices of collectives.
//!
//! ```text
//! compute    matrix products at the accelerator's rate, times the part that it reaches, times
//!            x / (x + h) for both the tokens and the narrowest side of the matrices (h: the size
//!            at which half is reached); and each activation is written and read once. A backward
//!            pass takes twice as long. A causal mask halves the scores of attention where they stay
//!            on the chip; else they are all computed, and written and read three times
//! again      what is computed a second time
//! tp         of a layer, forward and backward each: two all-reduces of the tokens' vectors, or with
//!            sequence parallelism two all-gathers and two reduce-scatters
//! cp         of a layer: keys and values around a ring, as far as the scores do not hide it
//! ep         of a layer with experts, forward and backward each: two all-to-alls of each token's
//!            vector, once for each of its experts
//! stages     of a micro-batch and stage: a send each way
//! bubble     what a rank waits for other stages: (p - 1) / v micro-batches, and those stages that
//!            are shorter than the longest
//! copies     gradients, and weights where they are sharded, as far as passes do not hide it
//! update     the optimizer reads and writes its state once
//! ```
//!
//! Copies: an all-reduce of replicated gradients; ZeRO-1: a reduce-scatter of gradients and an
//! all-gather of weights; ZeRO-2: a reduce-scatter once a micro-batch; FSDP: also an all-gather of
//! weights twice a micro-batch. Collectives of gradients once a step overlap with the last backward
//! pass, those of every micro-batch with all backward passes, one all-gather of weights with a forward
//! pass. The first unit never overlaps.
//!
//! Where ranks run on the cores of one host ([`CoreSharing`]), a core computes and moves bytes in
//! turn: the work of all its ranks adds up, collectives do not overlap with compute, attention writes
//! its scores except in a ring, each of a ring's many small products has an overhead, and the cost of a
//! bubble is bounded by the longest chain of passes and the number of cores.
//!
//! What it leaves out: kernel launches, reading text, stragglers, contention of two collectives on
//! one link.
//!
//! Source of the order of passes: [`plan`](maypole_trainer::pipeline_parallel::plan).

mod sharing;

use crate::cluster::{Accelerator, AcceleratorCluster, CoreSharing};
use crate::groups::{GroupPrices, GroupShape, PricedCollective};
use crate::memory::{ActivationBytes, RankParameters};
use crate::sizes::ModelSizes;
use crate::step::{StepPrice, rate};
use crate::strategy::{ParallelStrategy, Recomputation, ZeroStage};
use maypole_trainer::data_parallel::replicated::BUCKET;
use maypole_trainer::ranks::mesh::MeshAxis;

/// The part of a pass's time that a collective can overlap.
const OVERLAP: f64 = 0.9;

/// How often scores or probabilities are written or read in a forward pass, if they leave the chip:
/// scores, masked scores and probabilities, each written once and read once.
const SCORE_PASSES: f64 = 6.0;

/// Prices the step of a model under one strategy on a cluster.
pub struct StepPricing<'a> {
    model: &'a ModelSizes,
    strategy: &'a ParallelStrategy,
    accelerator: &'a Accelerator,
    sharing: Option<CoreSharing>,
    prices: &'a GroupPrices<'a>,
}

/// Seconds of one layer, or of the head, for one micro-batch.
#[derive(Clone, Copy, Debug, Default)]
struct LayerSeconds {
    forward: f64,
    /// The scores of attention, a part of `forward`.
    scores: f64,
    tp: f64,
    cp: f64,
    ep: f64,
}

impl<'a> StepPricing<'a> {
    /// Prices `model` under `strategy`. `prices` must be those of `cluster`.
    pub fn new(
        model: &'a ModelSizes,
        strategy: &'a ParallelStrategy,
        cluster: &'a AcceleratorCluster,
        prices: &'a GroupPrices<'a>,
    ) -> Self {
        let AcceleratorCluster { accelerator, sharing, .. } = cluster;
        Self { model, strategy, accelerator, sharing: *sharing, prices }
    }

    /// Seconds of a step.
    ///
    /// # Errors
    /// A sentence, if the topology has no path between two ranks.
    pub fn step(&self) -> Result<StepPrice, String> {
        let strategy = self.strategy;
        let layer = self.layer()?;
        let head = self.head()?;
        let micros = strategy.micros as f64;
        let stages = strategy.size(MeshAxis::Pp);
        let chunks = strategy.schedule.chunks() as f64;
        let layers = self.model.layers as f64 / stages;
        let send = self.send()?;
        let again = self.again(&layer);
        // Passes of the mean rank for one micro-batch.
        let mean = StepPrice {
            compute: 3.0 * (layers * layer.forward + head.forward / stages),
            again: layers * again,
            tp: layers * self.passes() * layer.tp + 2.0 * head.tp / stages,
            cp: layers * layer.cp,
            ep: layers * self.passes() * layer.ep,
            stages: if stages > 1.0 { 2.0 * chunks * send } else { 0.0 },
            ..StepPrice::default()
        };
        let each =
            (mean.total() - 3.0 * head.forward / stages - 2.0 * head.tp / stages - mean.stages)
                / layers;
        let longest = self.longest(each, 3.0 * head.forward + 2.0 * head.tp) + mean.stages;
        let path = (micros + (stages - 1.0) / chunks) * longest;
        let pipeline = self.pipeline(path, micros * mean.total());
        let backward = 2.0 * layers * layer.forward;
        Ok(StepPrice {
            compute: micros * mean.compute,
            again: micros * mean.again,
            tp: micros * mean.tp,
            cp: micros * mean.cp,
            ep: micros * mean.ep,
            stages: micros * mean.stages,
            bubble: pipeline - micros * mean.total(),
            copies: self.copies(backward)?,
            update: self.update(),
        })
    }

    /// Passes of a layer's collectives: forward, backward, and once more if a block is computed
    /// again.
    fn passes(&self) -> f64 {
        if self.strategy.recompute == Recomputation::Blocks { 3.0 } else { 2.0 }
    }

    /// Seconds of the longest stage, `each` for a layer and `head` for the head, one micro-batch.
    fn longest(&self, each: f64, head: f64) -> f64 {
        let last = self.strategy.last_layers(self.model);
        (self.strategy.layers(self.model) * each).max(last * each + head)
    }

    /// Seconds of matrix products of `operations`, of `tokens` tokens and matrices whose narrowest
    /// side is `side`.
    fn products(&self, operations: f64, tokens: f64, side: f64) -> f64 {
        let half = self.accelerator.half_size;
        let reached = self.accelerator.reached * tokens / (tokens + half) * side / (side + half);
        self.crowding() * operations / (rate(self.accelerator, self.strategy.format) * reached)
    }

    fn traffic(&self, bytes: f64) -> f64 {
        self.crowding() * bytes / self.accelerator.bandwidth
    }

    fn shape(&self, stride: &[MeshAxis], size: usize) -> GroupShape {
        self.prices.shape(self.strategy.mesh.sizes(stride), size)
    }

    /// Bytes of the vectors of a micro-batch's tokens on a rank.
    fn vectors(&self) -> f64 {
        self.strategy.format.element() * self.model.width as f64 * self.strategy.tokens(self.model)
    }

    fn layer(&self) -> Result<LayerSeconds, String> {
        let Self { model, strategy, .. } = *self;
        let n = strategy.tokens(model);
        let t = strategy.size(MeshAxis::Tp);
        let share = model.expert_share();
        let top = model.experts_per_token as f64;
        let attention = 2.0 * n * model.attention_parameters() / t;
        let dense = 2.0 * n * model.dense_feed_forward() / t;
        let experts =
            2.0 * n * (model.active_in_layer() - model.attention_parameters()) / t - dense;
        let each = n * top * strategy.size(MeshAxis::Ep) / model.experts.max(1) as f64;
        let scores = self.scores();
        let made = ActivationBytes::of_whole_layer(model, strategy).total();
        let weights = strategy.format.element()
            * (model.attention_parameters()
                + model.dense_feed_forward()
                + model.expert_parameters() / strategy.size(MeshAxis::Ep))
            / t;
        let hidden = if share < 1.0 { model.hidden } else { model.expert_hidden };
        let mut forward = self.products(attention, n, model.query_width() / t)
            + self.products(dense, n, hidden as f64 / t)
            + scores
            + self.traffic(2.0 * made + weights);
        if experts > 0.0 {
            forward += self.products(experts, each, model.expert_hidden as f64 / t);
        }
        let ring = self.ring()?;
        // Forward, and backward with the gradients of keys and values; they overlap with the scores.
        let shifts = 3.0 * (strategy.size(MeshAxis::Cp) - 1.0);
        let cp = self.shown(ring, scores)
            + self.shown(2.0 * ring, 2.0 * scores)
            + self.calls((shifts - 3.0).max(0.0));
        Ok(LayerSeconds {
            forward,
            scores,
            tp: self.region()?,
            cp,
            ep: self.dispatch(share * top)?,
        })
    }

    /// Seconds of the scores of attention and the sum of values, forward. A fused kernel skips masked
    /// scores.
    fn scores(&self) -> f64 {
        let Self { model, strategy, .. } = *self;
        let n = strategy.tokens(model);
        let t = strategy.size(MeshAxis::Tp);
        let operations = model.attention_operations() * n / t;
        let side = (model.head_width as f64).min(self.piece());
        // A ring computes a piece of queries and of keys at a time. The products of a core's attention
        // are calls of their own; those of a GPU are one.
        let ring = strategy.size(MeshAxis::Cp) > 1.0;
        let pairs = if ring { 2.0 * strategy.size(MeshAxis::Cp) + 1.0 } else { 1.0 };
        let calls = 2.0 * strategy.rows as f64 * model.heads as f64 / t * pairs;
        let begun =
            self.sharing.map_or(0.0, |sharing| sharing.crowding() * sharing.product * calls);
        let on_chip = match self.sharing {
            Some(_) => ring,
            None => !strategy.recompute.writes_scores(),
        };
        if on_chip {
            return begun + self.products(0.5 * operations, n, side);
        }
        let square = n * model.sequence as f64 * model.heads as f64 / t;
        let written = SCORE_PASSES * strategy.format.element() * square;
        begun + self.products(operations, n, side) + self.traffic(written)
    }

    /// Tokens of the piece of a sequence whose scores are computed together.
    fn piece(&self) -> f64 {
        let ranks = self.strategy.size(MeshAxis::Cp);
        let pieces = if ranks > 1.0 { 2.0 * ranks } else { 1.0 };
        self.model.sequence as f64 / pieces
    }

    /// Seconds of the collectives of a layer's two regions in one direction.
    fn region(&self) -> Result<f64, String> {
        let shape = self.shape(&[], self.strategy.mesh.size(MeshAxis::Tp));
        let vectors = self.vectors();
        if !self.strategy.sequence {
            return Ok(2.0 * self.collective(shape, PricedCollective::AllReduce, vectors)?);
        }
        Ok(4.0 * self.collective(shape, PricedCollective::AllGather, vectors)?)
    }

    /// Seconds in which keys and values go around the ring of `cp` once.
    fn ring(&self) -> Result<f64, String> {
        let Self { model, strategy, .. } = *self;
        let ranks = strategy.mesh.size(MeshAxis::Cp);
        let shape = self.shape(&[MeshAxis::Tp], ranks);
        let own = 2.0 * strategy.format.element() * model.key_width() * strategy.tokens(model)
            / strategy.size(MeshAxis::Tp);
        self.collective(shape, PricedCollective::AllGather, own * ranks as f64)
    }

    /// Seconds of the all-to-alls of one direction, if each token goes to `top` experts.
    fn dispatch(&self, top: f64) -> Result<f64, String> {
        let shape =
            self.shape(&[MeshAxis::Tp, MeshAxis::Cp], self.strategy.mesh.size(MeshAxis::Ep));
        let bytes = top * self.vectors() / self.strategy.outside();
        Ok(2.0 * self.collective(shape, PricedCollective::AllToAll, bytes)?)
    }

    fn head(&self) -> Result<LayerSeconds, String> {
        let Self { model, strategy, .. } = *self;
        let n = strategy.tokens(model);
        let t = strategy.size(MeshAxis::Tp);
        let lines = model.vocabulary as f64 / t;
        let operations = 2.0 * n * model.vocabulary_parameters() / t;
        let logits = (strategy.format.element() + 4.0) * n * lines;
        let forward = self.products(operations, n, lines.min(model.width as f64))
            + self.traffic(2.0 * logits);
        Ok(LayerSeconds { forward, tp: self.region()? / 2.0, ..LayerSeconds::default() })
    }

    /// Seconds of recomputation of a layer.
    fn again(&self, layer: &LayerSeconds) -> f64 {
        match self.strategy.recompute {
            Recomputation::Nothing => 0.0,
            Recomputation::Attention | Recomputation::Fused => layer.scores,
            Recomputation::Blocks => layer.forward,
        }
    }

    /// Seconds of a send from one stage to the next.
    fn send(&self) -> Result<f64, String> {
        let stages = self.strategy.mesh.size(MeshAxis::Pp);
        if stages == 1 {
            return Ok(0.0);
        }
        let inner = [MeshAxis::Tp, MeshAxis::Cp, MeshAxis::Ep];
        let shape = self.shape(&inner, stages);
        let pair = self.shape(&inner, 2);
        // A stage that ends at a host's end sends to another host.
        let across = GroupShape { local: 1, hosts: 2, ..shape };
        let pair = if shape.hosts > 1 { across } else { pair };
        let bytes = self.vectors() / self.strategy.outside();
        self.collective(pair, PricedCollective::Send, bytes)
    }

    /// The shape of the group of ranks along `dp` and along the axes `inner`, which divide tokens
    /// too.
    fn copies_shape(&self, inner: &[MeshAxis], stride: &[MeshAxis]) -> GroupShape {
        let mesh = &self.strategy.mesh;
        let near = mesh.sizes(inner);
        let all = near * mesh.size(MeshAxis::Dp);
        if near == 1 {
            let apart = [MeshAxis::Tp, MeshAxis::Cp, MeshAxis::Ep, MeshAxis::Pp];
            return self.shape(&apart, all);
        }
        let shape = self.shape(stride, near);
        GroupShape { hosts: all / shape.local, ..shape }
    }

    /// Seconds of the exposed collectives of data parallelism; `backward` is the time of a backward pass
    /// of one micro-batch.
    fn copies(&self, backward: f64) -> Result<f64, String> {
        let model = self.model;
        let strategy = self.strategy;
        let head = strategy.mesh.size(MeshAxis::Pp) == 1;
        let parameters = RankParameters::of(model, strategy, true, head);
        let dense = self.copies_shape(&[MeshAxis::Cp, MeshAxis::Ep], &[MeshAxis::Tp]);
        let expert = self.copies_shape(&[MeshAxis::Cp], &[MeshAxis::Tp]);
        let mut gradients = 0.0;
        let mut weights = 0.0;
        for (shape, count) in [(dense, parameters.dense), (expert, parameters.expert)] {
            let [gradient, weight] = [strategy.format.gradient(), strategy.format.element()];
            if strategy.stage == ZeroStage::Replicated {
                let all = PricedCollective::AllReduce;
                gradients += self.collective(shape, all, gradient * count)?;
            } else {
                let gather = PricedCollective::AllGather;
                gradients += self.collective(shape, gather, gradient * count)?;
                weights += self.collective(shape, gather, weight * count)?;
            }
        }
        let micros = strategy.micros as f64;
        let first = parameters.unit / (parameters.dense + parameters.expert);
        let forward = backward / 2.0;
        // Seconds of collectives, and of the passes that may overlap with them.
        let pairs = match strategy.stage {
            ZeroStage::Replicated => [(gradients, backward), (0.0, 0.0)],
            ZeroStage::One => [(gradients, backward), (weights, forward)],
            ZeroStage::Two => [(micros * gradients, micros * backward), (weights, forward)],
            ZeroStage::Three => {
                let all = micros * (gradients + 2.0 * weights);
                [(all, micros * (backward + forward)), (0.0, 0.0)]
            }
        };
        let shown = pairs.map(|(seconds, behind)| {
            self.shown(seconds, OVERLAP * behind).max(first.min(1.0) * seconds / micros)
        });
        // Each unit's collective is a call of its own.
        let calls = (self.sums(&parameters) - 1.0).max(0.0);
        Ok(shown.iter().sum::<f64>() + self.calls(calls))
    }

    /// Collectives of data parallelism in a step.
    fn sums(&self, parameters: &RankParameters) -> f64 {
        let strategy = self.strategy;
        let units = strategy.layers(self.model) + 1.0;
        let bytes = strategy.format.gradient() * (parameters.dense + parameters.expert);
        let micros = strategy.micros as f64;
        match strategy.stage {
            _ if strategy.dense_copies() == 1.0 => 0.0,
            ZeroStage::Replicated => (bytes / BUCKET as f64).ceil(),
            ZeroStage::One => units,
            ZeroStage::Two => micros * units,
            ZeroStage::Three => 3.0 * micros * units,
        }
    }

    /// Seconds of the optimizer's update.
    fn update(&self) -> f64 {
        let strategy = self.strategy;
        let format = strategy.format;
        let head = strategy.mesh.size(MeshAxis::Pp) == 1;
        let parameters = RankParameters::of(self.model, strategy, true, head);
        let sharded = strategy.stage != ZeroStage::Replicated;
        let part = |count: f64, copies: f64| if sharded { count / copies } else { count };
        let own = part(parameters.dense, strategy.dense_copies())
            + part(parameters.expert, strategy.expert_copies());
        let state = 2.0 * (8.0 + format.master());
        self.traffic(own * (format.gradient() + state + format.element()))
    }
}

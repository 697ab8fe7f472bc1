//! The bytes that a rank should hold for a while within a step, by arithmetic alone: activations,
//! and units of weights and gradients.
//!
//! The formulas count numbers, as [`theory`](crate::theory) does. `n`: tokens of a micro-batch
//! on the rank; `d`: the width; `t`: ranks of `tp`; `s`: `t` under sequence parallelism,
//! otherwise 1; `T`: positions of a row; `h`: heads of the rank. A block keeps for its backward
//! pass:
//!
//! ```text
//! input, sum after attention, and the mean and deviation of both norms     2 n d / s + 4 n / s
//! both normalised forms, gathered within a region                          2 n d
//! q, k, v, and what attention makes of them                                4 n d / t
//! probabilities of attention                                               rows h T T
//!    in a ring: the logarithm of each sum alone                            n h
//!    by Ulysses: those of h / cp heads, and q, k and v of them             rows h T T / cp + 3 n d / t
//! hidden numbers before and after the nonlinearity                         8 n d / t
//!    of experts: logits, outputs of all choices, and of each row that is   n experts + n top d
//!    here the row and its hidden numbers                                   + rows here (d + 8 d / t)
//! with recomputation: the input alone                                      n d / s
//! ```
//!
//! A Llama keeps one number of each norm instead of two, and of each of its `m` hidden numbers
//! three, `3 n m / t`: both inputs and the output. Its keys are repeated for all heads of queries.
//!
//! All of them take the bytes of a layer's numbers: 2 in 16 bits. Means, deviations and logarithms
//! take 4 even then.
//!
//! The head keeps its input with mean and deviation, its normalised form, and the logits of its
//! rows of the vocabulary. The plan determines the micro-batches in flight: the passes of the rank are
//! counted in the plan's order.
//!
//! Units: a sharded store allocates buffers for a unit and frees them again. `u` is the elements of a
//! unit, `p` a rank's part of them:
//!
//! ```text
//! ZeRO-1   a copy of the gradients of a unit that is under way, and their sums  u + p
//! ZeRO-2   the gradients of a unit, and those of the one after it under way     u + u' + p'
//! FSDP     a unit, the one before it under way, its gradients, and those of     u + (u'' + p'') + u + (u' + p')
//!          the one after it under way
//! 16 bits  in addition, in 32 bits: the weights of the largest unit
//! ```
//!
//! What is sharded, which collective runs where: nothing here.

use crate::averaging::DataForm;
use crate::theory::RankTheory;
use maypole_trainer::data_parallel::sharding::Sharding;
use maypole_trainer::expert_parallel::layer::RoutingRecord;
use maypole_trainer::model::config::Architecture;
use maypole_trainer::model::layout::{LayoutEntry, ParameterLayout};
use maypole_trainer::pipeline_parallel::plan::PassKind;
use maypole_trainer::ranks::mesh::MeshAxis;
use maypole_trainer::ranks::shard::Shard;
use maypole_trainer::train::parallelism::ContextExchange;
use std::collections::HashMap;

impl RankTheory<'_> {
    /// The theoretical peak, in bytes, of activations that wait for their backward pass. `routing` is the
    /// record of the routers of the step.
    ///
    /// # Panics
    /// If the setup has no plan.
    pub fn activations(&self, routing: &RoutingRecord) -> usize {
        self.waiting(routing, self.element)
    }

    /// The same for layers with results of 16 bits: all but means, deviations and logarithms take half.
    ///
    /// # Panics
    /// If the setup has no plan.
    pub fn activations_in_16_bits(&self, routing: &RoutingRecord) -> usize {
        self.waiting(routing, 2)
    }

    fn waiting(&self, routing: &RoutingRecord, width: usize) -> usize {
        let ranks = self.size(MeshAxis::Pp);
        let rank = self.place.at(MeshAxis::Pp);
        let plan = self.setup.schedule.plan(ranks, self.setup.micros).expect("a setup is checked");
        let mut rows = routing.each.iter().copied();
        let mut waiting = HashMap::new();
        let mut held = 0;
        let mut most = 0;
        for op in &plan.ops[rank] {
            let place = (op.micro, op.chunk);
            if op.pass == PassKind::Backward {
                held -= waiting.remove(&place).unwrap_or(0);
                continue;
            }
            let stage = op.chunk * ranks + rank;
            let layers = self.setup.layers(self.config, stage).len();
            let blocks = (0..layers).map(|_| self.block(rows.next().unwrap_or(0)));
            let head = if stage + 1 == plan.stages() { self.head() } else { 0 };
            let exact = layers * self.exact() + if head > 0 { self.statistics() } else { 0 };
            let bytes = width * (blocks.sum::<usize>() + head) + self.element * exact;
            waiting.insert(place, bytes);
            held += bytes;
            most = most.max(held);
        }
        most
    }

    /// Numbers that a block always keeps in full precision: mean and deviation of both norms, and the
    /// logarithms of a ring.
    fn exact(&self) -> usize {
        if self.recompute {
            return 0;
        }
        let in_a_ring = self.size(MeshAxis::Cp) > 1 && self.setup.exchange == ContextExchange::Ring;
        let heads = self.config.heads / self.size(MeshAxis::Tp);
        2 * self.statistics() + if in_a_ring { self.tokens() * heads } else { 0 }
    }

    /// Numbers that a norm keeps of the rank's tokens: mean and deviation of each, or the divisor of an
    /// RMS norm alone.
    fn statistics(&self) -> usize {
        match self.config.architecture {
            Architecture::Gpt => 2 * self.outside(),
            Architecture::Llama { .. } => self.outside(),
        }
    }

    /// Tokens of a micro-batch that the rank has outside of regions.
    fn outside(&self) -> usize {
        let divided = if self.setup.sequence { self.size(MeshAxis::Tp) } else { 1 };
        self.tokens() / divided
    }

    /// Numbers of a layer's width that a block keeps; `rows` went through its experts on this rank.
    fn block(&self, rows: usize) -> usize {
        let n = self.tokens();
        let d = self.config.width;
        let tp = self.size(MeshAxis::Tp);
        let outside = self.outside();
        if self.recompute {
            return outside * d;
        }
        let hidden = match self.setup.router {
            None => self.hidden() * n / tp,
            Some(router) => n * (router.experts + router.top * d) + rows * (d + 8 * d / tp),
        };
        outside * 2 * d + 2 * n * d + 4 * n * d / tp + self.attention() + hidden
    }

    /// Hidden numbers of a token that a feed-forward part keeps, on all ranks of `tp` together.
    fn hidden(&self) -> usize {
        let hidden = self.config.hidden();
        match self.config.architecture {
            Architecture::Gpt => 2 * hidden,
            Architecture::Llama { .. } => 3 * hidden,
        }
    }

    /// Numbers of a layer's width that attention keeps in addition to its input and its result.
    fn attention(&self) -> usize {
        let n = self.tokens();
        let tp = self.size(MeshAxis::Tp);
        let cp = self.size(MeshAxis::Cp);
        let heads = self.config.heads / tp;
        let rows = self.setup.micro_rows(self.rows);
        let scores = rows * heads * self.config.context * self.config.context;
        match self.setup.exchange {
            _ if cp == 1 => scores,
            ContextExchange::Ring => 0,
            ContextExchange::Ulysses => scores / cp + 3 * n * self.config.width / tp,
        }
    }

    /// Numbers of a layer's width that the head keeps.
    fn head(&self) -> usize {
        let n = self.tokens();
        let d = self.config.width;
        let tensor = Shard { index: self.place.at(MeshAxis::Tp), of: self.size(MeshAxis::Tp) };
        self.outside() * d + n * d + n * tensor.range(self.config.vocab).len()
    }

    /// The theoretical peak, in bytes, of units in the store of this rank, in full precision or
    /// `mixed` with 16 bits. For ranks of one stage: with several, a sharded store prefetches the first
    /// unit of a stage while another stage runs. `form` is the form of data parallelism.
    pub fn units(&self, form: impl Into<DataForm>, mixed: bool) -> usize {
        let layout = self.layout();
        let copies = [MeshAxis::Dp, MeshAxis::Cp];
        let index = copies.iter().fold(0, |at, axis| at * self.size(*axis) + self.place.at(*axis));
        let shard = Shard { index, of: self.setup.mesh.sizes(&copies) };
        let mut theory = UnitTheory::new(&layout, form, shard, self.setup.micros);
        if self.setup.sequence && self.size(MeshAxis::Tp) > 1 {
            theory.sum_first(&layout, MeshAxis::Tp);
        }
        if self.size(MeshAxis::Ep) > 1 {
            theory.sum_first(&layout, MeshAxis::Ep);
        }
        theory.bytes(if mixed { 2 } else { self.element }, mixed)
    }
}

/// Elements of units that a store holds at the moments at which it may hold most.
#[derive(Clone, Debug)]
pub struct UnitTheory {
    /// Elements of each unit.
    units: Vec<usize>,
    /// Elements of this rank's part of each; 0 where one rank has everything.
    parts: Vec<usize>,
    /// The most elements of a unit that are copied to be summed over another axis first.
    together: Vec<usize>,
    form: DataForm,
    micros: usize,
}

impl UnitTheory {
    /// The units of `layout`, of which a rank of data parallelism has part `shard`.
    pub fn new(
        layout: &ParameterLayout,
        form: impl Into<DataForm>,
        shard: Shard,
        micros: usize,
    ) -> Self {
        let form = form.into();
        let units: Vec<usize> = layout.units.iter().map(|unit| unit.range.len()).collect();
        let part = |unit: &usize| shard.range(*unit).len();
        let parts = units.iter().map(|unit| if shard.of > 1 { part(unit) } else { 0 }).collect();
        let together = vec![0; units.len()];
        Self { units, parts, together, form, micros }
    }

    /// Partial gradients are all-reduced over `axis` before the store receives them.
    fn sum_first(&mut self, layout: &ParameterLayout, axis: MeshAxis) {
        for (unit, together) in layout.units.iter().zip(&mut self.together) {
            let entries =
                layout.entries[unit.entries.clone()].iter().filter(|it| it.is_partial(axis));
            *together = (*together).max(entries.map(LayoutEntry::len).sum());
        }
    }

    /// The most bytes that the store holds of units. A weight takes `element` bytes and a gradient 4, or
    /// `element` if that is more; with `mixed` layers compute on copies of weights in 32 bits.
    pub fn bytes(&self, element: usize, mixed: bool) -> usize {
        let full = element.max(size_of::<f32>());
        let bytes = |[weights, gradients]: [usize; 2]| element * weights + full * gradients;
        let largest = self.units.iter().max().copied().unwrap_or(0);
        let moment = |unit: usize| {
            let [making, sending] = self.backward(unit).map(bytes);
            (making + full * self.together[unit]).max(sending)
        };
        let passes = (0..self.units.len()).map(|unit| moment(unit).max(bytes(self.forward(unit))));
        passes.max().unwrap_or(0) + if mixed { full * largest } else { 0 }
    }

    /// The elements of a unit and of its collective in flight; 0 before the first and after the last.
    fn travelling(&self, unit: Option<usize>) -> usize {
        let unit = unit.filter(|unit| *unit < self.units.len());
        unit.map_or(0, |unit| self.units[unit] + self.parts[unit])
    }

    /// Weights and gradients held during the forward pass of `unit`.
    fn forward(&self, unit: usize) -> [usize; 2] {
        let earlier = if self.micros > 1 { self.travelling(Some(0)) } else { 0 };
        match self.form.sharding() {
            Sharding::Fsdp { prefetch: true } => {
                [self.units[unit] + self.travelling(Some(unit + 1)), earlier]
            }
            Sharding::Fsdp { prefetch: false } => [self.travelling(Some(unit)), earlier],
            Sharding::Zero2 => [0, earlier],
            _ => [0, 0],
        }
    }

    /// Weights and gradients held when the backward pass of `unit` has both, and when its gradients
    /// are in flight.
    fn backward(&self, unit: usize) -> [[usize; 2]; 2] {
        let own = self.units[unit];
        let later = self.travelling(Some(unit + 1));
        let sent = self.travelling(Some(unit));
        if let DataForm::Stale { late } = self.form {
            // The gradients of earlier steps are in flight.
            return [[0, late as usize * self.units.iter().sum::<usize>()]; 2];
        }
        match self.form.sharding() {
            Sharding::Replicated { .. } => [[0, 0]; 2],
            Sharding::Zero1 => [[0, later], [0, sent]],
            Sharding::Zero2 => [[0, own + later], [0, sent]],
            Sharding::Fsdp { prefetch } => {
                let next = if prefetch { self.travelling(unit.checked_sub(1)) } else { 0 };
                [[own + next, own + later], [next, sent]]
            }
        }
    }
}

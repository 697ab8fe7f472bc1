//! The bytes that a rank of a mesh should hold and send, by arithmetic alone. The tour prints them
//! with the measured bytes, and both must be equal.
//!
//! What it does: counts the parameters of a rank, and the numbers that the rank sends in one step,
//! by group. `n` is the tokens of a micro-batch on the rank times the width; `p` is the number of
//! ranks of the axis:
//!
//! ```text
//! tp    4 all-reduces of n per layer and micro-batch, one for the embedding, one for the head.
//!       The loss: all-reduces of three numbers per token.
//!       Sequence parallelism sends the same bytes, and once a step all-reduces the gradients
//!       of norms, biases and positions.
//! pp    n to the next stage and n to the previous stage, per micro-batch and boundary.
//!       n / tp with sequence parallelism.
//! cp    ring: 2n (p-1) forward and 2n (2p-1) backward, per layer and micro-batch.
//!       Ulysses: 8n (p-1)/p. Both are divided by the ranks of tp.
//! ep    twice the rows sent to other ranks and received from them, per layer and micro-batch,
//!       and the counts of these rows. Once a step an all-reduce of the dense parameters.
//! dp    the formula of the sharding (`memory::wire`), with the parameters of this rank.
//! A block that is computed again sends what its forward pass sends a second time.
//! ```
//!
//! In an all-reduce of `n` numbers each rank sends `2n (p-1)/p`; in an all-gather or a
//! reduce-scatter, half of that. This holds for the ring in any group, and for every algorithm in a
//! group of two.
//!
//! What is sharded, which collective runs where: nothing here.

use crate::memory::wire;
use maypole_trainer::expert_parallel::layer::RoutingRecord;
use maypole_trainer::model::config::Config;
use maypole_trainer::model::layout::{LayoutEntry, ModelShare, ParameterLayout};
use maypole_trainer::ranks::mesh::{MeshAxis, MeshCoordinates};
use maypole_trainer::ranks::traffic::Traffic;
use maypole_trainer::train::parallelism::{ContextExchange, Parallelism};

/// One rank of a mesh, and its training.
#[derive(Clone, Copy, Debug)]
pub struct RankTheory<'a> {
    /// The whole model.
    pub config: &'a Config,
    /// The mesh, and how the model is divided over it.
    pub setup: &'a Parallelism,
    /// The coordinates of the rank.
    pub place: MeshCoordinates,
    /// Rows of the whole batch, if each replica has as many as that of this rank.
    pub rows: usize,
    /// Bytes of a number.
    pub element: usize,
    /// True if blocks keep only their input: each runs forward a second time.
    pub recompute: bool,
}

impl RankTheory<'_> {
    pub(crate) fn size(&self, axis: MeshAxis) -> usize {
        self.setup.mesh.size(axis)
    }

    /// The part of the model that is on this rank.
    fn share(&self) -> ModelShare {
        self.setup.share(self.config, self.place)
    }

    /// The table of the parameters on this rank.
    pub(crate) fn layout(&self) -> ParameterLayout {
        ParameterLayout::new(self.config, self.share())
    }

    /// The number of this rank's parameters whose gradients are summed over `axis`.
    fn partial(&self, axis: MeshAxis) -> usize {
        self.layout().entries.iter().filter(|it| it.is_partial(axis)).map(LayoutEntry::len).sum()
    }

    /// The number of parameters on this rank.
    pub fn parameters(&self) -> usize {
        self.layout().len()
    }

    /// The tokens of a micro-batch on this rank.
    pub(crate) fn tokens(&self) -> usize {
        self.setup.micro_rows(self.rows) * self.config.context / self.size(MeshAxis::Cp)
    }

    /// The bytes that this rank should send in a step. `routing` counts the rows that the step sent
    /// to experts.
    pub fn traffic(&self, routing: &RoutingRecord) -> Traffic {
        let copies = self.size(MeshAxis::Dp) * self.size(MeshAxis::Cp);
        let shared = wire(self.setup.sharding, self.parameters(), copies, self.setup.micros);
        let world = self.setup.mesh.world() as u64;
        Traffic {
            pp: self.bytes(self.pp()),
            ep: self.bytes(self.ep(routing)) + self.counts(),
            cp: self.bytes(self.cp()),
            tp: self.bytes(self.tp(routing)),
            copies: self.bytes(shared.all()),
            // The norm of the gradient, and the loss.
            world: 2 * (world - 1) * size_of::<f64>() as u64,
        }
    }

    fn bytes(&self, numbers: f64) -> u64 {
        (numbers * self.element as f64).round() as u64
    }

    /// Numbers that this rank sends in an all-reduce of `numbers` over `axis`.
    fn all_reduce(&self, numbers: usize, axis: MeshAxis) -> f64 {
        let ranks = self.size(axis) as f64;
        2.0 * numbers as f64 * (ranks - 1.0) / ranks
    }

    fn tp(&self, routing: &RoutingRecord) -> f64 {
        let share = self.share();
        let layers = share.layers.len();
        let embed = usize::from(share.embed);
        let head = usize::from(share.head);
        let d = self.config.width;
        let tokens = self.tokens();
        let all = |numbers| self.all_reduce(numbers, MeshAxis::Tp);
        let no_experts = self.config.experts == 0;
        // A layer of experts gathers tokens under sequence parallelism, and has no sum of tokens.
        // Its sums are those of the rows of each expert (`rows` below).
        let feed = if no_experts { 2 } else { usize::from(self.setup.sequence) };
        // A block that is computed again goes forward through its regions once more.
        let passes = if self.recompute { 1.5 } else { 1.0 };
        let blocks = (layers * (2 + feed)) as f64 * passes;
        let regions = (blocks + (embed + head) as f64) * all(tokens * d);
        let loss = head as f64 * (all(tokens) + all(2 * tokens));
        let micros = self.setup.micros as f64 * (regions + loss);
        let rows = if no_experts {
            0.0
        } else {
            2.0 * passes * all(routing.each.iter().sum::<usize>() * d)
        };
        let vectors = if self.setup.sequence { self.partial(MeshAxis::Tp) } else { 0 };
        micros + rows + all(vectors)
    }

    fn pp(&self) -> f64 {
        let at = self.place.at(MeshAxis::Pp);
        let ranks = self.size(MeshAxis::Pp);
        let chunks = self.setup.schedule.chunks();
        if ranks == 1 {
            return 0.0;
        }
        let last = ranks * chunks - 1;
        let stages = (0..chunks).map(|chunk| chunk * ranks + at);
        let messages: usize =
            stages.map(|stage| usize::from(stage > 0) + usize::from(stage < last)).sum();
        let divided = if self.setup.sequence { self.size(MeshAxis::Tp) } else { 1 };
        (messages * self.setup.micros * self.tokens() * self.config.width / divided) as f64
    }

    fn cp(&self) -> f64 {
        let layers = self.share().layers.len();
        let ranks = self.size(MeshAxis::Cp) as f64;
        let each = (layers * self.setup.micros * self.tokens() * self.config.width
            / self.size(MeshAxis::Tp)) as f64;
        let again = if self.recompute { 1.0 } else { 0.0 };
        match self.setup.exchange {
            _ if ranks == 1.0 => 0.0,
            ContextExchange::Ring => 2.0 * each * (3.0 * ranks - 2.0 + again * (ranks - 1.0)),
            ContextExchange::Ulysses => (8.0 + 4.0 * again) * each * (ranks - 1.0) / ranks,
        }
    }

    fn ep(&self, routing: &RoutingRecord) -> f64 {
        // Each pass sends rows to experts on other ranks, and sends results back.
        let both_ways = routing.abroad[0] + routing.abroad[1];
        let passes = if self.recompute { 3 } else { 2 };
        let crossings = passes * both_ways * self.config.width;
        crossings as f64 + self.all_reduce(self.partial(MeshAxis::Ep), MeshAxis::Ep)
    }

    /// The bytes of row counts, per layer and micro-batch. In each pass (two, or three with
    /// recomputation) a rank sends every other rank the number of rows for each of its experts.
    /// Then come two all-to-alls of rows; for each of them every rank sends its `2 * ranks` lengths
    /// to all others.
    fn counts(&self) -> u64 {
        let ranks = self.size(MeshAxis::Ep);
        let experts = self.config.experts;
        if ranks == 1 {
            return 0;
        }
        let numbers = experts / ranks * (ranks - 1) + 2 * 2 * ranks * (ranks - 1);
        let passes = if self.recompute { 3 } else { 2 };
        let layers = self.share().layers.len();
        (layers * self.setup.micros * passes * numbers * size_of::<u64>()) as u64
    }
}

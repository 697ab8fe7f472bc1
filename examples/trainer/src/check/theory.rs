//! What a rank of a mesh should hold and send, by arithmetic alone: printed beside what is
//! measured, and equal to it.
//!
//! What it does: counts the parameters of a place, and the bytes that leave a rank in one step by
//! each of its groups. Let `n` be a micro-batch's tokens on a rank times the width, and `p` the
//! ranks of the axis:
//!
//! ```text
//! tp    4 all-reduces of n a layer and micro-batch, one more for the embedding and one for the head; three numbers a token
//!       for the loss. With tokens divided the same bytes, and once a step the norms, biases and positions.
//! pp    n to the next stage and n to the one before, a micro-batch and boundary; n / tp with tokens divided.
//! cp    ring: 2n (p-1) forward, 2n (2p-1) backward, a layer and micro-batch. Ulysses: 8n (p-1)/p. Both over tp.
//! ep    twice the rows that go abroad and that come from abroad, a layer and micro-batch; some counts; once a step all
//!       parameters that are no experts'.
//! dp    as its file says, of this place's parameters.
//! ```
//!
//! An all-reduce of `n` sends `2n (p-1)/p`, a gather or a scatter of all `n` half of that: what
//! every algorithm of groups of two sends, and the ring in any group.
//!
//! What is sharded, which collective runs where: nothing here.

use crate::check::memory::wire;
use crate::data_parallel::partial::{applied_to_own_tokens, dense};
use crate::expert_parallel::layer::RoutingRecord;
use crate::model::config::Config;
use crate::model::layout::{LayoutEntry, ModelShare, ParameterLayout};
use crate::ranks::mesh::{MeshAxis, MeshCoordinates};
use crate::ranks::traffic::Traffic;
use crate::train::setup::{ContextExchange, Setup};

/// A place in a mesh, and what is done there.
#[derive(Clone, Copy, Debug)]
pub struct RankTheory<'a> {
    /// The whole model.
    pub config: &'a Config,
    /// How it is spread.
    pub setup: &'a Setup,
    /// Which rank.
    pub place: MeshCoordinates,
    /// Rows of the whole batch.
    pub rows: usize,
    /// Bytes of a number.
    pub element: usize,
}

impl RankTheory<'_> {
    fn size(&self, axis: MeshAxis) -> usize {
        self.setup.mesh.size(axis)
    }

    /// The part of the model that is on this rank.
    fn share(&self) -> ModelShare {
        self.setup.share(self.config, self.place)
    }

    /// The table of the parameters on this rank.
    fn layout(&self) -> ParameterLayout {
        ParameterLayout::new(self.config, self.share())
    }

    /// How many of this rank's parameters `counts` holds for.
    fn count(&self, counts: impl Fn(&LayoutEntry) -> bool) -> usize {
        self.layout().entries.iter().filter(|entry| counts(entry)).map(LayoutEntry::len).sum()
    }

    /// Parameters here.
    pub fn parameters(&self) -> usize {
        self.layout().len()
    }

    /// Tokens of a micro-batch here.
    fn tokens(&self) -> usize {
        self.setup.micro_rows(self.rows) * self.config.context / self.size(MeshAxis::Cp)
    }

    /// What should leave this rank in a step; `routing` says which rows went where, if there are
    /// experts.
    pub fn traffic(&self, routing: &RoutingRecord) -> Traffic {
        let copies = self.size(MeshAxis::Dp) * self.size(MeshAxis::Cp);
        let shared = wire(self.setup.sharding, self.parameters(), copies, self.setup.micros);
        let world = self.setup.mesh.world() as u64;
        Traffic {
            pp: self.bytes(self.pp()),
            ep: self.bytes(self.ep(routing)) + self.counts(),
            cp: self.bytes(self.cp()),
            tp: self.bytes(self.tp(routing)),
            copies: self.bytes(shared),
            world: (world - 1) * size_of::<f64>() as u64,
        }
    }

    fn bytes(&self, numbers: f64) -> u64 {
        (numbers * self.element as f64).round() as u64
    }

    /// What an all-reduce of `numbers` sends.
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
        // Around experts tokens are only gathered, if they are divided; among experts rows are
        // summed.
        let feed = if no_experts { 2 } else { usize::from(self.setup.sequence) };
        let regions = (layers * (2 + feed) + embed + head) as f64 * all(tokens * d);
        let loss = head as f64 * (all(tokens) + all(2 * tokens));
        let micros = self.setup.micros as f64 * (regions + loss);
        let rows = if no_experts { 0.0 } else { 2.0 * all(routing.here * d) };
        let vectors = if self.setup.sequence { self.count(applied_to_own_tokens) } else { 0 };
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
        match self.setup.exchange {
            _ if ranks == 1.0 => 0.0,
            ContextExchange::Ring => 2.0 * each * (3.0 * ranks - 2.0),
            ContextExchange::Ulysses => 8.0 * each * (ranks - 1.0) / ranks,
        }
    }

    fn ep(&self, routing: &RoutingRecord) -> f64 {
        let journeys = 2 * (routing.abroad[0] + routing.abroad[1]) * self.config.width;
        journeys as f64 + self.all_reduce(self.count(dense), MeshAxis::Ep)
    }

    /// How many rows are coming, twice a layer and micro-batch, by expert; and for each of four
    /// journeys by rank, which the library tells all ranks.
    fn counts(&self) -> u64 {
        let ranks = self.size(MeshAxis::Ep);
        let experts = self.config.experts;
        if ranks == 1 {
            return 0;
        }
        let told = 2 * experts / ranks * (ranks - 1) + 4 * 2 * ranks * (ranks - 1);
        (self.share().layers.len() * self.setup.micros * told * size_of::<u64>()) as u64
    }
}

//! The division of a model over a mesh: every choice of a run except the model, the text and the
//! optimizer.
//!
//! What it does: [`Parallelism`] names the choices; [`Parallelism::check`] explains in a sentence why a choice
//! does not suit the model or another choice. What is sharded, which collective runs where, cost: in the
//! file of each axis.

use crate::context_parallel::zigzag::PositionDivision;
use crate::data_parallel::sharding::Sharding;
use crate::expert_parallel::router::Router;
use crate::model::config::{Config, divisor, ensure};
use crate::model::layout::ModelShare;
use crate::pipeline_parallel::plan::PipelineSchedule;
use crate::ranks::group::SumOrder;
use crate::ranks::mesh::{Mesh, MeshAxis, MeshCoordinates};
use crate::ranks::shard::Shard;

/// The most tokens of a step.
const MOST_TOKENS: f64 = (1u64 << 32) as f64;

/// The exchange that brings keys of other ranks to queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContextExchange {
    /// Keys and values pass around a ring of ranks: [`crate::context_parallel::ring`].
    Ring,
    /// Positions are exchanged for heads: [`crate::context_parallel::ulysses`].
    Ulysses,
}

/// The division of a model over ranks.
#[derive(Clone, Debug, PartialEq)]
pub struct Parallelism {
    /// The number of ranks along each axis.
    pub mesh: Mesh,
    /// Whether tokens are divided over `tp` where layers are not:
    /// [`crate::tensor_parallel::sequence`].
    pub sequence: bool,
    /// The exchange of `cp`.
    pub exchange: ContextExchange,
    /// The division of the positions of a sequence over `cp`.
    pub division: PositionDivision,
    /// The layers of each stage of `pp`; none: equally many, or one more.
    pub layers: Option<Vec<usize>>,
    /// The order of the passes on `pp`.
    pub schedule: PipelineSchedule,
    /// Micro-batches of a step.
    pub micros: usize,
    /// The rule by which tokens choose experts, if the model has some.
    pub router: Option<Router>,
    /// What ranks that have the same parameters divide among them: those along `dp` and `cp`.
    pub sharding: Sharding,
    /// The order of addition in sums.
    pub order: SumOrder,
}

impl Default for Parallelism {
    fn default() -> Self {
        Self {
            mesh: Mesh::ONE,
            sequence: false,
            exchange: ContextExchange::Ring,
            division: PositionDivision::ZigZag,
            layers: None,
            schedule: PipelineSchedule::OneForwardOneBackward,
            micros: 1,
            router: None,
            sharding: Sharding::default(),
            order: SumOrder::Fast,
        }
    }
}

impl Parallelism {
    /// A setup with this mesh and the default of every other choice.
    pub fn of(mesh: Mesh) -> Self {
        Self { mesh, ..Self::default() }
    }

    /// Which part of the model the rank at `place` has.
    pub fn share(&self, config: &Config, place: MeshCoordinates) -> ModelShare {
        let shard = |axis| Shard { index: place.at(axis), of: self.mesh.size(axis) };
        let pipeline = shard(MeshAxis::Pp);
        let stages = (0..self.schedule.chunks()).map(|chunk| chunk * pipeline.of + pipeline.index);
        ModelShare {
            tensor: shard(MeshAxis::Tp),
            expert: shard(MeshAxis::Ep),
            layers: stages.flat_map(|stage| self.layers(config, stage)).collect(),
            embed: pipeline.index == 0,
            head: pipeline.index + 1 == pipeline.of,
        }
    }

    /// Which layers are at stage `stage` of the pipeline.
    pub fn layers(&self, config: &Config, stage: usize) -> std::ops::Range<usize> {
        let Some(counts) = &self.layers else {
            return Shard { index: stage, of: self.stages() }.range(config.layers);
        };
        let first = counts[..stage].iter().sum();
        first..first + counts[stage]
    }

    /// The number of stages of the whole pipeline.
    fn stages(&self) -> usize {
        self.mesh.size(MeshAxis::Pp).saturating_mul(self.schedule.chunks())
    }

    /// Rows of one micro-batch on one rank, if the whole batch has `rows` rows.
    pub fn micro_rows(&self, rows: usize) -> usize {
        rows / (self.mesh.sizes(&[MeshAxis::Dp, MeshAxis::Ep]) * self.micros)
    }

    /// Checks that a model of `config` and batches of `rows` rows can be divided in this way.
    /// Errors name choices as the options of `train` do.
    ///
    /// # Errors
    /// A sentence that names the two choices that do not combine, and a remedy.
    pub fn check(&self, config: &Config, rows: usize) -> Result<(), String> {
        self.check_model(config)?;
        self.check_rows(config, rows)?;
        self.check_batch(config, rows)
    }

    /// The part of [`check`](Self::check) that does not depend on the rows of a batch.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn check_model(&self, config: &Config) -> Result<(), String> {
        self.check_heads(config)?;
        self.check_vocabulary(config)?;
        self.check_positions(config)?;
        self.check_experts(config)?;
        self.check_layers(config)?;
        ensure!(self.micros > 0, "--micros 0: a batch has at least one part");
        let stages = self.mesh.size(MeshAxis::Pp);
        self.schedule.plan(stages, self.micros).map(drop)
    }

    /// Checks that all `rows` rows of a batch can be trained on, each once. Replicas need not have
    /// equally many.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn check_batch(&self, config: &Config, rows: usize) -> Result<(), String> {
        let (micros, replicas) = (self.micros, self.mesh.sizes(&[MeshAxis::Dp, MeshAxis::Ep]));
        let each = rows / micros;
        ensure!(
            rows.is_multiple_of(micros) && each >= replicas,
            "{rows} rows cannot be divided into {micros} micro-batches of {replicas} replicas: \
             give a multiple of {micros}, {} or more, as --rows",
            replicas.saturating_mul(micros)
        );
        self.check_sequence(config, each / replicas)?;
        self.check_sequence(config, each.div_ceil(replicas))
    }

    fn check_vocabulary(&self, config: &Config) -> Result<(), String> {
        let (tp, vocab) = (self.mesh.size(MeshAxis::Tp), config.vocab);
        ensure!(
            vocab >= tp,
            "each rank of tp has rows of the vocabulary, and a vocabulary of {vocab} has fewer than \
             tp={tp}: give tp={vocab} or less in --mesh"
        );
        Ok(())
    }

    fn check_layers(&self, config: &Config) -> Result<(), String> {
        let Some(counts) = &self.layers else { return Ok(()) };
        let (layers, stages) = (config.layers, self.stages());
        let sum = counts.iter().fold(0usize, |sum, count| sum.saturating_add(*count));
        ensure!(
            counts.len() == stages && sum == layers && !counts.contains(&0),
            "--stages divides {sum} layers over {} stages, and the model has {layers} layers on \
             {stages} stages: give {stages} positive numbers whose sum is {layers}",
            counts.len()
        );
        Ok(())
    }

    fn check_heads(&self, config: &Config) -> Result<(), String> {
        let tp = self.mesh.size(MeshAxis::Tp);
        let cp = self.mesh.size(MeshAxis::Cp);
        let heads = config.heads;
        ensure!(
            heads.is_multiple_of(tp),
            "each rank of tp has whole heads, and {heads} heads are no multiple of tp={tp}: \
                 give a multiple of {tp} as --heads, or tp={} in --mesh",
            divisor(heads, tp)
        );
        let keys = config.kv_heads();
        let fits = |give: &usize| give.is_multiple_of(tp) && heads.is_multiple_of(*give);
        ensure!(
            keys.is_multiple_of(tp),
            "each rank of tp has whole heads of keys, and {keys} are no multiple of tp={tp}: \
             give --kv-heads {}, or tp={} in --mesh",
            (keys..=heads).find(fits).unwrap_or(heads),
            divisor(keys, tp)
        );
        let left = heads / tp;
        ensure!(
            self.exchange != ContextExchange::Ulysses || left.is_multiple_of(cp),
            "Ulysses divides the heads that tp leaves over cp, and {left} of {heads} heads are no \
             multiple of cp={cp}: give --exchange ring, or cp={} in --mesh",
            divisor(left, cp)
        );
        Ok(())
    }

    fn check_rows(&self, config: &Config, rows: usize) -> Result<(), String> {
        ensure!(rows > 0, "--rows 0: a batch has at least one row");
        ensure!(
            rows as f64 * config.context as f64 <= MOST_TOKENS,
            "{rows} rows of {} tokens are too many for a step: give fewer --rows",
            config.context
        );
        let parts = self.mesh.sizes(&[MeshAxis::Dp, MeshAxis::Ep]).saturating_mul(self.micros);
        if rows.is_multiple_of(parts) {
            return Ok(());
        }
        let fewer = self
            .fewer_micros(rows)
            .map_or_else(String::new, |micros| format!(" or --micros {micros}"));
        let give = format!("give --rows {}{fewer}", rows.next_multiple_of(parts));
        Err(format!(
            "rows are divided over {}, and {rows} is no multiple of {parts}: {give}",
            self.parts_of_rows()
        ))
    }

    /// What rows are divided over, in words.
    fn parts_of_rows(&self) -> String {
        let axes =
            [MeshAxis::Dp, MeshAxis::Ep].into_iter().filter(|axis| self.mesh.size(*axis) > 1);
        let mut over: Vec<String> =
            axes.map(|axis| format!("{}={}", axis.name(), self.mesh.size(axis))).collect();
        let micros = self.micros;
        let stages = self.mesh.size(MeshAxis::Pp);
        if micros > 1 {
            let whose = if stages > 1 { format!(" of pp={stages}") } else { String::new() };
            over.push(format!("{micros} micro-batches{whose}"));
        }
        over.join(" and ")
    }

    /// The most micro-batches below those of the setup that `rows` rows can be cut into.
    fn fewer_micros(&self, rows: usize) -> Option<usize> {
        let ranks = self.mesh.sizes(&[MeshAxis::Dp, MeshAxis::Ep]);
        let stages = self.mesh.size(MeshAxis::Pp);
        let whole = |micros: usize| self.schedule.chunks() == 1 || micros.is_multiple_of(stages);
        let fits = |micros: &usize| rows.is_multiple_of(ranks * micros) && whole(*micros);
        (1..self.micros.min(rows + 1)).rev().find(fits)
    }

    fn check_positions(&self, config: &Config) -> Result<(), String> {
        let cp = self.mesh.size(MeshAxis::Cp);
        let context = config.context;
        let pieces = self.division.chunks(cp);
        let fits = |cp: &usize| context.is_multiple_of(self.division.chunks(*cp));
        ensure!(
            fits(&cp),
            "positions are divided over cp={cp} in {pieces} pieces, and a context of {context} is no \
             multiple of {pieces}: give --context {} or cp={} in --mesh",
            context.next_multiple_of(pieces),
            (1..cp).rev().find(fits).unwrap_or(1)
        );
        Ok(())
    }

    /// The least multiple of `each` rows that a rank can run forward together.
    pub(super) fn rows_of_a_pass(&self, config: &Config, each: usize) -> usize {
        let fits = |rows: &usize| self.check_sequence(config, *rows).is_ok();
        let tp = self.mesh.size(MeshAxis::Tp);
        (1..tp).map(|times| times * each).find(fits).unwrap_or(tp * each)
    }

    /// Checks micro-batches of `rows` rows on a rank.
    fn check_sequence(&self, config: &Config, rows: usize) -> Result<(), String> {
        let tp = self.mesh.size(MeshAxis::Tp);
        let cp = self.mesh.size(MeshAxis::Cp);
        let context = config.context;
        let tokens = rows * context / cp;
        ensure!(
            !self.sequence || tokens.is_multiple_of(tp),
            "--sequence divides a micro-batch's tokens over tp, and {tokens} on a rank of cp are no \
             multiple of tp={tp}: give --context {}",
            context.next_multiple_of(self.division.chunks(cp) * tp)
        );
        Ok(())
    }

    fn check_experts(&self, config: &Config) -> Result<(), String> {
        let Some(router) = self.router else {
            ensure!(config.experts == 0, "a model with experts needs a router");
            return Ok(());
        };
        let experts = router.experts;
        let ep = self.mesh.size(MeshAxis::Ep);
        let top = router.top;
        ensure!(
            experts == config.experts,
            "the router has {experts} experts, the model {}",
            config.experts
        );
        ensure!(
            experts >= top,
            "each token goes to {top} experts, and there is {experts}: give --experts {top} or more"
        );
        ensure!(
            experts.is_multiple_of(ep),
            "experts are divided over ep, and {experts} are no multiple of ep={ep}: \
                 give --experts {} or ep={} in --mesh",
            experts.next_multiple_of(ep),
            divisor(experts, ep)
        );
        let group = router.group;
        let pieces = self.division.chunks(self.mesh.size(MeshAxis::Cp));
        let piece = config.context / pieces;
        let of = if pieces > 1 { format!(" in {pieces} pieces over cp") } else { String::new() };
        ensure!(
            group > 0 && piece.is_multiple_of(group),
            "a group of tokens is routed on one rank, and a context of {}{of} is not cut into \
             groups of {group}: give --group {}",
            config.context,
            divisor(piece, group.max(1))
        );
        Ok(())
    }
}

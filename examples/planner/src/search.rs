//! Searches the legal strategies for training a model on a cluster, and keeps the fastest that fit.
//!
//! What it does: every mesh whose axes divide the ranks, the heads, the experts, the layers and the
//! rows; every sharding, micro-batch, schedule, recomputation and precision on it. First memory,
//! which is cheap, then the price. Left out because they never win: GPipe, which takes the
//! time of 1F1B and more memory; tensor parallelism without sequence parallelism, which moves the
//! same bytes and keeps more; tensor parallelism across hosts; pieces of a sequence of less than
//! 1,024 tokens.
//!
//! What is sharded, which collective runs where: nothing here. Cost: some microseconds a strategy.

use crate::cluster::AcceleratorCluster;
use crate::groups::GroupPrices;
use crate::memory::RankBytes;
use crate::price::StepPricing;
use crate::sizes::ModelSizes;
use crate::step::StepPrice;
use crate::strategy::{NumberFormat, ParallelStrategy, Recomputation, ZeroStage};
use maypole_trainer::pipeline_parallel::plan::PipelineSchedule;
use maypole_trainer::ranks::mesh::{Mesh, MeshAxis};

/// The part of an accelerator's memory that a plan may fill. The rest is for its driver, for
/// libraries and for gaps between allocations.
pub const USABLE: f64 = 0.94;

/// The fewest tokens of a piece of a sequence.
const FEWEST_TOKENS: usize = 1024;
/// The most rows of a micro-batch on a rank.
const MOST_ROWS: usize = 16;
/// The most stages of a rank.
const MOST_CHUNKS: usize = 8;

/// The constraints of the search.
#[derive(Clone, Debug)]
pub struct AdviceQuestion {
    /// Tokens of a step.
    pub tokens: usize,
    /// The precisions to try.
    pub formats: Vec<NumberFormat>,
    /// The recomputations to try.
    pub recompute: Vec<Recomputation>,
    /// The shardings to try.
    pub stages: Vec<ZeroStage>,
}

/// A strategy that fits in memory, with its bytes and its time.
#[derive(Clone, Copy, Debug)]
pub struct PricedStrategy {
    /// The strategy.
    pub strategy: ParallelStrategy,
    /// Bytes of the fullest rank.
    pub bytes: RankBytes,
    /// Seconds of a step.
    pub price: StepPrice,
    /// The model FLOP utilisation.
    pub utilisation: f64,
}

/// The result of the search.
#[derive(Clone, Debug)]
pub struct Advice {
    /// The fastest strategy on each mesh on which one fits, the fastest mesh first.
    pub best: Vec<PricedStrategy>,
    /// The number of strategies that fit.
    pub fitting: usize,
    /// The number of strategies that do not fit.
    pub refused: usize,
    /// Of the strategies that do not fit, those with the least overflow of memory: one a mesh.
    pub nearest: Vec<UnfitStrategy>,
    /// Bytes of a rank that a plan may fill.
    pub usable: f64,
}

/// A strategy that does not fit.
#[derive(Clone, Copy, Debug)]
pub struct UnfitStrategy {
    /// The strategy.
    pub strategy: ParallelStrategy,
    /// Bytes of the fullest rank.
    pub bytes: f64,
}

#[derive(Clone, Copy, Debug)]
struct StepSize {
    /// Sequences.
    rows: usize,
    ranks: usize,
}

/// Searches all strategies for training `model` on `cluster`.
///
/// # Errors
/// A sentence, if a step does not hold whole sequences or a link is missing.
pub fn advise(
    model: &ModelSizes,
    cluster: &AcceleratorCluster,
    question: &AdviceQuestion,
) -> Result<Advice, String> {
    let sequence = model.sequence;
    if question.tokens == 0 || !question.tokens.is_multiple_of(sequence) {
        let next = question.tokens.max(1).next_multiple_of(sequence);
        return Err(format!(
            "--tokens {}: a step has whole sequences of {sequence} tokens: give {next}",
            question.tokens
        ));
    }
    let size = StepSize { rows: question.tokens / sequence, ranks: cluster.ranks() };
    let prices = GroupPrices::new(cluster);
    let mut advice = Advice {
        best: Vec::new(),
        fitting: 0,
        refused: 0,
        nearest: Vec::new(),
        usable: USABLE * cluster.accelerator.memory,
    };
    for mesh in meshes(model, size, cluster.per_host()) {
        let site = MeshSite { model, cluster, question, mesh, rows: size.rows };
        site.look(&prices, &mut advice)?;
    }
    advice.best.sort_by(|a, b| a.price.total().total_cmp(&b.price.total()));
    drop_idle_cp(&mut advice.best);
    advice.nearest.sort_by(|a, b| a.bytes.total_cmp(&b.bytes));
    advice.nearest.truncate(3);
    Ok(advice)
}

/// Drops meshes that have ranks along `cp` in place of `dp` without a gain: a step that is at least
/// 1 % faster. Where the ring overlaps with the scores, both meshes take the same time.
fn drop_idle_cp(best: &mut Vec<PricedStrategy>) {
    let known = best.clone();
    best.retain(|way| {
        let cp = way.strategy.mesh.size(MeshAxis::Cp);
        let same = |other: &PricedStrategy| {
            let axes = [MeshAxis::Tp, MeshAxis::Pp, MeshAxis::Ep];
            let size = |axis| other.strategy.mesh.size(axis) == way.strategy.mesh.size(axis);
            axes.into_iter().all(size) && other.strategy.mesh.size(MeshAxis::Cp) < cp
        };
        let worth = |other: &PricedStrategy| way.price.total() < 0.99 * other.price.total();
        known.iter().filter(|other| same(other)).all(worth)
    });
}

/// The numbers that divide `whole`, in ascending order.
fn divisors(whole: usize) -> Vec<usize> {
    let small = (1..).take_while(|part| part * part <= whole);
    let small: Vec<usize> = small.filter(|part| whole.is_multiple_of(*part)).collect();
    let large = small.iter().rev().map(|part| whole / part);
    let mut all: Vec<usize> = small.iter().copied().chain(large).collect();
    all.dedup();
    all
}

/// All meshes that the model, the rows and the ranks allow.
fn meshes(model: &ModelSizes, size: StepSize, per_host: usize) -> Vec<Mesh> {
    let mut found = Vec::new();
    for tp in divisors(size.ranks) {
        if tp > per_host || !model.heads.is_multiple_of(tp) {
            continue;
        }
        for cp in divisors(size.ranks / tp) {
            let pieces = if cp == 1 { 1 } else { 2 * cp };
            let short = model.sequence / pieces < FEWEST_TOKENS;
            if cp > 1 && (short || !model.sequence.is_multiple_of(pieces)) {
                continue;
            }
            for ep in divisors(size.ranks / (tp * cp)) {
                if ep > 1 && (model.experts == 0 || !model.experts.is_multiple_of(ep)) {
                    continue;
                }
                let rest = size.ranks / (tp * cp * ep);
                let deep = divisors(rest).into_iter().filter(|pp| *pp <= model.layers);
                let rows = |pp: &usize| size.rows.is_multiple_of(ep * (rest / pp));
                found.extend(deep.filter(rows).map(|pp| {
                    let mesh = Mesh::ONE.with(MeshAxis::Tp, tp).with(MeshAxis::Cp, cp);
                    mesh.with(MeshAxis::Ep, ep).with(MeshAxis::Pp, pp).with(MeshAxis::Dp, rest / pp)
                }));
            }
        }
    }
    found
}

/// One mesh with its question.
struct MeshSite<'a> {
    model: &'a ModelSizes,
    cluster: &'a AcceleratorCluster,
    question: &'a AdviceQuestion,
    mesh: Mesh,
    rows: usize,
}

impl MeshSite<'_> {
    /// Adds the fastest strategy on this mesh to `advice`; if none fits, the one with the fewest
    /// bytes.
    fn look<'a>(&'a self, prices: &'a GroupPrices<'a>, advice: &mut Advice) -> Result<(), String> {
        let mut best: Option<PricedStrategy> = None;
        let mut nearest: Option<UnfitStrategy> = None;
        for strategy in self.strategies() {
            let bytes = RankBytes::of(self.model, &strategy);
            if bytes.total() > advice.usable {
                advice.refused += 1;
                if nearest.is_none_or(|known| bytes.total() < known.bytes) {
                    nearest = Some(UnfitStrategy { strategy, bytes: bytes.total() });
                }
                continue;
            }
            advice.fitting += 1;
            let price = StepPricing::new(self.model, &strategy, self.cluster, prices).step()?;
            let accelerator = &self.cluster.accelerator;
            let utilisation = price.utilisation(self.model, &strategy, accelerator);
            if best.is_none_or(|known| price.total() < known.price.total()) {
                best = Some(PricedStrategy { strategy, bytes, price, utilisation });
            }
        }
        advice.nearest.extend(nearest.filter(|_| best.is_none()));
        advice.best.extend(best);
        Ok(())
    }

    /// All strategies on this mesh.
    fn strategies(&self) -> Vec<ParallelStrategy> {
        let question = self.question;
        let mesh = self.mesh;
        let sequence = mesh.size(MeshAxis::Tp) > 1;
        let copies = mesh.sizes(&[MeshAxis::Dp, MeshAxis::Ep, MeshAxis::Cp]);
        let own = self.rows / mesh.sizes(&[MeshAxis::Dp, MeshAxis::Ep]);
        let mut found = Vec::new();
        for rows in divisors(own).into_iter().take_while(|rows| *rows <= MOST_ROWS) {
            let micros = own / rows;
            for schedule in self.schedules(micros) {
                for &stage in question.stages.iter().take(if copies == 1 { 1 } else { 4 }) {
                    for &recompute in &question.recompute {
                        found.extend(question.formats.iter().map(|&format| ParallelStrategy {
                            mesh,
                            sequence,
                            stage,
                            schedule,
                            rows,
                            micros,
                            recompute,
                            format,
                        }));
                    }
                }
            }
        }
        found.retain(|strategy| strategy.check(self.model).is_ok());
        found
    }

    /// The schedules of pipelines that `micros` micro-batches allow.
    fn schedules(&self, micros: usize) -> Vec<PipelineSchedule> {
        let stages = self.mesh.size(MeshAxis::Pp);
        let interleaved = (2..=MOST_CHUNKS).filter(|chunks| {
            stages > 1 && micros.is_multiple_of(stages) && stages * chunks <= self.model.layers
        });
        let plain = std::iter::once(PipelineSchedule::OneForwardOneBackward);
        plain.chain(interleaved.map(PipelineSchedule::Interleaved)).collect()
    }
}

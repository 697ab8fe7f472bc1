//! The tour's checks for the axes that divide the model. Each trains the same model as one process
//! and compares both.
//!
//! What it does: runs every [`MeshCheck`] on threads of this process and makes a [`TourRow`] of it.
//! What is sharded, which collective runs where, what it costs: in the file of each axis. The bytes
//! of a row are those of rank 0. A row passes only if the bytes of every rank equal the theory of
//! that rank.

use crate::check::memory::{FULL, RankMemory};
use crate::check::theory::RankTheory;
use crate::check::tour::bits::{heads_anywhere, tokens_divided_or_not};
use crate::check::tour::row::TourRow;
use crate::check::verify::{greater, median};
use crate::expert_parallel::layer::RoutingRecord;
use crate::expert_parallel::rebalance::ExpertMove;
use crate::expert_parallel::router::Router;
use crate::model::config::Config;
use crate::model::layout::ParameterLayout;
use crate::pipeline_parallel::plan::PipelineSchedule;
use crate::pipeline_parallel::trace::{PipelineTrace, simulate};
use crate::ranks::mesh::{Mesh, MeshAxis};
use crate::ranks::traffic::Traffic;
use crate::train::bpe::Bpe;
use crate::train::optim::Rule;
use crate::train::schedule;
use crate::train::setup::{ContextExchange, Setup};
use crate::train::text::Text;
use crate::train::worker::Worker;
use maypole::{Communicator, Result};
use std::time::Instant;

/// Rows of a batch.
const ROWS: usize = 8;
/// Adam with a large epsilon. With a small epsilon a rounding error in a gradient near zero would
/// change the weight by a whole step, and runs could not be compared.
const RULE: Rule = Rule::AdamW { beta1: 0.9, beta2: 0.95, epsilon: 1e-4, decay: 0.1 };
/// The greatest difference of losses and weights where sums are in another order.
const CLOSE: f64 = 1e-5;
/// The greatest difference of losses and weights where only experts are on other ranks.
const EXPERTS: f64 = 1e-6;
/// The greatest difference of a pipeline's bubble from the formula for equal stages. The embedding
/// and the head make the stages unequal, and other programs disturb the measured processor time.
const NEAR: f64 = 0.25;

/// Compares a check bitwise with another way to compute the same values.
pub type BitwiseCheck = fn(&MeshCheck) -> Result<bool>;

/// The configuration of one row.
#[derive(Clone, Debug)]
pub struct MeshCheck {
    /// The title of the row.
    pub axis: &'static str,
    /// The model.
    pub config: Config,
    /// The mesh, and how the model is divided over it.
    pub setup: Setup,
    /// Makes the text to train on.
    pub text: fn(&Config) -> Text,
    /// The greatest relative difference of losses and the greatest difference of weights from one
    /// process. 0: bitwise equal.
    pub bound: f64,
    /// A second, bitwise comparison and its name: of the forward pass with one process, or of the
    /// run with a run on another mesh.
    pub also: Option<(&'static str, BitwiseCheck)>,
    /// The step after which experts move, if they move.
    pub rebalance: Option<u64>,
}

/// Checks of each axis alone, and of several axes together.
pub fn checks() -> Vec<MeshCheck> {
    let setup = |mesh: &str| Setup::of(Mesh::parse(mesh).expect("these are meshes"));
    let check = |axis, setup| MeshCheck {
        axis,
        config: Config::default(),
        setup,
        text: invented,
        bound: CLOSE,
        also: None,
        rebalance: None,
    };
    let sequence = |mesh| Setup { sequence: true, ..setup(mesh) };
    let pipeline = |mesh, schedule| Setup { schedule, micros: 8, ..setup(mesh) };
    let bits = |axis, setup| MeshCheck { bound: 0.0, ..check(axis, setup) };
    let one_by_one = PipelineSchedule::OneForwardOneBackward;
    let router = Router { experts: 4, top: 2, group: 8, capacity: None, balance: 0.01 };
    let experts = |axis, mesh| MeshCheck {
        config: Config { experts: 4, layers: 2, ..Config::default() },
        ..check(axis, Setup { router: Some(router), ..setup(mesh) })
    };
    let odd = |vocab| Config { vocab, ..Config::default() };
    vec![
        check("tensor", setup("tp=2")),
        MeshCheck {
            also: Some(("tp=2", tokens_divided_or_not)),
            ..check("tensor, tokens divided", sequence("tp=2"))
        },
        MeshCheck { config: odd(257), ..check("tensor, 257 tokens", setup("tp=2")) },
        MeshCheck {
            config: odd(301),
            text: byte_pairs,
            ..check("tensor, byte pairs", setup("tp=2"))
        },
        bits("pipeline, GPipe", pipeline("pp=2", PipelineSchedule::GPipe)),
        bits("pipeline, 1F1B", pipeline("pp=2", one_by_one)),
        bits("pipeline, interleaved", pipeline("pp=2", PipelineSchedule::Interleaved(2))),
        bits("pipeline of four", pipeline("pp=4", one_by_one)),
        MeshCheck { bound: EXPERTS, ..experts("experts", "ep=2") },
        MeshCheck {
            bound: EXPERTS,
            rebalance: Some(5),
            ..experts("experts, moved by load", "ep=2")
        },
        check("context, ring", setup("cp=2")),
        MeshCheck {
            also: Some(("forward", heads_anywhere)),
            ..check(
                "context, Ulysses",
                Setup { exchange: ContextExchange::Ulysses, ..setup("cp=2") },
            )
        },
        check("data and tensor", setup("dp=2,tp=2")),
        check("data and pipeline", pipeline("dp=2,pp=2", one_by_one).with_micros(4)),
        check("pipeline and tensor", pipeline("pp=2,tp=2", one_by_one)),
        check("data, pipeline, tensor", pipeline("dp=2,pp=2,tp=2", one_by_one).with_micros(4)),
        experts("experts and tensor", "ep=2,tp=2"),
        experts("experts and context", "ep=2,cp=2"),
    ]
}

fn invented(config: &Config) -> Text {
    Text::invented(config.context, 1)
}

/// The beginning of a play, encoded with as many byte pairs as the model's vocabulary has room for.
fn byte_pairs(config: &Config) -> Text {
    let play = &include_bytes!("../../../text/hamlet.txt")[..20_000];
    let bpe = Bpe::learn(play, config.vocab);
    assert_eq!(bpe.vocab(), config.vocab, "the play has enough repeated pairs");
    Text::new(bpe.encode(play), config.context, 1)
}

impl Setup {
    fn with_micros(self, micros: usize) -> Self {
        Self { micros, ..self }
    }
}

impl MeshCheck {
    /// Trains for `steps` steps on the mesh and in one process.
    ///
    /// # Errors
    /// As every collective.
    ///
    /// # Panics
    /// If the setup does not go with the model.
    pub fn run(&self, steps: u64) -> Result<TourRow> {
        self.setup.check(&self.config, ROWS).expect("a check of the tour is possible");
        let begun = Instant::now();
        let seen = self.train(&self.setup, steps)?;
        let seconds = begun.elapsed().as_secs_f64();
        let alone =
            Setup { micros: self.setup.micros, router: self.setup.router, ..Setup::default() };
        let reference = self.train(&alone, steps)?;
        let difference = difference(&seen, &reference[0]);
        let equal =
            difference <= self.bound && self.also.map_or(Ok(true), |(_, same)| same(self))?;
        let theory: Vec<_> =
            seen.iter().enumerate().map(|(rank, seen)| self.theory(rank, &seen.routing)).collect();
        let exact =
            seen.iter().zip(&theory).all(|(seen, theory)| (seen.memory, seen.sent) == *theory);
        let first = &seen[0];
        let (memory, sent) = theory[0];
        let moved = self.rebalance.is_none() || first.moves.iter().any(ExpertMove::any);
        let [bubble, bubble_theory] = self.bubble(&first.traces);
        let mesh = self.setup.mesh;
        Ok(TourRow {
            criterion: self.criterion(),
            difference,
            pass: equal && exact && moved && (bubble - bubble_theory).abs() <= NEAR,
            wire_bytes: first.sent.total(),
            wire_bytes_theory: sent.total(),
            bubble,
            bubble_theory,
            ..TourRow::new(
                self.axis,
                mesh.to_string(),
                mesh.world(),
                [first.memory, memory],
                seconds,
            )
        })
    }

    /// The bytes that `rank` should hold, and those that it should send in a step with `routing`.
    fn theory(&self, rank: usize, routing: &RoutingRecord) -> (RankMemory, Traffic) {
        let place = self.setup.mesh.place(rank);
        let site = RankTheory {
            config: &self.config,
            setup: &self.setup,
            place,
            rows: ROWS,
            element: size_of::<f32>(),
        };
        let memory =
            RankMemory::theory(self.setup.sharding, site.parameters(), 1, RULE.states(), FULL);
        (memory, site.traffic(routing))
    }

    fn criterion(&self) -> String {
        match (self.bound, self.also) {
            (0.0, _) => "bitwise".to_owned(),
            (bound, None) => format!("loss, weights {bound:.0e}"),
            (bound, Some((what, _))) => format!("{bound:.0e}, {what} bitwise"),
        }
    }

    /// Trains `steps` steps on the mesh of `setup`, and returns the result of each rank.
    pub(crate) fn train(&self, setup: &Setup, steps: u64) -> Result<Vec<RankResult>> {
        let text = (self.text)(&self.config);
        let rank = |comm| {
            let rule = (RULE, schedule::RateSchedule::constant(1e-2));
            let mut worker = Worker::<f32>::new(comm, &self.config, setup.clone(), 7, rule)?;
            let mut losses = Vec::new();
            let mut traces = Vec::new();
            let mut sent = Traffic::default();
            let mut moves = Vec::new();
            for _ in 0..steps {
                let before = worker.sent();
                let outcome = worker.step(&text, ROWS)?;
                sent = worker.sent().since(before);
                traces.push(worker.gather_trace(&outcome)?);
                losses.push(outcome.report.loss);
                if self.rebalance == Some(worker.session.step) {
                    moves = worker.rebalance()?;
                }
            }
            let memory = RankMemory::of(&worker.session);
            let routing = worker.session.routing.borrow().clone();
            // Move the experts back to their initial places, as in one process, to compare weights.
            worker.rearrange(&moves.iter().map(ExpertMove::back).collect::<Vec<_>>())?;
            let store = &mut worker.session.store;
            let weights = store.all_weights()?;
            let layout = store.layout().clone();
            Ok(RankResult { losses, weights, layout, memory, sent, routing, traces, moves })
        };
        Communicator::run_local(setup.mesh.world(), rank).into_iter().collect()
    }

    /// The share of time in which ranks of the pipeline wait. First: the plan replayed with the
    /// measured processor time of each operation, the median of all steps. (Wall time would also
    /// count waiting for cores.) Second: the formula for equal stages.
    fn bubble(&self, traces: &[PipelineTrace]) -> [f64; 2] {
        let ranks = self.setup.mesh.size(MeshAxis::Pp);
        let schedule = self.setup.schedule;
        if ranks == 1 {
            return [0.0; 2];
        }
        let plan = schedule.plan(ranks, self.setup.micros).expect("the plan was executed");
        let replay = |trace: &PipelineTrace| {
            simulate(&plan, trace.costs()).expect("the executed plan completes").idle()
        };
        [median(traces.iter().map(replay)), schedule.idle(ranks, self.setup.micros)]
    }
}

/// The greatest relative difference of a loss or difference of a weight, on any rank.
fn difference(seen: &[RankResult], reference: &RankResult) -> f64 {
    let of = |rank: &RankResult| {
        let losses =
            rank.losses.iter().zip(&reference.losses).map(|(a, b)| (a - b).abs() / b.abs());
        let own = rank.layout.gather_from(&reference.weights);
        let weights = rank.weights.iter().zip(&own).map(|(a, b)| f64::from((a - b).abs()));
        losses.chain(weights).map(greater).fold(0.0, f64::max)
    };
    seen.iter().map(of).fold(0.0, f64::max)
}

/// What a rank saw.
pub(crate) struct RankResult {
    pub(crate) losses: Vec<f64>,
    pub(crate) weights: Vec<f32>,
    pub(crate) layout: ParameterLayout,
    memory: RankMemory,
    sent: Traffic,
    routing: RoutingRecord,
    traces: Vec<PipelineTrace>,
    moves: Vec<ExpertMove>,
}

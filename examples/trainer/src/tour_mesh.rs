//! The tour of the axes that divide the model: each trains the same model, and is compared with one process.
//!
//! What it does: runs every [`Stop`] on threads of this process and makes a [`Row`] of it. What is sharded, which
//! collective runs where, what it costs: in the file of each axis; the numbers of the rows are those of rank 0.

use crate::config::Config;
use crate::data::Text;
use crate::experts::Ledger;
use crate::hybrid::Worker;
use crate::layout::Layout;
use crate::memory::{FULL, Memory};
use crate::mesh::{Axis, Mesh};
use crate::moe::Router;
use crate::moving::Move;
use crate::optim::Rule;
use crate::pp_plan::Schedule;
use crate::pp_trace::{Trace, simulate};
use crate::schedule;
use crate::setup::{Exchange, Setup};
use crate::theory::{Site, Traffic};
use crate::tour_row::Row;
use crate::verify::greater;
use maypole::{Communicator, Result};
use std::time::Instant;

/// Rows of a batch.
const ROWS: usize = 8;
/// Adam with a root that is kept well away from zero: otherwise rounding in a gradient that is nearly zero becomes a whole
/// step, and nothing could be compared.
const RULE: Rule = Rule::AdamW { beta1: 0.9, beta2: 0.95, epsilon: 1e-4, decay: 0.1 };
/// What losses and weights may differ by where sums are in another order.
const BOUND: f64 = 1e-4;

/// What is run for one row.
#[derive(Clone, Debug)]
pub struct Stop {
    /// What is shown.
    pub axis: &'static str,
    /// The model.
    pub config: Config,
    /// How it is spread.
    pub setup: Setup,
    /// Whether the bits of one process are expected.
    pub bitwise: bool,
    /// The step after which experts move.
    pub rebalance: Option<u64>,
}

/// Every axis alone, and some together.
pub fn stops() -> Vec<Stop> {
    let setup = |mesh: &str| Setup::of(Mesh::parse(mesh).expect("these are meshes"));
    let stop = |axis, setup| Stop { axis, config: Config::default(), setup, bitwise: false, rebalance: None };
    let sequence = |mesh| Setup { sequence: true, ..setup(mesh) };
    let pipeline = |mesh, schedule| Setup { schedule, micros: 8, ..setup(mesh) };
    let bits = |axis, setup| Stop { bitwise: true, ..stop(axis, setup) };
    let one_by_one = Schedule::OneForwardOneBackward;
    let router = Router { experts: 4, top: 2, group: 8, capacity: None, balance: 0.01 };
    let experts = |axis, mesh| Stop {
        config: Config { experts: 4, layers: 2, ..Config::default() },
        ..stop(axis, Setup { router: Some(router), ..setup(mesh) })
    };
    let odd = Config { vocab: 257, ..Config::default() };
    vec![
        stop("tensor", setup("tp=2")),
        stop("tensor, tokens divided", sequence("tp=2")),
        Stop { config: odd, ..stop("tensor, 257 tokens", setup("tp=2")) },
        bits("pipeline, GPipe", pipeline("pp=2", Schedule::GPipe)),
        bits("pipeline, 1F1B", pipeline("pp=2", one_by_one)),
        bits("pipeline, interleaved", pipeline("pp=2", Schedule::Interleaved(2))),
        bits("pipeline of four", pipeline("pp=4", one_by_one)),
        experts("experts", "ep=2"),
        Stop { rebalance: Some(5), ..experts("experts, moved by load", "ep=2") },
        stop("context, ring", setup("cp=2")),
        stop("context, Ulysses", Setup { exchange: Exchange::Ulysses, ..setup("cp=2") }),
        stop("data and tensor", setup("dp=2,tp=2")),
        stop("data and pipeline", pipeline("dp=2,pp=2", one_by_one).with_micros(4)),
        stop("pipeline and tensor", pipeline("pp=2,tp=2", one_by_one)),
        stop("data, pipeline, tensor", pipeline("dp=2,pp=2,tp=2", one_by_one).with_micros(4)),
        experts("experts and tensor", "ep=2,tp=2"),
        experts("experts and context", "ep=2,cp=2"),
    ]
}

impl Setup {
    fn with_micros(self, micros: usize) -> Self {
        Self { micros, ..self }
    }
}

impl Stop {
    /// Trains for `steps` steps on the mesh and in one process.
    ///
    /// # Errors
    /// As every collective.
    ///
    /// # Panics
    /// If the setup does not go with the model.
    pub fn run(&self, steps: u64) -> Result<Row> {
        self.setup.check(&self.config, ROWS).expect("a stop of the tour is possible");
        let begun = Instant::now();
        let seen = self.train(&self.setup, steps)?;
        let seconds = begun.elapsed().as_secs_f64();
        let alone = Setup { micros: self.setup.micros, router: self.setup.router, ..Setup::default() };
        let reference = self.train(&alone, steps)?;
        let first = &seen[0];
        let place = self.setup.mesh.place(0);
        let site = Site { config: &self.config, setup: &self.setup, place, rows: ROWS, element: size_of::<f32>() };
        let theory = Memory::theory(self.setup.sharding, site.parameters(), 1, RULE.states(), FULL);
        let (wire_bytes, wire_bytes_theory) = (first.sent.total(), site.traffic(&first.ledger).total());
        let (criterion, difference, equal) = self.compare(&seen, &reference[0]);
        let moved = self.rebalance.is_none() || first.moves.iter().any(Move::any);
        let [bubble, bubble_theory] = self.bubble(&seen);
        let (mesh, memory) = (self.setup.mesh, [first.memory, theory]);
        Ok(Row {
            criterion,
            difference,
            pass: equal && first.memory == theory && wire_bytes == wire_bytes_theory && moved,
            wire_bytes,
            wire_bytes_theory,
            bubble,
            bubble_theory,
            ..Row::new(self.axis, mesh.to_string(), mesh.world(), memory, seconds)
        })
    }

    fn train(&self, setup: &Setup, steps: u64) -> Result<Vec<Seen>> {
        let text = Text::invented(self.config.context, 1);
        let rank = |comm| {
            let rule = (RULE, schedule::Schedule::constant(1e-2));
            let mut worker = Worker::<f32>::new(comm, &self.config, setup.clone(), 7, rule)?;
            let (mut losses, mut traces, mut sent, mut moves) =
                (Vec::new(), Vec::new(), Traffic::default(), Vec::new());
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
            let (memory, ledger) = (Memory::of(&worker.session), worker.ledger.borrow().clone());
            // Weights are compared in the places that experts have in one process.
            worker.rearrange(&moves.iter().map(Move::back).collect::<Vec<_>>())?;
            let store = &mut worker.session.store;
            let (weights, layout) = (store.all_weights()?, store.layout().clone());
            Ok(Seen { losses, weights, layout, memory, sent, ledger, traces, moves })
        };
        Communicator::run_local(setup.mesh.world(), rank).into_iter().collect()
    }

    /// What has to be equal, the greatest difference of a loss (as a part of it) or of a weight, and whether that will do.
    fn compare(&self, seen: &[Seen], reference: &Seen) -> (String, f64, bool) {
        let mut most = 0.0f64;
        for rank in seen {
            let losses = rank.losses.iter().zip(&reference.losses).map(|(a, b)| (a - b).abs() / b.abs());
            let own = rank.layout.gather_from(&reference.weights);
            let weights = rank.weights.iter().zip(&own).map(|(a, b)| f64::from((a - b).abs()));
            most = losses.chain(weights).map(greater).fold(most, f64::max);
        }
        match self.bitwise {
            true => ("bitwise".to_owned(), most, most == 0.0),
            false => (format!("loss, weights {BOUND:.0e}"), most, most <= BOUND),
        }
    }

    /// The share of time in which ranks of the pipeline wait: by the plan with the measured work of each operation (the
    /// clock's shows too who else wanted the cores), and by the formula for equal stages. With two ranks alone: more would
    /// share the cores of a small machine. The median of all steps.
    fn bubble(&self, seen: &[Seen]) -> [f64; 2] {
        let (ranks, schedule) = (self.setup.mesh.size(Axis::Pp), self.setup.schedule);
        if ranks != 2 || self.setup.mesh.world() != 2 {
            return [0.0; 2];
        }
        let plan = schedule.plan(ranks, self.setup.micros).expect("it ran");
        let replay = |trace: &Trace| simulate(&plan, trace.costs()).expect("it ended").idle();
        [median(seen[0].traces.iter().map(replay)), schedule.idle(ranks, self.setup.micros)]
    }
}

fn median(of: impl Iterator<Item = f64>) -> f64 {
    let mut all: Vec<f64> = of.collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// What a rank saw.
struct Seen {
    losses: Vec<f64>,
    weights: Vec<f32>,
    layout: Layout,
    memory: Memory,
    sent: Traffic,
    ledger: Ledger,
    traces: Vec<Trace>,
    moves: Vec<Move>,
}

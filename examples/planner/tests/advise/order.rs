//! The order of meshes by prediction and by measurement, on this machine.

use crate::machine::{recorded_machine, this_machine};
use maypole::Communicator;
use maypole_lab::compare::median;
use maypole_planner::cluster::AcceleratorCluster;
use maypole_planner::groups::GroupPrices;
use maypole_planner::price::StepPricing;
use maypole_planner::sizes::ModelSizes;
use maypole_planner::strategy::{NumberFormat, ParallelStrategy, Recomputation, ZeroStage};
use maypole_trainer::data_parallel::sharding::Sharding;
use maypole_trainer::model::config::Config;
use maypole_trainer::ranks::mesh::{Mesh, MeshAxis};
use maypole_trainer::train::optim::Rule;
use maypole_trainer::train::parallelism::Parallelism;
use maypole_trainer::train::schedule::RateSchedule;
use maypole_trainer::train::text::Text;
use maypole_trainer::train::trainer::Trainer;
use std::time::Instant;

pub(crate) const RANKS: usize = 4;
/// Rounds, each of which measures every case once; and the steps of one measurement.
const ROUNDS: usize = 3;
const STEPS: usize = 2;

/// A way to train on four ranks.
struct Case {
    mesh: &'static str,
    stage: ZeroStage,
    micros: usize,
    recompute: bool,
    sequence: bool,
}

const fn case(mesh: &'static str, stage: ZeroStage, micros: usize) -> Case {
    Case { mesh, stage, micros, recompute: false, sequence: false }
}

use ZeroStage::{One, Replicated, Three, Two};

const FIRST: [Case; 16] = [
    case("dp=4", Replicated, 1),
    case("dp=4", One, 1),
    case("dp=4", Two, 4),
    case("dp=4", Three, 1),
    case("dp=4", Three, 4),
    case("tp=4", Replicated, 1),
    Case { sequence: true, ..case("tp=4", Replicated, 1) },
    case("pp=4", Replicated, 4),
    case("pp=4", Replicated, 16),
    case("cp=4", Replicated, 1),
    case("dp=2,tp=2", Replicated, 1),
    case("dp=2,pp=2", Replicated, 8),
    case("pp=2,tp=2", Replicated, 8),
    Case { recompute: true, ..case("dp=4", Replicated, 1) },
    Case { recompute: true, ..case("tp=4", Replicated, 1) },
    Case { recompute: true, ..case("pp=2,tp=2", Replicated, 8) },
];

/// Another model and other ways.
const SECOND: [Case; 16] = [
    case("dp=4", Replicated, 2),
    case("dp=4", Replicated, 8),
    case("dp=4", One, 4),
    case("dp=4", Two, 2),
    case("dp=4", Three, 2),
    case("dp=4", Three, 8),
    case("tp=4", Replicated, 2),
    Case { sequence: true, ..case("tp=4", Replicated, 8) },
    case("pp=4", Replicated, 8),
    case("cp=4", Replicated, 2),
    case("dp=2,tp=2", Replicated, 4),
    case("dp=2,cp=2", One, 2),
    case("cp=2,tp=2", Replicated, 2),
    Case { recompute: true, ..case("dp=4", One, 2) },
    Case { recompute: true, ..case("pp=4", Replicated, 8) },
    Case { recompute: true, ..case("dp=2,tp=2", Three, 4) },
];

/// A third model, narrow and long. Its steps were first measured when the prices were done.
const THIRD: [Case; 14] = [
    case("dp=4", Replicated, 1),
    case("dp=4", One, 2),
    case("dp=4", Two, 4),
    case("dp=4", Three, 1),
    case("tp=4", Replicated, 4),
    Case { sequence: true, ..case("tp=4", Replicated, 1) },
    case("pp=4", Replicated, 8),
    case("cp=4", Replicated, 1),
    case("dp=2,tp=2", One, 1),
    case("dp=2,pp=2", Replicated, 4),
    case("pp=2,cp=2", Replicated, 4),
    Case { recompute: true, ..case("dp=4", Three, 2) },
    Case { recompute: true, ..case("tp=4", Replicated, 1) },
    Case { recompute: true, ..case("dp=2,pp=2", Replicated, 4) },
];

/// Milliseconds of the steps of [`FIRST`], [`SECOND`] and [`THIRD`] on the machine of
/// [`recorded_machine`], with nothing else running: the middle one of three runs of the test below.
const FIRST_TOOK: [f64; 16] = [
    149.4, 156.3, 189.7, 174.6, 219.4, 176.2, 167.5, 208.2, 246.5, 183.2, 151.6, 205.6, 166.6,
    196.0, 208.9, 215.4,
];
const SECOND_TOOK: [f64; 16] = [
    101.4, 124.8, 108.9, 107.9, 134.1, 142.3, 119.2, 106.6, 155.0, 161.2, 105.1, 136.3, 135.7,
    132.2, 188.2, 146.8,
];
const THIRD_TOOK: [f64; 14] = [
    191.5, 193.3, 207.7, 218.4, 215.6, 250.8, 283.0, 290.8, 218.0, 212.0, 246.6, 261.8, 328.0,
    251.6,
];

/// A model, and ways to train it that are compared.
struct Study {
    config: fn() -> Config,
    rows: usize,
    cases: &'static [Case],
    /// What the correlation of the orders was not below in any run so far.
    least: f64,
}

const STUDIES: [Study; 3] = [
    Study {
        config: || Config {
            vocab: 256,
            context: 128,
            width: 256,
            heads: 4,
            layers: 4,
            ..Config::default()
        },
        rows: 16,
        cases: &FIRST,
        least: 0.7,
    },
    Study {
        config: || Config {
            vocab: 1024,
            context: 64,
            width: 128,
            heads: 8,
            layers: 8,
            ..Config::default()
        },
        rows: 32,
        cases: &SECOND,
        least: 0.7,
    },
    Study {
        config: || Config {
            vocab: 512,
            context: 256,
            width: 192,
            heads: 4,
            layers: 4,
            ..Config::default()
        },
        rows: 16,
        cases: &THIRD,
        least: 0.35,
    },
];

impl Study {
    fn setup(&self, case: &Case) -> Parallelism {
        let sharding = match case.stage {
            Replicated => Sharding::default(),
            One => Sharding::Zero1,
            Two => Sharding::Zero2,
            Three => Sharding::Fsdp { prefetch: true },
        };
        let mesh = Mesh::parse(case.mesh).unwrap();
        Parallelism {
            sharding,
            micros: case.micros,
            sequence: case.sequence,
            ..Parallelism::of(mesh)
        }
    }

    fn predicted(&self, case: &Case, cluster: &AcceleratorCluster) -> f64 {
        let Config { vocab, context, width, heads, layers, .. } = (self.config)();
        let text = format!(
            "layers = {layers}\nwidth = {width}\nheads = {heads}\nvocabulary = {vocab}\n\
             sequence = {context}\npositions = true\nbiases = true"
        );
        let model = ModelSizes::parse(&text).unwrap();
        let setup = self.setup(case);
        let ring = setup.mesh.size(MeshAxis::Cp) > 1;
        let kept = if ring { Recomputation::Fused } else { Recomputation::Nothing };
        let strategy = ParallelStrategy {
            mesh: setup.mesh,
            sequence: case.sequence,
            stage: case.stage,
            schedule: setup.schedule,
            rows: setup.micro_rows(self.rows),
            micros: case.micros,
            recompute: if case.recompute { Recomputation::Blocks } else { kept },
            format: NumberFormat::F32,
        };
        strategy.check(&model).unwrap();
        let prices = GroupPrices::new(cluster);
        let price = StepPricing::new(&model, &strategy, cluster, &prices).step().unwrap();
        price.total()
    }

    /// Measured seconds of a step: the mean of the steps of one measurement, on the slowest rank.
    fn measured(&self, case: &Case) -> f64 {
        let config = (self.config)();
        let setup = self.setup(case);
        setup.check(&config, self.rows).unwrap();
        let rank = |comm| {
            let text = Text::invented(config.context, 1);
            let rule = (Rule::ADAMW, RateSchedule::constant(1e-3));
            let mut trainer = Trainer::<f32>::new(comm, &config, setup.clone(), 7, rule).unwrap();
            trainer.parts.model.recompute = case.recompute;
            trainer.step(&text, self.rows).unwrap();
            let began = Instant::now();
            for _ in 0..STEPS {
                trainer.step(&text, self.rows).unwrap();
            }
            began.elapsed().as_secs_f64() / STEPS as f64
        };
        Communicator::run_local(RANKS, rank).into_iter().fold(0.0, f64::max)
    }

    /// Measured seconds of each case: the median of rounds in alternating order.
    fn measure_all(&self) -> Vec<f64> {
        let mut turns = vec![Vec::new(); self.cases.len()];
        for round in 0..ROUNDS {
            for nth in 0..self.cases.len() {
                let at = if round % 2 == 0 { nth } else { self.cases.len() - 1 - nth };
                turns[at].push(self.measured(&self.cases[at]));
            }
        }
        turns.into_iter().map(median).collect()
    }

    fn print(&self, predicted: &[f64], measured: &[f64]) {
        println!(
            "{:<12} {:<10} {:>6} {:>9} {:>9}",
            "mesh", "sharding", "micros", "pred. ms", "meas. ms"
        );
        for (case, (predicted, measured)) in self.cases.iter().zip(predicted.iter().zip(measured)) {
            println!(
                "{:<12} {:<10} {:>6} {:>9.1} {:>9.1}{}{}",
                case.mesh,
                case.stage.name(),
                case.micros,
                1e3 * predicted,
                1e3 * measured,
                if case.recompute { " recompute" } else { "" },
                if case.sequence { " sequence" } else { "" }
            );
        }
    }
}

/// The place of each number in ascending order, from 0; equal numbers have the mean of their
/// places.
fn places(numbers: &[f64]) -> Vec<f64> {
    let below = |one: &f64| numbers.iter().filter(|other| *other < one).count() as f64;
    let same = |one: &f64| numbers.iter().filter(|other| *other == one).count() as f64;
    numbers.iter().map(|one| below(one) + (same(one) - 1.0) / 2.0).collect()
}

/// Spearman's rank correlation: 1 if both have one order, -1 if the orders are opposite.
fn spearman(a: &[f64], b: &[f64]) -> f64 {
    let [a, b] = [places(a), places(b)];
    let mean = (a.len() as f64 - 1.0) / 2.0;
    let product = |a: &[f64], b: &[f64]| -> f64 {
        a.iter().zip(b).map(|(a, b)| (a - mean) * (b - mean)).sum()
    };
    product(&a, &b) / (product(&a, &a) * product(&b, &b)).sqrt()
}

#[test]
fn orders_are_compared_by_rank() {
    assert_eq!(spearman(&[1.0, 2.0, 30.0], &[0.1, 0.5, 0.6]), 1.0);
    assert_eq!(spearman(&[1.0, 2.0, 3.0], &[3.0, 2.0, 1.0]), -1.0);
    assert_eq!(spearman(&[1.0, 2.0, 3.0, 4.0], &[2.0, 1.0, 4.0, 3.0]), 0.6);
}

/// The order of recorded steps, which no load of this machine changes.
#[test]
fn the_predicted_order_of_meshes_is_the_recorded_one() {
    let cluster = recorded_machine();
    let took = [&FIRST_TOOK[..], &SECOND_TOOK, &THIRD_TOOK];
    for (study, took) in STUDIES.iter().zip(took) {
        let measured: Vec<f64> = took.iter().map(|took| 1e-3 * took).collect();
        let predicted: Vec<f64> =
            study.cases.iter().map(|case| study.predicted(case, &cluster)).collect();
        study.print(&predicted, &measured);
        let found = spearman(&predicted, &measured);
        println!("Spearman {found:.3} over {} ways", study.cases.len());
        assert!(found >= study.least, "{found} is below {}", study.least);
    }
}

/// Run it on a quiet machine, optimised:
/// `cargo test --release -p maypole-planner --test advise -- --ignored --nocapture`.
#[test]
#[ignore = "measures this machine"]
fn the_predicted_order_of_meshes_is_the_measured_one() {
    let cluster = this_machine();
    for study in STUDIES {
        let measured = study.measure_all();
        let predicted: Vec<f64> =
            study.cases.iter().map(|case| study.predicted(case, &cluster)).collect();
        study.print(&predicted, &measured);
        let found = spearman(&predicted, &measured);
        println!("Spearman {found:.3} over {} ways", study.cases.len());
        assert!(found >= study.least, "{found} is below {}", study.least);
    }
}

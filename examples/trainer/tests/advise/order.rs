//! The order of meshes by prediction and by measurement, on this machine.

use maypole::Communicator;
use maypole_trainer::advise::cluster::AcceleratorCluster;
use maypole_trainer::advise::groups::GroupPrices;
use maypole_trainer::advise::price::StepPricing;
use maypole_trainer::advise::strategy::{NumberFormat, ParallelStrategy, Recomputation, ZeroStage};
use maypole_trainer::advise::transformer::Transformer;
use maypole_trainer::check::verify::median;
use maypole_trainer::data_parallel::sharding::Sharding;
use maypole_trainer::model::config::Config;
use maypole_trainer::ranks::mesh::{Mesh, MeshAxis};
use maypole_trainer::train::optim::Rule;
use maypole_trainer::train::schedule::RateSchedule;
use maypole_trainer::train::setup::Setup;
use maypole_trainer::train::text::Text;
use maypole_trainer::train::worker::Worker;
use std::time::Instant;

const RANKS: usize = 4;
const ROWS: usize = 16;
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

const CASES: [Case; 16] = [
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

fn config() -> Config {
    Config {
        vocab: 256,
        context: 128,
        width: 256,
        heads: 4,
        layers: 4,
        experts: 0,
        ..Config::default()
    }
}

impl Case {
    fn setup(&self) -> Setup {
        let sharding = match self.stage {
            Replicated => Sharding::default(),
            One => Sharding::Zero1,
            Two => Sharding::Zero2,
            Three => Sharding::Fsdp { prefetch: true },
        };
        let mesh = Mesh::parse(self.mesh).unwrap();
        Setup { sharding, micros: self.micros, sequence: self.sequence, ..Setup::of(mesh) }
    }

    /// Predicted seconds of a step, if all ranks run on `cores` cores.
    fn predicted(&self, cores: usize) -> f64 {
        let Config { vocab, context, width, heads, layers, .. } = config();
        let text = format!(
            "layers = {layers}\nwidth = {width}\nheads = {heads}\nvocabulary = {vocab}\n\
             sequence = {context}\npositions = true\nbiases = true"
        );
        let model = Transformer::parse(&text).unwrap();
        let setup = self.setup();
        let ring = setup.mesh.size(MeshAxis::Cp) > 1;
        let kept = if ring { Recomputation::Fused } else { Recomputation::Nothing };
        let strategy = ParallelStrategy {
            mesh: setup.mesh,
            sequence: self.sequence,
            stage: self.stage,
            schedule: setup.schedule,
            rows: setup.micro_rows(ROWS),
            micros: self.micros,
            recompute: if self.recompute { Recomputation::Blocks } else { kept },
            format: NumberFormat::F32,
        };
        strategy.check(&model).unwrap();
        let mut cluster = AcceleratorCluster::named("cpu:4").unwrap();
        cluster.crowding = RANKS as f64 / cores.min(RANKS) as f64;
        let prices = GroupPrices::new(&cluster);
        StepPricing::new(&model, &strategy, &cluster, &prices).step().unwrap().total()
    }

    /// Measured seconds of a step: the mean of the steps of one measurement, on the slowest rank.
    fn measured(&self) -> f64 {
        let config = config();
        let setup = self.setup();
        setup.check(&config, ROWS).unwrap();
        let rank = |comm| {
            let text = Text::invented(config.context, 1);
            let rule = (Rule::ADAMW, RateSchedule::constant(1e-3));
            let mut worker = Worker::<f32>::new(comm, &config, setup.clone(), 7, rule).unwrap();
            worker.recompute(self.recompute);
            worker.step(&text, ROWS).unwrap();
            let began = Instant::now();
            for _ in 0..STEPS {
                worker.step(&text, ROWS).unwrap();
            }
            began.elapsed().as_secs_f64() / STEPS as f64
        };
        Communicator::run_local(RANKS, rank).into_iter().fold(0.0, f64::max)
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

/// Run it on a quiet machine, optimised:
/// `cargo test --release -p maypole-trainer --test advise -- --ignored --nocapture`.
#[test]
#[ignore = "measures this machine"]
fn the_predicted_order_of_meshes_is_the_measured_one() {
    let cores = std::thread::available_parallelism().unwrap().get();
    let mut turns = vec![Vec::new(); CASES.len()];
    for round in 0..ROUNDS {
        for nth in 0..CASES.len() {
            let at = if round % 2 == 0 { nth } else { CASES.len() - 1 - nth };
            turns[at].push(CASES[at].measured());
        }
    }
    let measured: Vec<f64> = turns.into_iter().map(median).collect();
    let predicted: Vec<f64> = CASES.iter().map(|case| case.predicted(cores)).collect();
    println!(
        "{:<12} {:<10} {:>6} {:>9} {:>9}",
        "mesh", "sharding", "micros", "pred. ms", "meas. ms"
    );
    for (case, (predicted, measured)) in CASES.iter().zip(predicted.iter().zip(&measured)) {
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
    let found = spearman(&predicted, &measured);
    println!("Spearman {found:.3} over {} ways, {cores} cores", CASES.len());
    assert!(found >= 0.8, "{found}");
}

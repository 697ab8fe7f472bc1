//! Trains one model on any mesh, on threads of this process, and compares the results.
#![allow(dead_code, unreachable_pub, reason = "each test file uses some of it")]

use maypole::{Communicator, Result};
use maypole_lab::mistakes::Mistake;
use maypole_lab::rebalance::{ExpertMove, rebalance};
use maypole_trainer::expert_parallel::layer::RoutingRecord;
use maypole_trainer::expert_parallel::router::Router;
use maypole_trainer::model::config::Config;
use maypole_trainer::model::layout::ParameterLayout;
use maypole_trainer::model::store::StoreBytes;
use maypole_trainer::ranks::mesh::Mesh;
use maypole_trainer::ranks::traffic::Traffic;
use maypole_trainer::tensor::math::Real;
use maypole_trainer::tensor::precision::LossScale;
use maypole_trainer::tensor::random::random;
use maypole_trainer::train::optim::Rule;
use maypole_trainer::train::schedule::RateSchedule;
use maypole_trainer::train::setup::Setup;
use maypole_trainer::train::text::Text;
use maypole_trainer::train::trainer::Trainer;
use maypole_trainer::train::watch::StepOutcome;
use std::collections::HashMap;

/// The seed of the weights.
pub const SEED: u64 = 7;

/// What is trained, and for how long.
#[derive(Clone, Debug)]
pub struct Task {
    pub config: Config,
    pub rows: usize,
    pub steps: u64,
    pub rule: Rule,
    pub rate: f64,
    /// The most that the gradient's norm may be.
    pub clip: Option<f64>,
    /// Whether activations are computed again.
    pub recompute: bool,
    /// Whether the loss is scaled, as for narrow numbers.
    pub scale: bool,
    /// Steps between moves of experts.
    pub rebalance: Option<u64>,
    /// A deliberate mistake.
    pub mistake: Option<Mistake>,
}

impl Task {
    /// The model of the criteria: 20 steps of gradient descent on 8 rows.
    pub fn full() -> Self {
        Self {
            config: Config::default(),
            rows: 8,
            steps: 20,
            rule: Rule::Sgd,
            rate: 0.1,
            clip: None,
            recompute: false,
            scale: false,
            rebalance: None,
            mistake: None,
        }
    }

    /// A model small enough to be trained a hundred times, for comparisons in `f64`. Tokens are
    /// letters up to `z`, whose number is 122: two or four ranks do not divide the vocabulary, and
    /// its last line is used.
    pub fn small() -> Self {
        let config = Config {
            vocab: 123,
            context: 16,
            width: 16,
            heads: 4,
            layers: 4,
            experts: 0,
            ..Config::default()
        };
        Self { config, steps: 3, rate: 0.5, ..Self::full() }
    }

    /// The same with experts.
    pub fn with_experts(mut self, experts: usize) -> Self {
        self.config.experts = experts;
        self
    }
}

/// A router that drops no token. Groups are short enough for any division of positions in these
/// tests.
pub fn router(experts: usize) -> Router {
    Router { experts, top: 2, group: 4, capacity: None, balance: 0.05 }
}

pub fn mesh(text: &str) -> Setup {
    Setup::of(Mesh::parse(text).unwrap())
}

/// The result of a run: the loss of each step, and the weights of the whole model at the end, with
/// each expert at its initial place.
#[derive(Clone, Debug)]
pub struct Run<T> {
    pub losses: Vec<f64>,
    pub weights: Vec<T>,
    /// True if ranks with the same weight had the same bits, after every step.
    pub agreed: bool,
    /// By rank.
    pub seen: Vec<Seen>,
}

impl<T: Real> Run<T> {
    /// The greatest relative difference of a loss and the greatest difference of a weight.
    pub fn difference(&self, other: &Self) -> (f64, f64) {
        let lengths = |run: &Self| (run.losses.len(), run.weights.len());
        assert_eq!(lengths(self), lengths(other), "both runs are whole");
        let losses = self.losses.iter().zip(&other.losses).map(|(a, b)| (a - b).abs() / b.abs());
        let weights =
            self.weights.iter().zip(&other.weights).map(|(a, b)| (a.wide() - b.wide()).abs());
        // Not a number is as far as can be.
        let greatest = |most: f64, x: f64| if most.is_nan() || x <= most { most } else { x };
        (losses.fold(0.0, greatest), weights.fold(0.0, greatest))
    }

    pub fn same_bits(&self, other: &Self) -> bool {
        let bits = |run: &Self| run.weights.iter().map(|w| w.wide().to_bits()).collect::<Vec<_>>();
        self.losses == other.losses && bits(self) == bits(other)
    }
}

/// Trains `task` spread as `setup` says.
pub fn train<T: Real>(task: &Task, setup: &Setup) -> Run<T> {
    train_by(task, setup, |_| ())
}

/// [`train`], after `change` was applied to each rank.
pub fn train_by<T: Real>(
    task: &Task,
    setup: &Setup,
    change: impl Fn(&mut Trainer<T>) + Sync,
) -> Run<T> {
    setup.check(&task.config, task.rows).unwrap();
    let rank = |comm| rank::<T>(task, setup, comm, &change).unwrap();
    let ranks = Communicator::run_local(setup.mesh.world(), rank);
    let whole = ParameterLayout::whole(&task.config).len();
    let mut run =
        Run { losses: Vec::new(), weights: vec![T::nan(); whole], agreed: true, seen: Vec::new() };
    let mut known = HashMap::new();
    for (losses, layout, weights, seen) in ranks {
        for piece in layout.pieces() {
            run.weights[piece.global..][..piece.len]
                .copy_from_slice(&weights[piece.local..][..piece.len]);
        }
        for (step, prints) in seen.prints.iter().enumerate() {
            for (piece, print) in layout.pieces().zip(prints) {
                run.agreed &= known.entry((step, piece.global)).or_insert(*print) == print;
            }
        }
        assert!(run.losses.is_empty() || run.losses == losses, "every rank has the same loss");
        run.losses = losses;
        run.seen.push(seen);
    }
    assert!(
        !run.weights.iter().any(|w| w.is_nan()) || task.mistake.is_some(),
        "every weight is somewhere"
    );
    run.weights =
        renumbered(&task.config, &run.weights, &homeward(&task.config, &run.seen[0].moves));
    run
}

/// A hash of the bits of each of a rank's pieces.
fn fingerprints<T: Real>(layout: &ParameterLayout, weights: &[T]) -> Vec<u64> {
    let mix = |print: u64, weight: &T| {
        (print ^ weight.wide().to_bits()).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    };
    layout.pieces().map(|piece| weights[piece.local..][..piece.len].iter().fold(0, mix)).collect()
}

/// For each layer and place: the place at which the expert that was there before all `moves` is
/// now.
fn homeward(config: &Config, moves: &[ExpertMove]) -> Vec<Vec<usize>> {
    let mut home: Vec<Vec<usize>> = vec![(0..config.experts).collect(); config.layers];
    for it in moves {
        let place = |from: &usize| it.from.iter().position(|it| it == from).unwrap();
        home[it.layer] = home[it.layer].iter().map(place).collect();
    }
    home
}

/// The whole model's `numbers` with other experts in each layer's places, and other rows in its
/// router: those that `from` names.
pub fn renumbered<T: Copy>(config: &Config, numbers: &[T], from: &[Vec<usize>]) -> Vec<T> {
    let layout = ParameterLayout::whole(config);
    let mut moved = numbers.to_vec();
    let of = |name: String| layout.entry(&name).unwrap().range();
    for (layer, (place, from)) in
        from.iter().enumerate().flat_map(|(l, from)| from.iter().enumerate().map(move |it| (l, it)))
    {
        let router = of(format!("block.{layer}.router.weight"));
        let row = |place: usize| {
            router.start + place * config.width..router.start + (place + 1) * config.width
        };
        moved[row(place)].copy_from_slice(&numbers[row(*from)]);
        for name in ["up.weight", "up.bias", "down.weight", "down.bias"] {
            let of = |place: usize| of(format!("block.{layer}.expert.{place}.{name}"));
            moved[of(place)].copy_from_slice(&numbers[of(*from)]);
        }
    }
    moved
}

/// Words in no order, with every letter.
pub fn text(config: &Config) -> Text {
    let words = [
        "the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "while", "five",
        "boxing", "wizards",
    ];
    let word = |nth| words[(random(3, nth) % words.len() as u64) as usize];
    let text: Vec<&str> = (0..4000).map(word).collect();
    Text::of_bytes(text.join(" ").as_bytes(), config.context, 1)
}

type Rank<T> = (Vec<f64>, ParameterLayout, Vec<T>, Seen);

/// What a rank did and held.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The outcome of the last step.
    pub outcome: StepOutcome,
    pub bytes: StoreBytes,
    pub state: usize,
    pub routing: RoutingRecord,
    /// Bytes that the last step sent.
    pub sent: Traffic,
    /// All moves of experts.
    pub moves: Vec<ExpertMove>,
    /// After each step, a hash of the bits of each piece of the rank's layout.
    pub prints: Vec<Vec<u64>>,
}

fn rank<T: Real>(
    task: &Task,
    setup: &Setup,
    comm: Communicator,
    change: &impl Fn(&mut Trainer<T>),
) -> Result<Rank<T>> {
    let text = text(&task.config);
    let schedule = RateSchedule::constant(task.rate);
    let mut trainer = Trainer::new(comm, &task.config, setup.clone(), SEED, (task.rule, schedule))?;
    (trainer.parts.clip.limit, trainer.parts.model.recompute) = (task.clip, task.recompute);
    trainer.parts.clip.scale = task.scale.then(LossScale::default);
    change(&mut trainer);
    task.mistake.map_or(Ok(()), |mistake| mistake.plant(&mut trainer, SEED))?;
    let mut losses = Vec::new();
    let mut last = None;
    let mut sent = Traffic::default();
    let mut moves = Vec::new();
    let mut prints = Vec::new();
    for _ in 0..task.steps {
        let before = trainer.sent();
        let outcome = trainer.step(&text, task.rows)?;
        losses.push(outcome.report.loss);
        last = Some(outcome);
        sent = trainer.sent().since(before);
        if task.rebalance.is_some_and(|every| trainer.step.is_multiple_of(every)) {
            moves.extend(rebalance(&mut trainer, Mistake::moves(task.mistake))?);
        }
        let store = &mut trainer.parts.store;
        let weights = store.all_weights()?;
        prints.push(fingerprints(store.layout(), &weights));
    }
    let state = trainer.optimizer().bytes();
    let store = &mut trainer.parts.store;
    let weights = store.all_weights()?;
    let bytes = store.bytes();
    let outcome = last.expect("there was a step");
    let routing = trainer.parts.pipeline.routing.borrow().clone();
    let seen = Seen { outcome, bytes, state, routing, sent, moves, prints };
    Ok((losses, store.layout().clone(), weights, seen))
}

/// True if training with `fault` gives anything else than one process, on any rank.
pub fn caught(task: &Task, setup: &Setup, fault: Mistake) -> bool {
    differs(task, setup, Some(fault))
}

pub fn differs(task: &Task, setup: &Setup, fault: Option<Mistake>) -> bool {
    let right = Task { mistake: None, ..task.clone() };
    let reference = train::<f64>(&Task { rebalance: None, ..right }, &alone(setup));
    let run = train::<f64>(&Task { mistake: fault, ..task.clone() }, setup);
    let (loss, weights) = run.difference(&reference);
    !(loss < 1e-9 && weights < 1e-9 && run.agreed)
}

/// The choices of `setup` that a single process has too.
pub fn alone(setup: &Setup) -> Setup {
    Setup { router: setup.router, order: setup.order, ..Setup::default() }
}

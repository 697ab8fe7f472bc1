//! Trains one model on any mesh, on threads of this process, and compares the results.
#![allow(dead_code, unreachable_pub, reason = "each test file uses some of it")]

use maypole::Result;
use maypole_lab::compare::{OutcomeDifference, TrainingOutcome};
pub use maypole_lab::compare::{Recipe, alone};
use maypole_lab::mistakes::Mistake;
use maypole_trainer::expert_parallel::layer::RoutingRecord;
use maypole_trainer::expert_parallel::router::Router;
use maypole_trainer::model::config::Config;
use maypole_trainer::model::layout::{LayoutPiece, ParameterLayout};
use maypole_trainer::model::store::StoreBytes;
use maypole_trainer::ranks::mesh::Mesh;
use maypole_trainer::ranks::traffic::Traffic;
use maypole_trainer::tensor::math::Real;
use maypole_trainer::tensor::random::random;
use maypole_trainer::train::parallelism::Parallelism;
use maypole_trainer::train::schedule::RateSchedule;
use maypole_trainer::train::text::Text;
use maypole_trainer::train::trainer::Trainer;
use maypole_trainer::train::watch::StepOutcome;
use std::collections::HashMap;

/// The seed of the weights.
pub const SEED: u64 = 7;

/// The model of the criteria: 20 steps of gradient descent on 8 rows.
pub fn full() -> Recipe {
    Recipe { text: words, seed: SEED, ..Recipe::default() }
}

/// A model small enough to be trained a hundred times, for comparisons in `f64`. Tokens are letters
/// up to `z`, whose number is 122: two or four ranks do not divide the vocabulary, and its last line
/// is used.
pub fn small() -> Recipe {
    let config = Config {
        vocab: 123,
        context: 16,
        width: 16,
        heads: 4,
        layers: 4,
        experts: 0,
        ..Config::default()
    };
    Recipe { config, steps: 3, schedule: RateSchedule::constant(0.5), ..full() }
}

/// The same with experts.
pub fn with_experts(recipe: Recipe, experts: usize) -> Recipe {
    let config = Config { experts, ..recipe.config };
    Recipe { config, ..recipe }
}

/// A router that drops no token. Groups are short enough for any division of positions in these
/// tests.
pub fn router(experts: usize) -> Router {
    Router { experts, top: 2, group: 4, capacity: None, balance: 0.05 }
}

pub fn mesh(text: &str) -> Parallelism {
    Parallelism::of(Mesh::parse(text).unwrap())
}

/// The result of a run on all ranks.
#[derive(Clone, Debug)]
pub struct Run<T> {
    /// The losses, and the weights of the whole model.
    pub outcome: TrainingOutcome<T>,
    /// True if ranks with the same weight had the same bits, after every step.
    pub agreed: bool,
    /// By rank.
    pub seen: Vec<Seen>,
}

impl<T: Real> Run<T> {
    /// The greatest relative difference of a loss and the greatest difference of a weight.
    pub fn difference(&self, other: &Self) -> (f64, f64) {
        assert_eq!(self.outcome.losses.len(), other.outcome.losses.len(), "both runs are whole");
        let OutcomeDifference { loss, weights, .. } = self.outcome.difference(&other.outcome);
        (loss, weights)
    }

    pub fn same_bits(&self, other: &Self) -> bool {
        self.outcome.difference(&other.outcome).bitwise
    }
}

/// Trains `recipe` on ranks with `setup`.
pub fn train<T: Real>(recipe: &Recipe, setup: &Parallelism) -> Run<T> {
    train_by(recipe, setup, |_| ())
}

/// [`train`], after `change` was applied to each rank.
pub fn train_by<T: Real>(
    recipe: &Recipe,
    setup: &Parallelism,
    change: impl Fn(&mut Trainer<T>) + Sync,
) -> Run<T> {
    setup.check(&recipe.config, recipe.rows).unwrap();
    let ranks = recipe.on_ranks(setup, |trainer| rank::<T>(recipe, trainer, &change)).unwrap();
    let layout = ParameterLayout::whole(&recipe.config);
    let mut weights = vec![T::nan(); layout.len()];
    let (mut agreed, mut known) = (true, HashMap::new());
    for (own, seen) in &ranks {
        assert_eq!(own.losses, ranks[0].0.losses, "every rank has the same loss");
        for LayoutPiece { local, global, len } in own.layout.pieces() {
            weights[global..][..len].copy_from_slice(&own.weights[local..][..len]);
        }
        for (step, prints) in seen.prints.iter().enumerate() {
            for (piece, print) in own.layout.pieces().zip(prints) {
                agreed &= known.entry((step, piece.global)).or_insert(*print) == print;
            }
        }
    }
    let whole = !weights.iter().any(|weight| weight.is_nan());
    assert!(whole || recipe.mistake.is_some(), "every weight is somewhere");
    let (mut outcomes, seen): (Vec<_>, Vec<_>) = ranks.into_iter().unzip();
    let outcome = TrainingOutcome { layout, weights, ..outcomes.swap_remove(0) };
    Run { outcome, agreed, seen }
}

/// A hash of the bits of each of a rank's pieces.
fn fingerprints<T: Real>(layout: &ParameterLayout, weights: &[T]) -> Vec<u64> {
    let mix = |print: u64, weight: &T| {
        (print ^ weight.wide().to_bits()).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    };
    layout.pieces().map(|piece| weights[piece.local..][..piece.len].iter().fold(0, mix)).collect()
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
fn words(config: &Config) -> Text {
    let words = [
        "the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "while", "five",
        "boxing", "wizards",
    ];
    let word = |nth| words[(random(3, nth) % words.len() as u64) as usize];
    let text: Vec<&str> = (0..4000).map(word).collect();
    Text::of_bytes(text.join(" ").as_bytes(), config.context, 1)
}

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
    /// After each step, a hash of the bits of each piece of the rank's layout.
    pub prints: Vec<Vec<u64>>,
}

fn rank<T: Real>(
    recipe: &Recipe,
    mut trainer: Trainer<T>,
    change: &impl Fn(&mut Trainer<T>),
) -> Result<(TrainingOutcome<T>, Seen)> {
    change(&mut trainer);
    let (mut last, mut sent, mut prints) = (None, Traffic::default(), Vec::new());
    let mut run = recipe.follow(&mut trainer, |trainer, outcome, bytes| {
        (last, sent) = (Some(outcome), bytes);
        let store = &mut trainer.parts.store;
        let weights = store.all_weights()?;
        prints.push(fingerprints(store.layout(), &weights));
        Ok(())
    })?;
    let state = trainer.optimizer().bytes();
    let store = &mut trainer.parts.store;
    run.weights = store.all_weights()?;
    let bytes = store.bytes();
    let outcome = last.expect("there was a step");
    let routing = trainer.parts.pipeline.routing.borrow().clone();
    Ok((run, Seen { outcome, bytes, state, routing, sent, prints }))
}

/// True if training with `fault` gives anything else than one process, on any rank.
pub fn caught(recipe: &Recipe, setup: &Parallelism, fault: Mistake) -> bool {
    differs(recipe, setup, Some(fault))
}

pub fn differs(recipe: &Recipe, setup: &Parallelism, mistake: Option<Mistake>) -> bool {
    let reference = train::<f64>(&recipe.right(), &alone(setup));
    let run = train::<f64>(&Recipe { mistake, ..recipe.clone() }, setup);
    let (loss, weights) = run.difference(&reference);
    !(loss < 1e-9 && weights < 1e-9 && run.agreed)
}

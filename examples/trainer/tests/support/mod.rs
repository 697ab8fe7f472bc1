//! Trains one model on any mesh, as threads of this process, and compares what comes out.
#![allow(dead_code, unreachable_pub, reason = "each test file uses some of it")]

use maypole::{Communicator, Result};
use maypole_trainer::config::Config;
use maypole_trainer::data::Text;
use maypole_trainer::fault::Fault;
use maypole_trainer::group::Group;
use maypole_trainer::hybrid::{Outcome, Worker};
use maypole_trainer::layout::Layout;
use maypole_trainer::math::Real;
use maypole_trainer::mesh::Mesh;
use maypole_trainer::moe::Router;
use maypole_trainer::optim::{Optimizer, Rule};
use maypole_trainer::random::random;
use maypole_trainer::setup::Setup;
use maypole_trainer::store::{Bytes, Flat, Owned, Store};

/// What is trained, and for how long.
#[derive(Clone, Debug)]
pub struct Task {
    pub config: Config,
    pub rows: usize,
    pub steps: u64,
    pub rule: Rule,
    pub rate: f64,
}

impl Task {
    /// The model of the criteria: 20 steps of gradient descent on 8 rows.
    pub fn full() -> Self {
        Self { config: Config::default(), rows: 8, steps: 20, rule: Rule::Sgd, rate: 0.1 }
    }

    /// A model small enough to be trained a hundred times, for comparisons in `f64`. Tokens are letters to `z`, whose
    /// number is 122: nothing divides the vocabulary, and its last line is used.
    pub fn small() -> Self {
        let config = Config { vocab: 123, context: 16, width: 16, heads: 4, layers: 4, experts: 0 };
        Self { config, rows: 8, steps: 3, rule: Rule::Sgd, rate: 0.5 }
    }

    /// The same with experts.
    pub fn with_experts(mut self, experts: usize) -> Self {
        self.config.experts = experts;
        self
    }
}

/// All tokens are kept, and groups are short enough for any division of positions in these tests.
pub fn router(experts: usize) -> Router {
    Router { experts, top: 2, group: 4, capacity: None, balance: 0.05 }
}

pub fn mesh(text: &str) -> Setup {
    Setup::of(Mesh::parse(text).unwrap())
}

/// What a run gave: the loss of each step, and the weights of the whole model at the end.
#[derive(Clone, Debug)]
pub struct Run<T> {
    pub losses: Vec<f64>,
    pub weights: Vec<T>,
    /// True if ranks with the same weight had the same bits.
    pub agreed: bool,
    /// By rank, of the last step.
    pub outcomes: Vec<Outcome>,
}

impl<T: Real> Run<T> {
    /// The greatest relative difference of a loss and the greatest difference of a weight.
    pub fn far(&self, other: &Self) -> (f64, f64) {
        let losses = self.losses.iter().zip(&other.losses).map(|(a, b)| (a - b).abs() / b.abs());
        let weights = self.weights.iter().zip(&other.weights).map(|(a, b)| (a.wide() - b.wide()).abs());
        // Not a number is as far as can be.
        let greatest = |most: f64, x: f64| if x <= most { most } else { x };
        (losses.fold(0.0, greatest), weights.fold(0.0, greatest))
    }

    pub fn same_bits(&self, other: &Self) -> bool {
        let bits = |run: &Self| run.weights.iter().map(|w| w.wide().to_bits()).collect::<Vec<_>>();
        self.losses == other.losses && bits(self) == bits(other)
    }
}

/// Trains `task` spread as `setup` says.
pub fn train<T: Real>(task: &Task, setup: &Setup) -> Run<T> {
    setup.check(&task.config, task.rows).unwrap();
    let ranks = Communicator::run_local(setup.mesh.world(), |comm| rank::<T>(task, setup, comm).unwrap());
    let whole = Layout::whole(&task.config).len();
    let mut run = Run { losses: Vec::new(), weights: vec![T::nan(); whole], agreed: true, outcomes: Vec::new() };
    for (losses, layout, weights, outcome) in ranks {
        for piece in layout.pieces() {
            let (here, there) = (&weights[piece.local..][..piece.len], &mut run.weights[piece.global..][..piece.len]);
            run.agreed &= there.iter().zip(here).all(|(there, here)| there.is_nan() || there == here);
            there.copy_from_slice(here);
        }
        assert!(run.losses.is_empty() || run.losses == losses, "every rank has the same loss");
        run.losses = losses;
        run.outcomes.push(outcome);
    }
    assert!(!run.weights.iter().any(|w| w.is_nan()) || setup.fault.is_some(), "every weight is somewhere");
    run
}

/// Words in no order, with every letter.
pub fn text(config: &Config) -> Text {
    let words =
        ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "while", "five", "boxing", "wizards"];
    let word = |nth| words[(random(3, nth) % words.len() as u64) as usize];
    let text: Vec<&str> = (0..4000).map(word).collect();
    Text::of_bytes(text.join(" ").as_bytes(), config.context, 1)
}

type Rank<T> = (Vec<f64>, Layout, Vec<T>, Outcome);

fn rank<T: Real>(task: &Task, setup: &Setup, comm: Communicator) -> Result<Rank<T>> {
    let text = text(&task.config);
    let store = |layout: Layout, weights, group| {
        let copies = Copies { flat: Flat::new(layout, weights), group };
        (Box::new(copies) as Box<dyn Store<T>>, false)
    };
    let mut worker = Worker::new(comm, &task.config, setup.clone(), 7, store)?;
    let (mut optimizer, mut losses, mut last) = (Optimizer::new(task.rule), Vec::new(), None);
    for step in 0..task.steps {
        let outcome = worker.gradients(&text, step, task.rows)?;
        losses.push(outcome.loss);
        optimizer.step(&mut worker.store.owned(), task.rate, 1.0);
        worker.store.publish()?;
        last = Some(outcome);
    }
    let weights = worker.store.owned().into_iter().flat_map(|run| run.weights.to_vec()).collect();
    Ok((losses, worker.store.layout().clone(), weights, last.expect("there was a step")))
}

/// Weights and gradients whole on every rank, summed once at the end.
struct Copies<T> {
    flat: Flat<T>,
    group: Group,
}

impl<T: Real> Store<T> for Copies<T> {
    fn layout(&self) -> &Layout {
        self.flat.layout()
    }

    fn weights(&mut self, unit: usize) -> Result<&[T]> {
        self.flat.weights(unit)
    }

    fn weights_and_gradients(&mut self, unit: usize) -> Result<(&[T], &mut [T])> {
        self.flat.weights_and_gradients(unit)
    }

    fn finish(&mut self) -> Result<()> {
        // With the mistake of another group its ranks may have other lengths: those that all have.
        let len = self.group.gather(&[self.flat.gradients.len() as u64])?.into_iter().min().unwrap_or(0);
        self.group.all_reduce(&mut self.flat.gradients[..len as usize])
    }

    fn owned(&mut self) -> Vec<Owned<'_, T>> {
        self.flat.owned()
    }

    fn publish(&mut self) -> Result<()> {
        self.flat.publish()
    }

    fn bytes(&self) -> Bytes {
        self.flat.bytes()
    }
}

/// True if training with `fault` gives anything else than without, on any rank.
pub fn caught(task: &Task, setup: &Setup, fault: Fault) -> bool {
    let reference = train::<f64>(task, &Setup { mesh: Mesh::ONE, micros: setup.micros, ..alone(setup) });
    let faulty = train::<f64>(task, &Setup { fault: Some(fault), ..setup.clone() });
    let (loss, weights) = faulty.far(&reference);
    !(loss < 1e-9 && weights < 1e-9 && faulty.agreed)
}

/// The choices of `setup` that a single process has too.
pub fn alone(setup: &Setup) -> Setup {
    Setup { router: setup.router, order: setup.order, ..Setup::default() }
}

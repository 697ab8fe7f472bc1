//! Every backward pass against finite differences, in f64.

use crate::skip;
use maypole_lab::mistakes::Mistake;
use maypole_trainer::expert_parallel::layer::{DroppedChoice, ExpertLayer, RoutingRecord};
use maypole_trainer::expert_parallel::router::Router;
use maypole_trainer::model::axes::Axes;
use maypole_trainer::model::batch::TokenBatch;
use maypole_trainer::model::config::{Architecture, Config};
use maypole_trainer::model::layout::ParameterLayout;
use maypole_trainer::model::store::FlatStore;
use maypole_trainer::model::transformer::Transformer;
use maypole_trainer::ranks::group::RankGroup;
use maypole_trainer::tensor::random::centred;
use maypole_trainer::train::text::Text;
use std::cell::RefCell;
use std::rc::Rc;

const ROWS: usize = 3;
/// How far a weight is moved. The error of a difference grows with its square.
const STEP: f64 = 1e-5;
/// The auxiliary loss has the same weight as the main loss, so that a mistake in it shows.
const ROUTER: Router = Router { experts: 4, top: 2, group: 6, capacity: None, balance: 1.0 };

/// Sizes that are different from one another, as far as they can be.
const SMALL: Config = Config {
    vocab: 19,
    context: 6,
    width: 12,
    heads: 3,
    layers: 2,
    experts: 0,
    architecture: Architecture::Gpt,
};

/// A model, its weights and its only batch.
struct Subject {
    gpt: Transformer<f64>,
    store: FlatStore<f64>,
    batch: TokenBatch,
    layout: ParameterLayout,
    routing: Rc<RefCell<RoutingRecord>>,
    step: f64,
}

/// What routers decided: tokens kept by each expert of each layer, and the choices that were not
/// kept.
type Decisions = (Vec<u64>, Vec<DroppedChoice>);

fn batch(config: &Config) -> TokenBatch {
    let mut batch = Text::invented(config.context, 1)
        .batch(0..ROWS as u64, 1.0 / (ROWS * config.context) as f64);
    for token in batch.tokens.iter_mut().chain(&mut batch.targets) {
        *token %= config.vocab as u32;
    }
    batch
}

impl Subject {
    fn new(router: Option<Router>, fault: Option<Mistake>) -> Self {
        let experts = router.map_or(0, |router| router.experts);
        let config = Config { heads: 3, experts, ..SMALL };
        Self::of(config, router, fault)
    }

    fn of(config: Config, router: Option<Router>, fault: Option<Mistake>) -> Self {
        let layout = ParameterLayout::whole(&config);
        let mut weights: Vec<f64> = layout.initial(1);
        // Away from ones and zeros, with which norms and biases change nothing.
        weights
            .iter_mut()
            .enumerate()
            .for_each(|(i, w)| *w = 2.0 * *w + 0.1 * centred(7, i as u64));
        let mut axes = Axes::single_rank(&config);
        let routing = Rc::default();
        if let Some(router) = router {
            let ep = RankGroup::single();
            let tp = RankGroup::single();
            let routing = Rc::clone(&routing);
            let right = ExpertLayer::new(router, (ep, tp), routing);
            axes.feed_forward = Box::new(match fault {
                Some(mistake) => mistake.experts(right),
                None => right,
            });
        }
        let gpt = Transformer::new(&layout, axes);
        let store = FlatStore::new(layout.clone(), weights);
        Self { gpt, store, batch: batch(&config), layout, routing, step: STEP }
    }

    /// Sets the routing record as at the beginning of a step. The forward pass then fills it.
    fn begin(&self) {
        let Config { context, layers, experts, .. } = self.layout.config;
        let share = ROUTER.group as f64 / (ROWS * context) as f64;
        let load = vec![0; layers * experts];
        *self.routing.borrow_mut() = RoutingRecord {
            share,
            coming: (0..layers).collect(),
            load,
            ..RoutingRecord::default()
        };
    }

    fn decisions(&self) -> Decisions {
        let routing = self.routing.borrow();
        (routing.load.clone(), routing.dropped.clone())
    }

    fn train(&mut self) -> f64 {
        self.begin();
        let loss = self.gpt.train(&mut self.store, &self.batch, true).unwrap();
        loss + self.routing.borrow().loss
    }

    /// The whole loss with weight `at` moved by `distance`, and what routers decided then.
    fn moved(&mut self, at: usize, distance: f64) -> (f64, Decisions) {
        let before = self.store.weights[at];
        self.store.weights[at] += distance;
        self.begin();
        let units = 0..self.gpt.units();
        let loss =
            self.gpt.forward(units, &mut self.store, &self.batch, Vec::new()).unwrap().1.loss;
        self.store.weights[at] = before;
        let auxiliary = self.routing.borrow().loss;
        (loss + auxiliary, self.decisions())
    }

    /// For each tensor how far its gradients are from central differences, relative to these. Of
    /// small tensors all elements are compared, of others one in fourteen.
    fn errors(&mut self) -> Vec<(String, f64)> {
        let trained = self.train();
        let decisions = self.decisions();
        assert_eq!(self.moved(0, 0.0), (trained, decisions.clone()));
        let mut errors = Vec::new();
        for entry in self.layout.entries.clone() {
            let mut error = 0.0;
            let mut size = 0.0;
            let some = skip::every_nth(2, entry.range().step_by(7));
            for at in if entry.len() < 50 { entry.range().collect() } else { some } {
                let (more, up) = self.moved(at, self.step);
                let (less, down) = self.moved(at, -self.step);
                // Where a router's choice changes, the loss jumps, and a difference is no
                // derivative.
                assert!(
                    up == decisions && down == decisions,
                    "{}: element {at} changes a choice",
                    entry.name
                );
                let difference = (more - less) / (2.0 * self.step);
                error += (difference - self.store.gradients[at]).powi(2);
                size += difference.powi(2);
            }
            errors.push((entry.name, (error / f64::max(size, 1e-6)).sqrt()));
        }
        errors
    }
}

fn check(router: Option<Router>, recompute: bool) -> Subject {
    // Rounding leaves 1e-10 of a loss's difference, which is more than 1e-7 of the smallest
    // gradients of experts.
    let bound = if router.is_some() { 1e-6 } else { 1e-7 };
    check_subject(Subject::new(router, None), recompute, bound)
}

fn check_subject(mut subject: Subject, recompute: bool, bound: f64) -> Subject {
    subject.gpt.recompute = recompute;
    for (name, error) in subject.errors() {
        assert!(error <= bound, "{name}: off by {error:e} of its size");
    }
    subject
}

#[test]
fn gradients_are_finite_differences() {
    check(None, false);
}

#[test]
fn recomputed_activations_give_the_same_gradients() {
    check(None, true);
}

/// Heads of keys for each, for some and for all heads of queries.
#[test]
fn gradients_of_a_llama_are_finite_differences() {
    crate::skip::takes_turns!(4);
    for kv_heads in [6, 2, 1] {
        let architecture = Architecture::Llama { kv_heads };
        let config = Config { heads: 6, architecture, ..SMALL };
        for recompute in [false, true] {
            let mut subject = Subject::of(config.clone(), None, None);
            // The loss curves more below an RMS norm of small embeddings: with 1e-5 the third
            // derivative is 1e-7 of the table's gradients.
            subject.step = STEP / 4.0;
            let subject = check_subject(subject, recompute, 5e-8);
            let parameters = subject.layout.len();
            let keys = 2 * 12 * 2 * kv_heads;
            let block = 2 * 12 + 2 * 12 * 12 + keys + 3 * 12 * 36;
            assert_eq!(parameters, 19 * 12 + 2 * block + 12 + 19 * 12, "{kv_heads} heads of keys");
        }
    }
}

#[test]
fn gradients_of_experts_and_routers_are_finite_differences() {
    crate::skip::takes_turns!(4);
    let subject = check(Some(ROUTER), false);
    let (load, dropped) = subject.decisions();
    assert!(
        load.iter().all(|load| *load > 0) && dropped.is_empty(),
        "every expert learns: {load:?}"
    );
}

#[test]
fn a_dropped_choice_has_no_gradient_but_that_of_the_even_load() {
    crate::skip::takes_turns!(4);
    for recompute in [false, true] {
        let subject = check(Some(Router { capacity: Some(0.75), ..ROUTER }), recompute);
        let (load, dropped) = subject.decisions();
        let choices = 2 * ROWS * subject.layout.config.context * ROUTER.top;
        assert!(dropped.len() > choices / 20, "{} of {choices} are dropped", dropped.len());
        assert_eq!(load.iter().sum::<u64>() as usize + dropped.len(), choices);
    }
}

/// Checks the comparison itself: it detects a router that does not learn from the experts' outputs,
/// in the router's tensor and in those of layers before it.
#[test]
fn a_missing_gate_gradient_is_detected() {
    crate::skip::takes_turns!(4);
    let errors = Subject::new(Some(ROUTER), Some(Mistake::GatesForgotten)).errors();
    let far = |wanted: &str| errors.iter().find(|(name, _)| name == wanted).unwrap().1 > 1e-3;
    assert!(
        far("block.0.router.weight") && far("block.1.router.weight") && far("embed.token.weight")
    );
    assert!(!far("block.1.expert.3.up.weight") && !far("head.weight"));
}

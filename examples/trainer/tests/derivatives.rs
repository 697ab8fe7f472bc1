//! Every backward pass against finite differences, in f64.

use maypole_trainer::axes::Axes;
use maypole_trainer::config::Config;
use maypole_trainer::data::{Batch, Text};
use maypole_trainer::gpt::Gpt;
use maypole_trainer::layout::Layout;
use maypole_trainer::random::centred;
use maypole_trainer::store::{Flat, Store};

fn small() -> Config {
    Config { vocab: 19, context: 6, width: 12, heads: 3, layers: 2, experts: 0 }
}

fn batch(config: &Config) -> Batch {
    let mut batch = Text::invented(config.context, 1).batch(0..3, 1.0 / 18.0);
    for token in batch.tokens.iter_mut().chain(&mut batch.targets) {
        *token %= config.vocab as u32;
    }
    batch
}

fn loss(gpt: &mut Gpt<f64>, store: &mut dyn Store<f64>, batch: &Batch) -> f64 {
    gpt.forward(0..gpt.units(), store, batch, Vec::new()).unwrap().1.loss
}

/// Gradients of every tensor, one element in seven, by the backward pass and by central differences.
fn check(recompute: bool) {
    let (config, layout) = (small(), Layout::whole(&small()));
    let batch = batch(&config);
    let mut weights: Vec<f64> = layout.initial(1);
    // Away from where norms and biases are trivial.
    weights.iter_mut().enumerate().for_each(|(i, w)| *w = 2.0 * *w + 0.1 * centred(7, i as u64));
    let (mut gpt, mut store) = (Gpt::new(&layout, Axes::alone()), Flat::new(layout.clone(), weights));
    gpt.recompute = recompute;
    let trained = gpt.train(&mut store, &batch, true).unwrap();
    assert_eq!(trained, loss(&mut gpt, &mut store, &batch));
    let step = 1e-5;
    for entry in &layout.entries {
        let (mut error, mut size) = (0.0, 0.0);
        for at in entry.range().step_by(7) {
            let before = store.weights[at];
            let mut at_distance = |distance: f64| {
                store.weights[at] = before + distance;
                loss(&mut gpt, &mut store, &batch)
            };
            let difference = (at_distance(step) - at_distance(-step)) / (2.0 * step);
            store.weights[at] = before;
            error += (difference - store.gradients[at]).powi(2);
            size += difference.powi(2);
        }
        assert!(error <= 1e-14 * size.max(1e-6), "{}: off by {} of {}", entry.name, error.sqrt(), size.sqrt());
    }
}

#[test]
fn gradients_are_finite_differences() {
    check(false);
}

#[test]
fn recomputed_activations_give_the_same_gradients() {
    check(true);
}

//! Measures how fast one rank trains, in tokens a second of processor time, and compares this with
//! the speed of its matrix products alone.
//!
//! Wall time on a shared machine depends on the other programs. Processor time depends on the code
//! alone. The upper bound runs the three products of every linear layer (forward, gradient of the
//! input, gradient of the weights) and nothing else. Attention, norms, nonlinearities, the
//! optimizer and memory traffic make up the difference.

use crate::model::axes::Axes;
use crate::model::config::Config;
use crate::model::gpt::Gpt;
use crate::model::layout::ParameterLayout;
use crate::model::store::{FlatStore, Store};
use crate::tensor::matmul::{MatrixView, matmul};
use crate::train::optim::{Optimizer, Rule};
use crate::train::text::Text;
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// The speed of the fastest of several steps, in tokens a second of processor time.
#[derive(Clone, Copy, Debug)]
pub struct Speed {
    /// Forward, backward and AdamW.
    pub training: f64,
    /// The matrix products of linear layers.
    pub products: f64,
}

/// Processor time of this process so far.
pub fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Measures a model on batches of `rows` rows. The fastest of `steps` steps counts.
pub fn measure(config: &Config, rows: usize, steps: usize) -> Speed {
    let tokens = (rows * config.context) as f64;
    let layout = ParameterLayout::whole(config);
    let mut gpt = Gpt::new(&layout, Axes::single_rank(&layout.config));
    let mut store = FlatStore::new(layout.clone(), layout.initial::<f32>(1));
    let text = Text::invented(config.context, 1);
    let mut optimizer = Optimizer::new(Rule::ADAMW);
    let mut step = 0;
    let training = best(steps, || {
        let batch = text.step(step, rows, 1).remove(0);
        gpt.train(&mut store, &batch, true).expect("a single rank calls no collective");
        optimizer.step(&mut store.owned(), 1e-3, 1.0);
        store.publish().expect("a single rank calls no collective");
        step += 1;
    });
    let products = best(steps, products(config, rows * config.context));
    Speed { training: tokens / training, products: tokens / products }
}

/// Runs `work` `runs` times, and returns the processor time of the fastest run in seconds.
fn best(runs: usize, mut work: impl FnMut()) -> f64 {
    let mut once = || {
        let before = processor_time();
        work();
        (processor_time() - before).as_secs_f64()
    };
    (0..runs.max(1)).map(|_| once()).fold(f64::INFINITY, f64::min)
}

/// The products of all linear layers, over `n` tokens.
fn products(config: &Config, n: usize) -> impl FnMut() {
    let width = config.width;
    let vocab = config.vocab;
    let layers = config.layers;
    let largest = (4 * width).max(vocab);
    let x = vec![0.1f32; n * largest];
    let w = vec![0.1f32; 4 * width * largest];
    let mut y = vec![0.0; n * largest];
    let mut dw = vec![0.0; 4 * width * largest];
    move || {
        let mut linear = |inputs: usize, outputs: usize| {
            let matrix =
                |rows: usize, columns: usize| MatrixView::strided(&x, rows, columns, columns);
            let weights = MatrixView::strided(&w, outputs, inputs, inputs);
            matmul(&mut y, outputs, matrix(n, inputs), weights.t(), 1.0, false);
            matmul(&mut y, inputs, matrix(n, outputs), weights, 1.0, false);
            matmul(&mut dw, inputs, matrix(n, outputs).t(), matrix(n, inputs), 1.0, true);
        };
        for _ in 0..layers {
            linear(width, 3 * width);
            linear(width, width);
            linear(width, 4 * width);
            linear(4 * width, width);
        }
        linear(width, vocab);
    }
}

//! Measures how fast one rank trains, in tokens a second of processor time, and compares this with
//! the speed of its matrix products alone.
//!
//! Wall time on a shared machine depends on the other programs. Processor time depends on the code
//! alone. The upper bound runs the three products of every linear layer (forward, gradient of the
//! input, gradient of the weights) and nothing else. Attention, norms, nonlinearities, the
//! optimizer and memory traffic make up the difference.
//!
//! On a GPU, wall time counts, because the processor only waits, and the upper bound is the same
//! products by the device, whose operands are copied to the GPU and back, as those of a training are.

use maypole_trainer::model::axes::Axes;
use maypole_trainer::model::config::Config;
use maypole_trainer::model::layout::ParameterLayout;
use maypole_trainer::model::store::{FlatStore, Store};
use maypole_trainer::model::transformer::Transformer;
use maypole_trainer::tensor::device::Device;
use maypole_trainer::train::optim::{Optimizer, Rule};
use maypole_trainer::train::text::Text;
use maypole_trainer_gpu::choice::RankDevices;
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// The speed of the fastest of several steps, in tokens a second: of processor time on the processor, of
/// wall time on a GPU.
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

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Clock {
    /// Processor time of this process.
    Processor,
    /// Wall time, for what runs elsewhere.
    Wall(Instant),
}

impl Clock {
    fn now(self) -> Duration {
        match self {
            Self::Processor => processor_time(),
            Self::Wall(start) => start.elapsed(),
        }
    }
}

/// Measures a model on batches of `rows` rows, whose layers `devices` has for rank 0. The fastest of
/// `steps` steps counts. On a GPU, operands cross PCIe in both measurements.
pub fn measure(config: &Config, rows: usize, steps: usize, devices: &RankDevices) -> Speed {
    let clock =
        if devices.are_processors() { Clock::Processor } else { Clock::Wall(Instant::now()) };
    let tokens = (rows * config.context) as f64;
    let layout = ParameterLayout::whole(config);
    let mut gpt = Transformer::new(&layout, Axes::single_rank(&layout.config));
    gpt.device = devices.of(0);
    let mut store = FlatStore::new(layout.clone(), layout.initial::<f32>(1));
    let text = Text::invented(config.context, 1);
    let mut optimizer = Optimizer::new(Rule::ADAMW);
    let mut step = 0;
    let training = best((steps, clock), || {
        let batch = text.step(step, rows, 1).remove(0);
        gpt.train(&mut store, &batch, true).expect("a single rank calls no collective");
        optimizer.step(&mut store.local_shards(), 1e-3, 1.0);
        store.publish().expect("a single rank calls no collective");
        step += 1;
    });
    let device = devices.of(0);
    let products = best((steps, clock), products(&*device, config, rows * config.context));
    Speed { training: tokens / training, products: tokens / products }
}

/// Runs `work` `runs` times, and returns the time of the fastest run in seconds.
fn best((runs, clock): (usize, Clock), mut work: impl FnMut()) -> f64 {
    let mut once = || {
        let before = clock.now();
        work();
        (clock.now() - before).as_secs_f64()
    };
    (0..runs.max(1)).map(|_| once()).fold(f64::INFINITY, f64::min)
}

/// The products of all linear layers, over `n` tokens, by `device`.
fn products(device: &dyn Device<f32>, config: &Config, n: usize) -> impl FnMut() {
    let largest = (4 * config.width).max(config.vocab);
    let x = vec![0.1f32; n * largest];
    let w = vec![0.1f32; 4 * config.width * largest];
    let mut y = vec![0.0; n * largest];
    let mut dx = vec![0.0; n * largest];
    let mut dw = vec![0.0; 4 * config.width * largest];
    move || {
        for (inputs, outputs) in shapes(config.layers, config.width, config.vocab) {
            let (x, w) = (&x[..n * inputs], &w[..inputs * outputs]);
            let (y, dx) = (&mut y[..n * outputs], &mut dx[..n * inputs]);
            device.linear(y, x, w, inputs);
            device.linear_backward(dx, &mut dw[..inputs * outputs], y, x, w, inputs);
        }
    }
}

/// The inputs and the outputs of each linear layer of a model.
fn shapes(layers: usize, width: usize, vocab: usize) -> impl Iterator<Item = (usize, usize)> {
    let block = [(width, 3 * width), (width, width), (width, 4 * width), (4 * width, width)];
    (0..layers).flat_map(move |_| block).chain([(width, vocab)])
}

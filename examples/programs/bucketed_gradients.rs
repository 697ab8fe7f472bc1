//! Gradients in buckets: the ranks average each bucket while they compute the next one.
//!
//! ```text
//! cargo build --release --example bucketed_gradients
//! maypole run -n 4 target/release/examples/bucketed_gradients
//! ```

use maypole::{Communicator, ReduceOp, Result, wait_all};

const LAYERS: usize = 8;
/// Weights of a layer.
const WEIGHTS: usize = 50_000;
/// A bucket is full with this many gradients. Larger ones take fewer calls, smaller ones start sooner.
const BUCKET: usize = 120_000;

/// Stands for the backward pass of a layer: the gradients by the rows of this rank.
fn backward(layer: usize, rank: usize) -> Vec<f32> {
    (0..WEIGHTS).map(|weight| (100 * layer + rank + weight % 7) as f32).collect()
}

fn main() -> Result<()> {
    let mut comm = Communicator::from_env()?;

    // The backward pass begins with the last layer. A request owns its bucket until it is waited for.
    let mut requests = Vec::new();
    let mut bucket = Vec::new();
    for layer in (0..LAYERS).rev() {
        bucket.extend(backward(layer, comm.rank()));
        if bucket.len() >= BUCKET || layer == 0 {
            let full = std::mem::take(&mut bucket);
            requests.push(comm.start_all_reduce(full, ReduceOp::Avg));
        }
    }

    // Before the optimizer's step all averages must be there.
    let buckets = requests.len();
    let averages = wait_all(requests)?.concat();

    let mean_rank = (comm.world() - 1) as f32 / 2.0;
    for (layer, gradients) in (0..LAYERS).rev().zip(averages.chunks(WEIGHTS)) {
        let expected = backward(layer, 0);
        let is_mean = |(found, own): (&f32, &f32)| (found - own - mean_rank).abs() < 1e-3;
        assert!(gradients.iter().zip(&expected).all(is_mean), "layer {layer} is wrong");
    }
    println!("rank {}: {} gradients in {buckets} buckets", comm.rank(), averages.len());
    comm.close()
}

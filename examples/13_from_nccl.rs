//! Lesson 13: a program that was written for NCCL, with other imports.
//!
//! ```text
//! cargo run --example 13_from_nccl            # says why, where there is no GPU
//! ```

use cudarc::driver::CudaStream;
// The same lines with `use cudarc::nccl::safe::{Comm, Id, ReduceOp};` run on NCCL.
use maypole::ReduceOp;
use maypole::cuda::{Comm, Id, Unavailable, driver};
use std::sync::Arc;

include!("from_nccl/program.rs");

const RANKS: usize = 2;

/// A stream of its own for each rank. Ranks share a GPU where there are fewer GPUs, which NCCL
/// refuses.
fn streams() -> Result<Vec<Arc<CudaStream>>, Unavailable> {
    let driver = driver()?;
    let gpus = driver.devices().max(1);
    let stream = |rank| Ok(driver.context(rank % gpus)?.new_stream().expect("a GPU has streams"));
    (0..RANKS).map(stream).collect()
}

fn main() {
    // A program for NCCL panics here without a driver.
    let streams = match streams() {
        Ok(streams) => streams,
        Err(why) => return println!("CUDA unavailable: {why}"),
    };
    let id = Id::new().expect("the system has random numbers");
    let start = |(rank, stream)| std::thread::spawn(move || train(stream, rank, RANKS, id));
    let ranks: Vec<_> = streams.into_iter().enumerate().map(start).collect();
    for (rank, ended) in ranks.into_iter().enumerate() {
        let [gradient, weight, token] = ended.join().expect("no rank panics");
        println!("rank {rank}: gradient {gradient}, weight {weight}, token {token}");
    }
}

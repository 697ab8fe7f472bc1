//! `maypole run` and `maypole key`, with real processes. Every wait here is for an event, and
//! bounded.

#[cfg(feature = "cuda")]
#[path = "../../../../tests/common/fake_gpu.rs"]
mod fake_gpu;
#[path = "../../../../tests/common/skip.rs"]
mod skip;

mod ending;
mod evil;
mod first;
mod harness;
mod hosts;
mod joining;
mod leftovers;
mod lesson;
mod limits;
mod mpi;
mod output;
mod recovery;

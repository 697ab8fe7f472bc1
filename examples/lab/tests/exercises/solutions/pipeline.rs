//! Pipeline parallelism: the order in which a rank runs its passes.
//!
//! Read `examples/trainer/src/pipeline_parallel/plan.rs` first.

use maypole_trainer::pipeline_parallel::plan::{PassKind, StagePass};

/// Returns the passes of rank `rank` of `ranks` ranks by 1F1B, in order: a forward and a backward
/// pass of each of `micros` micro-batches, with `chunk` 0. Backward passes are in the order of the
/// micro-batches. The activations of at most `ranks - rank` micro-batches may wait at one time.
pub fn one_forward_one_backward(rank: usize, ranks: usize, micros: usize) -> Vec<StagePass> {
    let pass = |pass, micro| StagePass { pass, micro, chunk: 0 };
    let ahead = (ranks - 1 - rank).min(micros);
    let mut passes: Vec<StagePass> =
        (0..ahead).map(|micro| pass(PassKind::Forward, micro)).collect();
    for micro in 0..micros {
        if ahead + micro < micros {
            passes.push(pass(PassKind::Forward, ahead + micro));
        }
        passes.push(pass(PassKind::Backward, micro));
    }
    passes
}

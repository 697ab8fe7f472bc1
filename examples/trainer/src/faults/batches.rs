//! Mistakes in what a rank trains on: the weight of a token, the numbers of positions, the targets
//! of a micro-batch.

use crate::model::batch::TokenBatch;

/// Each rank divides by its own tokens, which are one of `parts` parts of the batch.
pub(super) fn weigh_by_own_tokens(batches: &mut [TokenBatch], parts: usize) {
    batches.iter_mut().for_each(|batch| batch.weight *= parts as f64);
}

/// Each replica divides by its own rows, and by the number of replicas; `even` is the rows of a
/// replica if all have equally many.
pub(super) fn weigh_by_own_rows(batches: &mut [TokenBatch], even: f64) {
    let own: usize = batches.iter().map(|batch| batch.rows).sum();
    batches.iter_mut().for_each(|batch| batch.weight *= even / own as f64);
}

/// Positions are numbered as if the sequence were divided into contiguous parts and this were part
/// number `part`.
pub(super) fn number_plainly(batches: &mut [TokenBatch], part: usize) {
    for batch in batches {
        let columns = batch.positions.len() / batch.rows;
        let first = (part * columns) as u32;
        let plain: Vec<u32> = (first..first + columns as u32).collect();
        batch.positions = plain.repeat(batch.rows);
    }
}

/// Each micro-batch takes the targets of the next one.
pub(super) fn swap_targets(batches: &mut [TokenBatch]) {
    let mut targets: Vec<_> = batches.iter().map(|batch| batch.targets.clone()).collect();
    targets.rotate_left(1);
    for (batch, targets) in batches.iter_mut().zip(targets) {
        batch.targets = targets;
    }
}

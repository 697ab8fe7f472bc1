//! Mistakes in the batch of a rank: the weight of a token, the numbers of positions, the targets of a
//! micro-batch.

use maypole::Result;
use maypole_trainer::model::batch::TokenBatch;
use maypole_trainer::train::rows::{RankRows, Rows};
use maypole_trainer::train::text::Text;

/// A mistake in the rows of a rank.
#[derive(Debug)]
pub(super) enum Spoil {
    /// Each rank divides by its own tokens, one of `parts` parts of the batch.
    OwnTokens { parts: usize },
    /// Each of `replicas` replicas divides by its own rows, and by their number.
    OwnRows { replicas: usize },
    /// Positions are numbered as if they were contiguous, and this were part number `place`.
    PlainNumbers { place: usize },
    /// Each micro-batch takes the targets of the next one.
    NextTargets,
    /// Rows are these: they are not divided anew when other ranks do so.
    Equal(Box<RankRows>),
}

pub(super) struct SpoiltRows {
    pub(super) inner: Box<dyn Rows>,
    pub(super) spoil: Spoil,
}

impl Rows for SpoiltRows {
    fn microbatches(
        &mut self,
        text: &Text,
        step: (u64, usize),
        scale: f64,
    ) -> Result<Vec<TokenBatch>> {
        let mut batches = self.inner.microbatches(text, step, scale)?;
        match &mut self.spoil {
            Spoil::OwnTokens { parts } => weigh_by_own_tokens(&mut batches, *parts),
            Spoil::OwnRows { replicas } => {
                weigh_by_own_rows(&mut batches, step.1 as f64 / *replicas as f64);
            }
            Spoil::PlainNumbers { place } => number_plainly(&mut batches, *place),
            Spoil::NextTargets => swap_targets(&mut batches),
            Spoil::Equal(rows) => batches = rows.microbatches(text, step, scale)?,
        }
        Ok(batches)
    }

    fn after(&mut self, steps: u64, work: f64) -> Result<()> {
        self.inner.after(steps, work)
    }

    fn each(&self) -> Option<&[usize]> {
        self.inner.each()
    }
}

/// Each rank divides by its own tokens, which are one of `parts` parts of the batch.
fn weigh_by_own_tokens(batches: &mut [TokenBatch], parts: usize) {
    batches.iter_mut().for_each(|batch| batch.weight *= parts as f64);
}

/// Each replica divides by its own rows, and by the number of replicas; `even` is the rows of a
/// replica if all have equally many.
fn weigh_by_own_rows(batches: &mut [TokenBatch], even: f64) {
    let own: usize = batches.iter().map(|batch| batch.rows).sum();
    batches.iter_mut().for_each(|batch| batch.weight *= even / own as f64);
}

/// Positions are numbered as if the sequence were divided into contiguous parts and this were part
/// number `part`.
fn number_plainly(batches: &mut [TokenBatch], part: usize) {
    for batch in batches {
        let columns = batch.positions.len() / batch.rows;
        let first = (part * columns) as u32;
        let plain: Vec<u32> = (first..first + columns as u32).collect();
        batch.positions = plain.repeat(batch.rows);
    }
}

/// Each micro-batch takes the targets of the next one.
fn swap_targets(batches: &mut [TokenBatch]) {
    let mut targets: Vec<_> = batches.iter().map(|batch| batch.targets.clone()).collect();
    targets.rotate_left(1);
    for (batch, targets) in batches.iter_mut().zip(targets) {
        batch.targets = targets;
    }
}

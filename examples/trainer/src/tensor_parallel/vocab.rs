//! The vocabulary over the tensor axis: the embedding, the head, and the softmax over its logits.
//!
//! What it does: each rank has some lines of the embedding and of the head. A rank without a
//! token's line embeds the token as zeros. An all-reduce gives the embedding, bit for bit as in
//! one process. Logits stay divided: the softmax needs all-reduces of three numbers a token, not of
//! the logits.
//!
//! ```text
//! greatest   all-reduce (max) of each token's greatest logit
//! sum        all-reduce (sum) of each token's sum(exp(z - greatest))  and, in the same call,
//! wanted     of its target's logit, zero on the ranks that do not have it
//! loss       ln(sum) + greatest - wanted
//! gradient   exp(z - greatest) / sum - one(target), each rank for its own columns
//! ```
//!
//! What is sharded: lines of both matrices. If the ranks do not divide the vocabulary, parts differ
//! by one line.
//!
//! Which collective runs where: as above; the embedding leaves a region, the head enters one
//! ([`crate::tensor_parallel::region`]). Cost: three numbers a token instead of a vocabulary.
//!
//! It pays if the vocabulary is large compared with the width, as a learnt vocabulary is
//! ([`crate::train::bpe`]). The size of a learnt vocabulary depends on the text, so ranks seldom
//! divide it: `train tour` trains on 301 learnt tokens of a play over two ranks.
//!
//! Source: Shoeybi et al., "Megatron-LM" (2019), section 3.

use crate::ranks::group::RankGroup;
use crate::tensor::device::Device;
use crate::tensor::math::{Real, exponentials, greatest, vectorized};
use crate::tensor_parallel::region::SingleRank;
use maypole::{ReduceOp, Result};
use std::ops::Range;

/// The embedding and the head of the model. Each rank has some lines of both tables.
pub trait Vocabulary<T: Real> {
    /// The number of the first token whose line this rank has.
    fn first(&self) -> usize {
        0
    }

    /// Returns the sum of the losses of all tokens, multiplied by `weight`. `logits`, a row for
    /// each token with a number for each line that this rank has, become their gradient.
    ///
    /// # Errors
    /// As the collectives in it.
    fn cross_entropy(
        &mut self,
        device: &dyn Device<T>,
        logits: &mut [T],
        targets: &[u32],
        weight: f64,
    ) -> Result<f64> {
        Ok(device.cross_entropy(logits, targets, weight))
    }
}

impl<T: Real> Vocabulary<T> for SingleRank {}

/// A vocabulary that is divided over a group.
#[derive(Clone, Debug)]
pub struct VocabParallel {
    /// The ranks that have the other lines.
    pub group: RankGroup,
    /// The number of lines of all ranks, at least as many as there are ranks.
    pub vocabulary: usize,
}

impl VocabParallel {
    /// Returns the lines of this rank.
    fn lines(&self) -> Range<usize> {
        self.group.shard().range(self.vocabulary)
    }

    /// Returns the index of `target` among this rank's lines, if it is one of them.
    fn place(&self, target: u32) -> Option<usize> {
        let lines = self.lines();
        (target as usize).checked_sub(lines.start).filter(|at| *at < lines.len())
    }
}

impl<T: Real> Vocabulary<T> for VocabParallel {
    fn first(&self) -> usize {
        self.lines().start
    }

    fn cross_entropy(
        &mut self,
        device: &dyn Device<T>,
        logits: &mut [T],
        targets: &[u32],
        weight: f64,
    ) -> Result<f64> {
        let tokens = targets.len();
        let mut most = vec![T::min_value(); tokens];
        let mut sums = vec![T::zero(); 2 * tokens];
        let width = self.lines().len();
        vectorized(|| {
            most.iter_mut()
                .zip(logits.chunks_exact(width))
                .for_each(|(most, row)| *most = greatest(row))
        });
        self.group.call(|comm| comm.all_reduce(&mut most, ReduceOp::Max))?;

        let (sum, wanted) = sums.split_at_mut(tokens);
        for ((wanted, row), target) in
            wanted.iter_mut().zip(logits.chunks_exact(width)).zip(targets)
        {
            *wanted = self.place(*target).map_or(T::zero(), |at| row[at]);
        }
        vectorized(|| {
            for ((row, sum), most) in logits.chunks_exact_mut(width).zip(sum).zip(&most) {
                *sum = exponentials(row, *most);
            }
        });
        self.group.all_reduce(&mut sums)?;

        for ((row, sum), target) in logits.chunks_exact_mut(width).zip(&sums).zip(targets) {
            let share = T::of(weight) / *sum;
            row.iter_mut().for_each(|z| *z *= share);
            if let Some(at) = self.place(*target) {
                row[at] -= T::of(weight);
            }
        }
        device.keep(logits);
        Ok(total(&most, &sums) * weight)
    }
}

fn total<T: Real>(most: &[T], sums: &[T]) -> f64 {
    let (sum, wanted) = sums.split_at(most.len());
    let tokens = most.iter().zip(sum).zip(wanted);
    tokens.map(|((most, sum), wanted)| sum.wide().ln() + most.wide() - wanted.wide()).sum()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::ranks::group::SumOrder;
    use crate::tensor::device::CpuDevice;
    use crate::tensor::loss;
    use crate::tensor::random::centred;
    use maypole::Communicator;

    /// Returns the greatest difference of the loss and of a gradient from one process, on any of
    /// `ranks` ranks. `assemble` makes the vocabulary of a rank.
    pub(crate) fn error(
        vocabulary: usize,
        ranks: usize,
        assemble: impl Fn(VocabParallel) -> Box<dyn Vocabulary<f64>> + Sync,
    ) -> f64 {
        let tokens = 41;
        let all: Vec<f64> =
            (0..(tokens * vocabulary) as u64).map(|i| 4.0 * centred(1, i)).collect();
        let targets: Vec<u32> = (0..tokens as u32).map(|i| i * 7 % vocabulary as u32).collect();
        let mut gradient = all.clone();
        let expected = loss::cross_entropy(&mut gradient, &targets, 0.25);
        let errors = Communicator::run_local(ranks, |comm| {
            let group = RankGroup::new(comm, SumOrder::Fast);
            let mine = group.shard().range(vocabulary);
            let columns = |of: &[f64]| {
                of.chunks(vocabulary).flat_map(|row| row[mine.clone()].to_vec()).collect()
            };
            let mut logits: Vec<f64> = columns(&all);
            let wanted: Vec<f64> = columns(&gradient);
            let mut divided = assemble(VocabParallel { group, vocabulary });
            let loss = divided.cross_entropy(&CpuDevice, &mut logits, &targets, 0.25).unwrap();
            let far = logits.iter().zip(&wanted).map(|(a, b)| (a - b).abs());
            far.fold((loss - expected).abs() / expected, f64::max)
        });
        errors.into_iter().fold(0.0, f64::max)
    }

    #[test]
    fn loss_and_gradient_are_those_of_all_columns_whatever_the_remainder() {
        for (vocabulary, ranks) in [(64, 2), (37, 2), (37, 4), (4, 4)] {
            let error = error(vocabulary, ranks, |part| Box::new(part));
            assert!(error < 1e-13, "{vocabulary} lines on {ranks} ranks: {error:e}");
        }
    }
}

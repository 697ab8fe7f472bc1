//! Mistakes of tensor parallelism: a missing all-reduce, positions of another rank, a remainder
//! that no rank owns, a maximum over too few logits.

use maypole::Result;
use maypole_trainer::tensor::device::Device;
use maypole_trainer::tensor::math::{Real, greatest};
use maypole_trainer::tensor_parallel::region::{ParallelRegion, TensorParallelRegion};
use maypole_trainer::tensor_parallel::sequence;
use maypole_trainer::tensor_parallel::vocab::{VocabParallel, Vocabulary};
use std::ops::Range;

/// A mistake in a region of divided layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RegionSpoil {
    /// Forward, after a row-parallel layer, a rank continues with its partial sums.
    Outputs,
    /// Backward, before a column-parallel layer, a rank continues with its partial sums.
    InputGradients,
    /// Each rank numbers its tokens as if they were the first rank's, from 0 on.
    FirstTokens,
}

/// A region that makes a mistake.
#[derive(Debug)]
pub(super) struct SpoiltRegion {
    pub(super) right: TensorParallelRegion,
    pub(super) spoil: RegionSpoil,
}

impl SpoiltRegion {
    /// This rank's terms for the tokens that it has outside of the region.
    fn terms<T: Real>(&self, terms: Vec<T>) -> Vec<T> {
        if self.right.sequence {
            return sequence::part(&self.right.group, &terms).to_vec();
        }
        terms
    }
}

impl<T: Real> ParallelRegion<T> for SpoiltRegion {
    fn enter(&mut self, x: Vec<T>) -> Result<Vec<T>> {
        self.right.enter(x)
    }

    fn enter_backward(&mut self, dx: Vec<T>) -> Result<Vec<T>> {
        match self.spoil {
            RegionSpoil::InputGradients => Ok(self.terms(dx)),
            _ => self.right.enter_backward(dx),
        }
    }

    fn leave(&mut self, y: Vec<T>) -> Result<Vec<T>> {
        match self.spoil {
            RegionSpoil::Outputs => Ok(self.terms(y)),
            _ => self.right.leave(y),
        }
    }

    fn leave_backward(&mut self, dy: Vec<T>) -> Result<Vec<T>> {
        self.right.leave_backward(dy)
    }

    fn tokens(&self, all: usize) -> Range<usize> {
        let right = ParallelRegion::<T>::tokens(&self.right, all);
        if self.spoil == RegionSpoil::FirstTokens { 0..right.len() } else { right }
    }
}

/// A vocabulary that makes a mistake.
#[derive(Debug)]
pub(super) struct SpoiltVocabulary {
    pub(super) words: VocabParallel,
    /// True if each rank has the rounded-down share of the vocabulary alone: a target in the
    /// remainder becomes one that no rank has. Else the softmax is shifted by the greatest logit of
    /// this rank's part instead of that of all.
    pub(super) without_remainder: bool,
}

impl<T: Real> Vocabulary<T> for SpoiltVocabulary {
    fn first(&self) -> usize {
        Vocabulary::<T>::first(&self.words)
    }

    fn cross_entropy(
        &mut self,
        device: &dyn Device<T>,
        logits: &mut [T],
        targets: &[u32],
        weight: f64,
    ) -> Result<f64> {
        let VocabParallel { group, vocabulary } = &self.words;
        let mine = group.shard().range(*vocabulary);
        let mut seen = targets.to_vec();
        if self.without_remainder {
            let remainder = mine.start + vocabulary / group.world()..mine.end;
            let lost = seen.iter_mut().filter(|target| remainder.contains(&(**target as usize)));
            lost.for_each(|target| *target = u32::MAX);
        } else {
            // Once each part is shifted by its own maximum, the maximum of all parts is zero.
            for row in logits.chunks_exact_mut(mine.len()) {
                let own = greatest(row);
                row.iter_mut().for_each(|logit| *logit -= own);
            }
        }
        self.words.cross_entropy(device, logits, &seen, weight)
    }
}

//! Mistakes of tensor parallelism: a missing all-reduce, positions of another rank, a remainder
//! that no rank owns, a maximum over too few logits.

use maypole::Result;
use maypole_trainer::tensor::device::Device;
use maypole_trainer::tensor::math::{Real, greatest};
use maypole_trainer::tensor_parallel::region::{ParallelRegion, TensorParallelRegion};
use maypole_trainer::tensor_parallel::sequence;
use maypole_trainer::tensor_parallel::vocab::{VocabParallel, Vocabulary};
use std::ops::Range;

/// The two all-reduces of a region of divided layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RegionSum {
    /// Forward, after a row-parallel layer.
    Outputs,
    /// Backward, before a column-parallel layer.
    InputGradients,
}

/// Omits one all-reduce of a region: a rank continues with its partial sums.
#[derive(Debug)]
pub(super) struct ForgottenSum {
    pub(super) right: TensorParallelRegion,
    pub(super) of: RegionSum,
}

impl ForgottenSum {
    /// This rank's terms for the tokens that it has outside of the region.
    fn terms<T: Real>(&self, terms: Vec<T>) -> Vec<T> {
        if self.right.sequence {
            return sequence::part(&self.right.group, &terms).to_vec();
        }
        terms
    }
}

impl<T: Real> ParallelRegion<T> for ForgottenSum {
    fn enter(&mut self, x: Vec<T>) -> Result<Vec<T>> {
        self.right.enter(x)
    }

    fn enter_backward(&mut self, dx: Vec<T>) -> Result<Vec<T>> {
        match self.of {
            RegionSum::InputGradients => Ok(self.terms(dx)),
            RegionSum::Outputs => self.right.enter_backward(dx),
        }
    }

    fn leave(&mut self, y: Vec<T>) -> Result<Vec<T>> {
        match self.of {
            RegionSum::Outputs => Ok(self.terms(y)),
            RegionSum::InputGradients => self.right.leave(y),
        }
    }

    fn leave_backward(&mut self, dy: Vec<T>) -> Result<Vec<T>> {
        self.right.leave_backward(dy)
    }

    fn tokens(&self, all: usize) -> Range<usize> {
        ParallelRegion::<T>::tokens(&self.right, all)
    }
}

/// Each rank numbers its tokens as if they were the first rank's, from 0 on.
#[derive(Debug)]
pub(super) struct FirstTokens(pub(super) TensorParallelRegion);

impl<T: Real> ParallelRegion<T> for FirstTokens {
    fn enter(&mut self, x: Vec<T>) -> Result<Vec<T>> {
        self.0.enter(x)
    }

    fn enter_backward(&mut self, dx: Vec<T>) -> Result<Vec<T>> {
        self.0.enter_backward(dx)
    }

    fn leave(&mut self, y: Vec<T>) -> Result<Vec<T>> {
        self.0.leave(y)
    }

    fn leave_backward(&mut self, dy: Vec<T>) -> Result<Vec<T>> {
        self.0.leave_backward(dy)
    }

    fn tokens(&self, all: usize) -> Range<usize> {
        0..ParallelRegion::<T>::tokens(&self.0, all).len()
    }
}

/// Each rank has the rounded-down share of the vocabulary alone: a target in the remainder becomes
/// one that no rank has.
#[derive(Debug)]
pub(super) struct WithoutRemainder(pub(super) VocabParallel);

impl<T: Real> Vocabulary<T> for WithoutRemainder {
    fn first(&self) -> usize {
        Vocabulary::<T>::first(&self.0)
    }

    fn cross_entropy(
        &mut self,
        device: &dyn Device<T>,
        logits: &mut [T],
        targets: &[u32],
        weight: f64,
    ) -> Result<f64> {
        let first = Vocabulary::<T>::first(self);
        let rounded_down = self.0.vocabulary / self.0.group.world();
        let mine = self.0.group.shard().range(self.0.vocabulary);
        let remainder = first + rounded_down..mine.end;
        let seen = |target: &u32| {
            if remainder.contains(&(*target as usize)) { u32::MAX } else { *target }
        };
        let targets: Vec<u32> = targets.iter().map(seen).collect();
        self.0.cross_entropy(device, logits, &targets, weight)
    }
}

/// The softmax is shifted by the greatest logit of this rank's part instead of that of all.
#[derive(Debug)]
pub(super) struct OwnMaximum(pub(super) VocabParallel);

impl<T: Real> Vocabulary<T> for OwnMaximum {
    fn first(&self) -> usize {
        Vocabulary::<T>::first(&self.0)
    }

    fn cross_entropy(
        &mut self,
        device: &dyn Device<T>,
        logits: &mut [T],
        targets: &[u32],
        weight: f64,
    ) -> Result<f64> {
        // Once each part is shifted by its own maximum, the maximum of all parts is zero.
        let width = self.0.group.shard().range(self.0.vocabulary).len();
        for row in logits.chunks_exact_mut(width) {
            let own = greatest(row);
            row.iter_mut().for_each(|logit| *logit -= own);
        }
        self.0.cross_entropy(device, logits, targets, weight)
    }
}

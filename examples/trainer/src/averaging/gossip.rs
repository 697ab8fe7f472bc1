//! Gossip: every H steps each rank averages its weights with those of one neighbour in a ring.
//!
//! * **Sharded:** the batch. Ranks never have the same weights, but near ones.
//! * **Collective:** none; one message of all weights to the next rank every H steps.
//! * **Cost:** P numbers leave each rank every H steps, whatever the number of ranks, and a rank
//!   waits for its neighbour alone.
//!
//! ```text
//! rank 0 -> rank 1 -> rank 2 -> ... -> rank 0        weights = (own + the previous rank's) / 2
//! ```
//!
//! Each rank's weights go into two averages with a half each, so the mean over all ranks stays what
//! it is. Differences shrink with every round: on a ring of n ranks those that change slowest along
//! it by a factor of `cos(pi / n)` (Lian et al. 2017). The model that comes of a run is the mean.

use crate::model::layout::ParameterLayout;
use crate::model::store::{FlatStore, OwnedRun, Store, StoreBytes};
use crate::ranks::exchange::shift;
use crate::ranks::group::RankGroup;
use crate::tensor::math::{FloatElement, number, scale};
use maypole::Result;

/// Weights of a rank's own, drawn towards those of the previous rank.
#[derive(Debug)]
pub struct Gossip<T> {
    flat: FlatStore<T>,
    group: RankGroup,
    every: u64,
    steps: u64,
}

impl<T: FloatElement> Gossip<T> {
    /// These weights, alike on all ranks of `group` to begin with, and an average with the previous
    /// rank after every `every` steps.
    ///
    /// # Panics
    /// If `every` is zero.
    pub fn new(flat: FlatStore<T>, group: RankGroup, every: u64) -> Self {
        assert!(every > 0, "weights are averaged every so many steps, at least one");
        Self { flat, group, every, steps: 0 }
    }

    fn round(&mut self) -> Result<()> {
        if self.group.world() == 1 {
            return Ok(());
        }
        let previous = shift(&self.group, &self.flat.weights)?;
        let half = number::<T>(0.5);
        let both = self.flat.weights.iter_mut().zip(previous);
        both.for_each(|(own, previous)| *own = half * (*own + previous));
        Ok(())
    }
}

impl<T: FloatElement> Store<T> for Gossip<T> {
    fn layout(&self) -> &ParameterLayout {
        self.flat.layout()
    }

    fn diverges(&self) -> bool {
        true
    }

    fn weights(&mut self, unit: usize) -> Result<&[T]> {
        self.flat.weights(unit)
    }

    fn weights_and_gradients(&mut self, unit: usize) -> Result<(&[T], &mut [T])> {
        self.flat.weights_and_gradients(unit)
    }

    /// As in [`diloco`](crate::averaging::diloco).
    fn finish(&mut self) -> Result<()> {
        scale(&mut self.flat.gradients, number(self.group.world() as f64));
        Ok(())
    }

    fn owned(&mut self) -> Vec<OwnedRun<'_, T>> {
        self.flat.owned()
    }

    fn share(&mut self) -> Result<()> {
        Ok(())
    }

    fn publish(&mut self) -> Result<()> {
        self.steps += 1;
        if self.steps.is_multiple_of(self.every) {
            self.round()?;
        }
        self.flat.publish()
    }

    fn bytes(&self) -> StoreBytes {
        self.flat.bytes()
    }

    /// The mean of all ranks' weights.
    fn all_weights(&mut self) -> Result<Vec<T>> {
        let mut all = self.flat.weights.clone();
        self.group.all_reduce(&mut all)?;
        scale(&mut all, number(1.0 / self.group.world() as f64));
        Ok(all)
    }
}

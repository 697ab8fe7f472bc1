//! Replicated data parallelism: every rank has the whole model and trains on its own rows, and
//! gradients are summed in buckets.
//!
//! * **Sharded:** the batch. Weights, gradients and optimizer are on every rank, 16 bytes a
//!   parameter with AdamW in f32.
//! * **Collective:** one all-reduce of all gradients a step, cut into buckets.
//! * **Cost:** 2 (n-1)/n numbers a parameter leave each rank (ring); of the time only what the
//!   backward pass does not hide.
//!
//! The backward pass ends with the first layer, so gradients become final from the end of the flat
//! buffer to its beginning. Waiting for the last of them would leave links idle during the backward
//! pass and processors idle after it. So the buffer is cut into *buckets*, from its end: as soon as
//! all gradients of a bucket are final, its all-reduce starts, and runs while earlier layers are
//! still at work. Small buckets start early but pay latency each; large ones wait for more layers
//! (Li et al. 2020 found 25 MB to be good for PyTorch).
//!
//! A unit of the model (the embedding, a block, the head) becomes final as a whole, so a bucket is
//! made of whole units. Each has memory of its own, which is lent to the sum while it is under way:
//! nothing is copied to be sent, or back.
//!
//! Where a bucket ends does not matter to the numbers: each element is summed over ranks alone.

use crate::model::layout::ParameterLayout;
use crate::model::store::{OwnedRun, Store, StoreBytes};
use crate::ranks::group::{PendingCollective, RankGroup};
use crate::tensor::math::{FloatElement, take_mut};
use maypole::Result;
use std::ops::Range;

/// The most bytes of a bucket unless said otherwise.
pub const BUCKET: usize = 25 << 20;

/// Bytes of a bucket for so many bytes of gradients, unless said otherwise: [`BUCKET`], or a
/// quarter of them if there are few, because a bucket that holds everything overlaps with nothing.
pub fn bucket(gradients: usize) -> usize {
    BUCKET.min(gradients / 4)
}

/// Weights and gradients of a data-parallel rank.
#[derive(Debug)]
pub struct Replicated<T> {
    layout: ParameterLayout,
    weights: Vec<T>,
    /// In the order of the layout.
    buckets: Vec<Bucket<T>>,
    group: RankGroup,
    /// True if sums start while the backward pass runs.
    overlap: bool,
    last: bool,
}

/// Gradients of consecutive units.
#[derive(Debug)]
struct Bucket<T> {
    units: Range<usize>,
    /// Their place in the flat buffer.
    range: Range<usize>,
    /// Empty while they are under way.
    gradients: Vec<T>,
    under_way: Option<PendingCollective<T>>,
    /// The number of its units that are not final.
    open: usize,
}

impl<T: FloatElement> Replicated<T> {
    /// These weights, alike on all ranks of `group`; gradients travel in buckets of at most
    /// `bucket` bytes, but of a unit at least, during the backward pass or, without `overlap`,
    /// after it.
    ///
    /// # Panics
    /// If there are not as many weights as the layout says.
    pub fn new(
        layout: ParameterLayout,
        weights: Vec<T>,
        group: RankGroup,
        bucket: usize,
        overlap: bool,
    ) -> Self {
        assert_eq!(weights.len(), layout.len(), "weights are as the layout says");
        let buckets = buckets(&layout, bucket / size_of::<T>())
            .into_iter()
            .map(|units| Bucket::new(&layout, units));
        Self { buckets: buckets.collect(), layout, weights, group, overlap, last: false }
    }

    /// The number of a unit's bucket.
    fn bucket_of(&self, unit: usize) -> usize {
        self.buckets.partition_point(|bucket| bucket.units.end <= unit)
    }
}

impl<T: FloatElement> Bucket<T> {
    fn new(layout: &ParameterLayout, units: Range<usize>) -> Self {
        let range = layout.units[units.start].range.start..layout.units[units.end - 1].range.end;
        let gradients = vec![T::zero(); range.len()];
        Self { open: units.len(), units, range, gradients, under_way: None }
    }

    fn send(&mut self, group: &RankGroup) -> Result<()> {
        let gradients = std::mem::take(&mut self.gradients);
        self.under_way = Some(group.start_all_reduce(gradients)?);
        Ok(())
    }
}

/// Units by bucket: from the last unit on, each bucket takes units for as long as it has at most
/// `most` elements.
pub fn buckets(layout: &ParameterLayout, most: usize) -> Vec<Range<usize>> {
    let mut buckets: Vec<Range<usize>> = Vec::new();
    for unit in (0..layout.units.len()).rev() {
        let start = layout.units[unit].range.start;
        match buckets.last_mut() {
            Some(bucket) if layout.units[bucket.end - 1].range.end - start <= most => {
                bucket.start = unit
            }
            _ => buckets.push(unit..unit + 1),
        }
    }
    buckets.reverse();
    buckets
}

impl<T: FloatElement> Store<T> for Replicated<T> {
    fn layout(&self) -> &ParameterLayout {
        &self.layout
    }

    fn copies(&self) -> usize {
        self.group.world()
    }

    fn weights(&mut self, unit: usize) -> Result<&[T]> {
        Ok(&self.weights[self.layout.units[unit].range.clone()])
    }

    fn backward_begins(&mut self, last: bool) {
        self.last = last;
    }

    fn weights_and_gradients(&mut self, unit: usize) -> Result<(&[T], &mut [T])> {
        let range = self.layout.units[unit].range.clone();
        let at = self.bucket_of(unit);
        let Bucket { range: whole, gradients, under_way, .. } = &mut self.buckets[at];
        assert!(
            under_way.is_none(),
            "gradients of unit {unit} are being summed: nothing can be added to them"
        );
        let place = range.start - whole.start..range.end - whole.start;
        Ok((&self.weights[range], &mut gradients[place]))
    }

    fn backward_done(&mut self, unit: usize) -> Result<()> {
        if self.last && self.overlap {
            let at = self.bucket_of(unit);
            let bucket = &mut self.buckets[at];
            bucket.open -= 1;
            if bucket.open == 0 {
                bucket.send(&self.group)?;
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        // Without overlap, or with units that nothing was done with.
        for bucket in self.buckets.iter_mut().rev().filter(|bucket| bucket.under_way.is_none()) {
            bucket.send(&self.group)?;
        }
        for bucket in self.buckets.iter_mut().rev() {
            if let Some(sum) = bucket.under_way.take() {
                bucket.gradients = sum.wait()?;
                bucket.open = bucket.units.len();
            }
        }
        Ok(())
    }

    fn owned(&mut self) -> Vec<OwnedRun<'_, T>> {
        let mut rest = &mut *self.weights;
        let mut owned = Vec::new();
        for Bucket { range, gradients, .. } in &mut self.buckets {
            let weights = take_mut(&mut rest, range.len());
            owned.push(OwnedRun { offset: range.start, weights, gradients });
        }
        owned
    }

    fn share(&mut self) -> Result<()> {
        Ok(())
    }

    fn publish(&mut self) -> Result<()> {
        for bucket in &mut self.buckets {
            bucket.gradients.fill(T::zero());
        }
        Ok(())
    }

    fn bytes(&self) -> StoreBytes {
        let gradients = self.buckets.iter().map(|bucket| size_of_val(&*bucket.gradients)).sum();
        StoreBytes { weights: size_of_val(&*self.weights), gradients, ..StoreBytes::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::config::Config;

    #[test]
    fn buckets_are_whole_units_as_many_as_fit_from_the_end_on() {
        let layout = ParameterLayout::whole(&Config {
            vocab: 4,
            context: 4,
            width: 4,
            heads: 1,
            layers: 2,
            experts: 0,
            ..Config::default()
        });
        let of =
            |units: Range<usize>| layout.units[units].iter().map(|unit| unit.range.len()).sum();
        assert_eq!(buckets(&layout, 0), [0..1, 1..2, 2..3, 3..4]);
        assert_eq!(buckets(&layout, of(2..4) - 1), [0..1, 1..2, 2..3, 3..4]);
        assert_eq!(buckets(&layout, of(2..4)), [0..1, 1..2, 2..4]);
        assert_eq!(buckets(&layout, of(1..4)), [0..1, 1..4]);
        assert_eq!(buckets(&layout, layout.len()).len(), 1);
    }
}

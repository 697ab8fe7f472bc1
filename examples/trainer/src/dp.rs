//! Data parallelism: everybody has the whole model, each trains on other rows, and gradients are summed.
//!
//! * **Sharded:** the batch. Weights, gradients and optimizer are on every rank, 16 bytes a parameter with AdamW in f32.
//! * **Collective:** one all-reduce of all gradients a step, cut into buckets.
//! * **Cost:** 2 (n-1)/n numbers a parameter leave each rank (ring); of the time only what the backward pass does not hide.
//!
//! The backward pass ends with the first layer, so gradients become final from the end of the flat buffer to its beginning.
//! Waiting for the last of them would leave links idle during the backward pass and processors idle after it. So the buffer
//! is cut into *buckets*, from its end: as soon as all gradients of a bucket are final, its all-reduce starts, and runs
//! while earlier layers are still at work. Small buckets start early but pay latency each; large ones wait for more layers
//! (Li et al. 2020 found 25 MB to be good for PyTorch).
//!
//! Where a bucket ends does not matter to the numbers: each element is summed over ranks alone.

use crate::group::{Group, Pending};
use crate::layout::Layout;
use crate::math::Number;
use crate::store::{Bytes, Flat, Owned, Store};
use maypole::Result;
use std::ops::Range;

/// Bytes of a bucket unless said otherwise.
pub const BUCKET: usize = 25 << 20;

/// Weights and gradients of a data-parallel rank.
#[derive(Debug)]
pub struct Replicated<T> {
    flat: Flat<T>,
    group: Group,
    buckets: Buckets,
    under_way: Vec<(Range<usize>, Pending<T>)>,
    /// Whether sums start while the backward pass runs.
    overlap: bool,
    last: bool,
}

impl<T: Number> Replicated<T> {
    /// These weights, alike on all ranks of `group`; gradients travel in buckets of `bucket` bytes, during the backward pass
    /// or, without `overlap`, after it.
    pub fn new(flat: Flat<T>, group: Group, bucket: usize, overlap: bool) -> Self {
        let buckets = Buckets::new(flat.layout(), bucket / size_of::<T>());
        Self { flat, group, buckets, under_way: Vec::new(), overlap, last: false }
    }

    fn send(&mut self, bucket: Range<usize>) -> Result<()> {
        let sum = self.group.start_all_reduce(self.flat.gradients[bucket.clone()].to_vec())?;
        self.under_way.push((bucket, sum));
        Ok(())
    }
}

impl<T: Number> Store<T> for Replicated<T> {
    fn layout(&self) -> &Layout {
        self.flat.layout()
    }

    fn copies(&self) -> usize {
        self.group.world()
    }

    fn weights(&mut self, unit: usize) -> Result<&[T]> {
        self.flat.weights(unit)
    }

    fn backward_begins(&mut self, last: bool) {
        self.last = last;
    }

    fn weights_and_gradients(&mut self, unit: usize) -> Result<(&[T], &mut [T])> {
        self.flat.weights_and_gradients(unit)
    }

    fn backward_done(&mut self, unit: usize) -> Result<()> {
        if self.last && self.overlap {
            for bucket in self.buckets.done(unit) {
                self.send(bucket)?;
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        // Without overlap, or for units that nothing was done with.
        for bucket in self.buckets.rest() {
            self.send(bucket)?;
        }
        for (bucket, sum) in std::mem::take(&mut self.under_way) {
            let sum = sum.wait()?;
            self.flat.gradients[bucket].copy_from_slice(&sum);
        }
        Ok(())
    }

    fn owned(&mut self) -> Vec<Owned<'_, T>> {
        self.flat.owned()
    }

    fn share(&mut self) -> Result<()> {
        Ok(())
    }

    fn publish(&mut self) -> Result<()> {
        self.buckets.reset();
        self.flat.publish()
    }

    fn bytes(&self) -> Bytes {
        self.flat.bytes()
    }
}

/// The flat buffer cut from its end, and which cuts may leave.
#[derive(Debug)]
pub(crate) struct Buckets {
    /// From the end of the buffer to its beginning.
    all: Vec<Range<usize>>,
    /// How many of them have left.
    sent: usize,
    units: Vec<Range<usize>>,
    /// Units whose gradients are final.
    done: Vec<bool>,
}

impl Buckets {
    /// Buckets of `len` elements, or one more if they do not come out even.
    pub(crate) fn new(layout: &Layout, len: usize) -> Self {
        let mut all = Vec::new();
        let mut end = layout.len();
        while end > 0 {
            let start = end.saturating_sub(len.max(1));
            all.push(start..end);
            end = start;
        }
        let units: Vec<_> = layout.units.iter().map(|unit| unit.range.clone()).collect();
        Self { all, sent: 0, done: vec![false; units.len()], units }
    }

    /// Unit number `unit` is final: the buckets that are final by that, and were not before.
    pub(crate) fn done(&mut self, unit: usize) -> Vec<Range<usize>> {
        self.done[unit] = true;
        let open = self.done.iter().rposition(|done| !done);
        let from = open.map_or(0, |unit| self.units[unit].end);
        let first = self.sent;
        self.sent += self.all[first..].iter().take_while(|bucket| bucket.start >= from).count();
        self.all[first..self.sent].to_vec()
    }

    /// The buckets that have not left yet.
    pub(crate) fn rest(&mut self) -> Vec<Range<usize>> {
        let first = std::mem::replace(&mut self.sent, self.all.len());
        self.all[first..].to_vec()
    }

    /// A new step: nothing is final, nothing has left.
    pub(crate) fn reset(&mut self) {
        self.sent = 0;
        self.done.fill(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn a_bucket_leaves_with_the_unit_that_completes_it() {
        let layout = Layout::whole(&Config { vocab: 4, context: 4, width: 4, heads: 1, layers: 2, experts: 0 });
        let ends: Vec<usize> = layout.units.iter().map(|unit| unit.range.end).collect();
        for len in [1, 7, 100, 1000, 100_000] {
            let (mut buckets, mut sent) = (Buckets::new(&layout, len), Vec::new());
            for unit in (0..4).rev() {
                sent.extend(buckets.done(unit));
                let first = sent.last().map_or(ends[3], |bucket: &Range<usize>| bucket.start);
                let from = if unit == 0 { 0 } else { ends[unit - 1] };
                assert!(first >= from && first < from + len, "buckets of {len}, unit {unit}");
            }
            assert_eq!(sent.iter().map(|bucket| bucket.len()).sum::<usize>(), layout.len());
            assert!(sent.windows(2).all(|two| two[1].end == two[0].start));
            assert!(buckets.rest().is_empty());
            buckets.reset();
            assert_eq!(buckets.rest(), sent);
        }
    }
}

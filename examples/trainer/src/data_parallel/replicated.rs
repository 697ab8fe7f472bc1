//! Replicated data parallelism: every rank has the whole model and trains on its own rows, and
//! gradients are all-reduced in buckets.
//!
//! * **Sharded:** the batch. Weights, gradients and optimizer are on every rank, 16 bytes a
//!   parameter with AdamW in f32.
//! * **Collective:** one all-reduce of all gradients a step, cut into buckets.
//! * **Cost:** 2 (n-1)/n numbers a parameter leave each rank (ring). Only time that does not overlap
//!   with the backward pass prolongs a step.
//!
//! The backward pass ends with the first layer, so gradients become final from the end of the flat
//! buffer to its beginning. Waiting for the last of them would leave links idle during the backward
//! pass and processors idle after it. So the buffer is cut into *buckets*, from its end: as soon as
//! all gradients of a bucket are final, its all-reduce starts, and runs while earlier layers are
//! still at work. Small buckets start early but pay latency each; large ones wait for more layers
//! (Li et al. 2020 found 25 MB to be good for PyTorch).
//!
//! A unit of the model (the embedding, a block, the head) becomes final as a whole, so a bucket is
//! made of whole units. Each bucket has a buffer of its own, which the all-reduce owns while it is in
//! flight, so nothing is copied. Where the ranks share a host, the buffer is registered, and ranks read
//! one another's gradients in place.
//!
//! The result does not depend on the boundaries of buckets: each element is reduced by itself.

use crate::data_parallel::gathered::arena_bytes;
use crate::model::layout::ParameterLayout;
use crate::model::store::{ParamShard, Store, StoreBytes, StorePass};
use crate::ranks::group::{PendingCollective, RankGroup};
use crate::tensor::math::{FloatElement, take_mut};
use maypole::{Arena, RegisteredBuffer, Result};
use std::ops::Range;

/// The default for the most bytes of a bucket.
pub const BUCKET: usize = 25 << 20;

/// Returns the maximum of bytes of a bucket of a rank that has `gradients` bytes in all: `asked`, if it
/// is set. The default is [`BUCKET`], but at most a quarter of the gradients of the rank, because the
/// all-reduce of a single bucket would not overlap with the backward pass.
pub fn bucket(asked: Option<usize>, gradients: usize) -> usize {
    asked.unwrap_or(BUCKET.min(gradients / 4))
}

/// Weights and gradients of a data-parallel rank.
#[derive(Debug)]
pub struct Replicated<T, G = T> {
    layout: ParameterLayout,
    weights: Vec<T>,
    /// In the order of the layout.
    buckets: Vec<Bucket<G>>,
    group: RankGroup,
    /// True if all-reduces start during the backward pass.
    overlap: bool,
    last: bool,
}

/// Gradients of consecutive units.
#[derive(Debug)]
struct Bucket<T> {
    units: Range<usize>,
    /// The range of the units in the flat buffer.
    range: Range<usize>,
    /// Empty while the all-reduce is in flight.
    gradients: RegisteredBuffer<T>,
    under_way: Option<PendingCollective<T, RegisteredBuffer<T>>>,
    /// The number of units whose gradients are not final.
    open: usize,
}

impl<T: FloatElement, G: FloatElement> Replicated<T, G> {
    /// A store of `weights`, which are equal on all ranks of `group`. A bucket is a unit, or
    /// several units of at most [`bucket`] bytes together. With `overlap` its all-reduce runs during
    /// the backward pass, else after it. All ranks call it.
    ///
    /// # Errors
    /// If the ranks cannot make memory that they share.
    ///
    /// # Panics
    /// If the number of weights is not that of the layout.
    pub fn new(
        layout: ParameterLayout,
        weights: Vec<T>,
        group: RankGroup,
        asked: Option<usize>,
        overlap: bool,
    ) -> Result<Self> {
        assert_eq!(weights.len(), layout.len(), "the number of weights is that of the layout");
        let most = bucket(asked, layout.len() * size_of::<G>());
        let units = buckets(&layout, most / size_of::<G>());
        let arena = group.arena(arena_bytes::<G>(layout.len(), units.len()))?;
        let buckets = units.into_iter().map(|units| Bucket::new(&layout, units, &arena)).collect();
        Ok(Self { buckets, layout, weights, group, overlap, last: false })
    }

    fn bucket_of(&self, unit: usize) -> usize {
        self.buckets.partition_point(|bucket| bucket.units.end <= unit)
    }
}

impl<T: FloatElement> Bucket<T> {
    fn new(layout: &ParameterLayout, units: Range<usize>, arena: &Arena) -> Self {
        let range = layout.units[units.start].range.start..layout.units[units.end - 1].range.end;
        let gradients = arena.alloc(range.len());
        Self { open: units.len(), units, range, gradients, under_way: None }
    }

    fn send(&mut self, group: &RankGroup) -> Result<()> {
        let gradients = std::mem::take(&mut self.gradients);
        self.under_way = Some(group.start_all_reduce(gradients)?);
        Ok(())
    }
}

/// Returns the units of each bucket. From the last unit on, a bucket takes units as long as it has
/// at most `most` elements; it has at least one unit.
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

impl<T: FloatElement, G: FloatElement> Store<T, G> for Replicated<T, G> {
    fn layout(&self) -> &ParameterLayout {
        &self.layout
    }

    fn copies(&self) -> usize {
        self.group.world()
    }

    fn weights(&mut self, unit: usize) -> Result<&[T]> {
        Ok(&self.weights[self.layout.units[unit].range.clone()])
    }

    fn pass_begins(&mut self, pass: StorePass) {
        self.last = pass.is_last();
    }

    fn weights_and_gradients(&mut self, unit: usize) -> Result<(&[T], &mut [G])> {
        let range = self.layout.units[unit].range.clone();
        let at = self.bucket_of(unit);
        let Bucket { range: whole, gradients, under_way, .. } = &mut self.buckets[at];
        assert!(
            under_way.is_none(),
            "gradients of unit {unit} are being summed, and cannot be added to"
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

    fn finish_grad_sync(&mut self) -> Result<()> {
        // Buckets that were not sent: without `overlap`, or with a unit that did not run backward.
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

    fn local_shards(&mut self) -> Vec<ParamShard<'_, T, G>> {
        let mut rest = &mut *self.weights;
        let mut owned = Vec::new();
        for Bucket { range, gradients, .. } in &mut self.buckets {
            let weights = take_mut(&mut rest, range.len());
            owned.push(ParamShard { offset: range.start, weights, gradients });
        }
        owned
    }

    fn all_gather_params(&mut self) -> Result<()> {
        Ok(())
    }

    fn publish(&mut self) -> Result<()> {
        for bucket in &mut self.buckets {
            bucket.gradients.fill(G::zero());
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
    use crate::model::layout::ModelShare;
    use crate::ranks::shard::Shard;

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

    /// The default must leave several buckets on a rank that has a part of the model: with one, no
    /// all-reduce would overlap with the backward pass.
    #[test]
    fn a_part_of_the_model_has_as_many_buckets_as_the_whole() {
        let config = Config::default();
        let count = |layout: &ParameterLayout, element| {
            buckets(layout, bucket(None, layout.len() * element) / element).len()
        };
        for element in [2, 4] {
            let whole = count(&ParameterLayout::whole(&config), element);
            assert!(whole >= 4);
            for (tp, pp) in [1, 2, 4].iter().flat_map(|tp| [1, 2, 4].map(|pp| (*tp, pp))) {
                let share = ModelShare {
                    tensor: Shard { index: 0, of: tp },
                    layers: Shard { index: 0, of: pp }.range(config.layers).collect(),
                    head: pp == 1,
                    ..ModelShare::whole(&config)
                };
                let layout = ParameterLayout::new(&config, share);
                let buckets = count(&layout, element);
                let least = whole.min(layout.units.len()) - usize::from(pp > 1);
                assert!(buckets >= least, "tp={tp},pp={pp}: {buckets} buckets of {least}");
            }
        }
    }
}

//! The part of a flat buffer that each of n ranks owns: rank r owns the r-th part of *every unit*.
//!
//! If the whole buffer were cut into n parts, rank 0 would own the first layers. Since each unit is
//! cut, one all-gather restores a unit, one reduce-scatter reduces its gradients, and all ranks send
//! equally much. Shards of a unit differ by at most one element, so the buffer needs no padding.

use crate::model::layout::ParameterLayout;
use crate::model::store::ParamShard;
use crate::ranks::shard::Shard;
use std::ops::Range;

/// One rank's part of each unit.
#[derive(Clone, Debug)]
pub struct Shards {
    /// The range of each unit in the flat buffer.
    pub units: Vec<Range<usize>>,
    /// The range of this rank's part of each unit in the flat buffer.
    pub mine: Vec<Range<usize>>,
}

impl Shards {
    /// Part `slice` of each unit of `layout`.
    pub fn new(layout: &ParameterLayout, slice: Shard) -> Self {
        let units: Vec<_> = layout.units.iter().map(|unit| unit.range.clone()).collect();
        let mine = units.iter().map(|unit| {
            let part = slice.range(unit.len());
            unit.start + part.start..unit.start + part.end
        });
        Self { mine: mine.collect(), units }
    }

    /// Returns the number of this rank's elements.
    pub fn len(&self) -> usize {
        self.mine.iter().map(ExactSizeIterator::len).sum()
    }

    /// True if this rank has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the range of this rank's part of unit number `unit` within the unit.
    pub fn within(&self, unit: usize) -> Range<usize> {
        let whole = &self.units[unit];
        let mine = &self.mine[unit];
        mine.start - whole.start..mine.end - whole.start
    }

    /// Returns the range of this rank's part of unit number `unit` in the concatenation of its
    /// parts of all units.
    pub fn packed(&self, unit: usize) -> Range<usize> {
        let before = self.mine[..unit].iter().map(ExactSizeIterator::len).sum();
        before..before + self.mine[unit].len()
    }

    /// Returns this rank's elements of the flat buffer `flat`, concatenated.
    pub fn pack<T: Copy>(&self, flat: &[T]) -> Vec<T> {
        self.mine.iter().flat_map(|mine| flat[mine.clone()].iter().copied()).collect()
    }

    /// Returns the parameters that this rank updates. `weights` and `gradients` are each the whole
    /// flat buffer, or the concatenation of this rank's elements.
    pub fn local<'a, T, G>(
        &self,
        weights: &'a mut [T],
        gradients: &'a mut [G],
    ) -> Vec<ParamShard<'a, T, G>> {
        let weights = self.parts(weights);
        let gradients = self.parts(gradients);
        let runs = weights.into_iter().zip(gradients).zip(&self.mine);
        runs.map(|((weights, gradients), mine)| ParamShard {
            offset: mine.start,
            weights,
            gradients,
        })
        .collect()
    }

    fn parts<'a, T>(&self, buffer: &'a mut [T]) -> Vec<&'a mut [T]> {
        let whole = buffer.len() != self.len();
        let mut rest = buffer;
        let mut at = 0;
        let mut parts = Vec::new();
        for (unit, mine) in self.mine.iter().enumerate() {
            let range = if whole { mine.clone() } else { self.packed(unit) };
            let (part, after) = rest.split_at_mut(range.start - at).1.split_at_mut(range.len());
            parts.push(part);
            rest = after;
            at = range.end;
        }
        parts
    }
}

//! Gradients that are summed over another axis before data parallelism sums them.
//!
//! What it does: wraps another [`Store`]. When this rank has added all of a unit's gradients, some
//! of them are still terms: ranks of another axis have the other terms. This store sums those over
//! that axis, and then passes the unit on to the inner store. It does so after the last backward
//! pass of a step, or after every one if the inner store takes gradients away after every one.
//!
//! ```text
//! which                                      over   why
//! norms, biases after a sum, positions       tp     under sequence parallelism each rank saw its tokens alone
//! everything but experts                     ep     the expert axis divides rows of the batch too
//! ```
//!
//! What is sharded: nothing more. Which collective runs where: for each unit and line above one
//! all-reduce, a step. Cost: the first line is a few vectors; the second is the data parallelism of
//! the expert axis.
//!
//! So ranks along `dp` and `cp`, which have the very same parameters, are left to the inner store,
//! whichever it is.

use crate::data_parallel::sharding::Sharding;
use crate::model::layout::{LayoutEntry, ParameterLayout};
use crate::model::store::{OwnedRun, Store, StoreBytes};
use crate::ranks::group::RankGroup;
use crate::tensor::math::{FloatElement, take};
use maypole::Result;

/// Tells of which entries of a layout the gradients are terms of a sum over a group.
pub type SummedEntries = fn(&LayoutEntry) -> bool;

/// The parameters that every rank of the tensor axis has whole and applies to its own tokens alone.
/// The router sees all tokens, and an expert's last bias all rows of the expert.
pub fn applied_to_own_tokens(entry: &LayoutEntry) -> bool {
    let whole = entry.cut.is_none() && entry.expert.is_none();
    whole && !entry.name.ends_with("router.weight")
}

/// The parameters of no expert.
pub fn dense(entry: &LayoutEntry) -> bool {
    entry.expert.is_none()
}

/// A store some of whose gradients are summed over other groups first.
pub struct PartialSumStore<T> {
    inner: Box<dyn Store<T>>,
    sums: Vec<(RankGroup, SummedEntries)>,
    /// Whether the inner store takes gradients away on each backward pass rather than the last.
    each: bool,
    last: bool,
}

impl<T> PartialSumStore<T> {
    /// Sums over each of `sums` before `inner`, which is of the form `sharding`, sees the
    /// gradients.
    pub fn new(
        inner: Box<dyn Store<T>>,
        sums: Vec<(RankGroup, SummedEntries)>,
        sharding: Sharding,
    ) -> Self {
        let each = matches!(sharding, Sharding::Zero2 | Sharding::Fsdp { .. });
        Self { inner, sums, each, last: false }
    }
}

impl<T: FloatElement> Store<T> for PartialSumStore<T> {
    fn layout(&self) -> &ParameterLayout {
        self.inner.layout()
    }

    fn copies(&self) -> usize {
        self.inner.copies()
    }

    fn diverges(&self) -> bool {
        self.inner.diverges()
    }

    fn weights(&mut self, unit: usize) -> Result<&[T]> {
        self.inner.weights(unit)
    }

    fn forward_done(&mut self, unit: usize) -> Result<()> {
        self.inner.forward_done(unit)
    }

    fn backward_begins(&mut self, last: bool) {
        self.last = last;
        self.inner.backward_begins(last);
    }

    fn weights_and_gradients(&mut self, unit: usize) -> Result<(&[T], &mut [T])> {
        self.inner.weights_and_gradients(unit)
    }

    fn gradients(&mut self, unit: usize) -> Result<&mut [T]> {
        self.inner.gradients(unit)
    }

    fn backward_done(&mut self, unit: usize) -> Result<()> {
        if self.last || self.each {
            for (group, terms) in self.sums.iter().filter(|(group, _)| group.world() > 1) {
                sum(&mut *self.inner, unit, group, *terms)?;
            }
        }
        self.inner.backward_done(unit)
    }

    fn finish(&mut self) -> Result<()> {
        self.inner.finish()
    }

    fn owned(&mut self) -> Vec<OwnedRun<'_, T>> {
        self.inner.owned()
    }

    fn share(&mut self) -> Result<()> {
        self.inner.share()
    }

    fn publish(&mut self) -> Result<()> {
        self.inner.publish()
    }

    fn bytes(&self) -> StoreBytes {
        self.inner.bytes()
    }

    fn all_weights(&mut self) -> Result<Vec<T>> {
        self.inner.all_weights()
    }
}

/// One sum for all such entries of a unit.
fn sum<T: FloatElement>(
    store: &mut dyn Store<T>,
    unit: usize,
    group: &RankGroup,
    terms: SummedEntries,
) -> Result<()> {
    let layout = store.layout();
    let of = layout.units[unit].clone();
    let entries = layout.entries[of.entries].iter().filter(|entry| terms(entry));
    let places =
        entries.map(|entry| entry.offset - of.range.start..entry.range().end - of.range.start);
    let places: Vec<_> = places.collect();
    let gradients = store.gradients(unit)?;
    let mut together: Vec<T> =
        places.iter().flat_map(|place| &gradients[place.clone()]).copied().collect();
    if together.is_empty() {
        return Ok(());
    }
    group.all_reduce(&mut together)?;
    let mut rest = &*together;
    for place in places {
        let len = place.len();
        gradients[place].copy_from_slice(take(&mut rest, len));
    }
    Ok(())
}

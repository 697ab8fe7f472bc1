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
use crate::model::layout::LayoutEntry;
use crate::model::store::{Store, forward_store};
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
    /// True if the inner store takes gradients away on each backward pass rather than the last.
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
    forward_store!(T:
        layout, copies, diverges, weights, forward_done, weights_and_gradients, gradients,
        finish, owned, share, publish, bytes, all_weights,
    );

    fn backward_begins(&mut self, last: bool) {
        self.last = last;
        self.inner.backward_begins(last);
    }

    fn backward_done(&mut self, unit: usize) -> Result<()> {
        if self.last || self.each {
            for (group, terms) in self.sums.iter().filter(|(group, _)| group.world() > 1) {
                sum(&mut *self.inner, unit, group, *terms)?;
            }
        }
        self.inner.backward_done(unit)
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
    let mut together = Vec::with_capacity(places.iter().map(ExactSizeIterator::len).sum());
    places.iter().for_each(|place| together.extend_from_slice(&gradients[place.clone()]));
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

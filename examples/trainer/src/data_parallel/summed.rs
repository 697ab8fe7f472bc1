//! Gradients that are all-reduced over another axis before data parallelism reduces them.
//!
//! What it does: wraps another [`Store`]. After a unit's backward pass some of its gradients are
//! partial sums, and ranks of another axis have the other terms. This store all-reduces these gradients
//! over that axis, and then forwards the unit to the inner store. It does so after the last backward
//! pass of a step, or after every backward pass if the inner store sends gradients after every one.
//!
//! ```text
//! which                                    over   why
//! norms, biases after a sum, positions     tp     sequence parallelism: a rank saw only its tokens
//! everything but experts                   ep     the expert axis divides rows of the batch too
//! ```
//!
//! These are the entries whose gradients are `Partial` in the table of
//! [`placement`](LayoutEntry::placement).
//!
//! What is sharded: nothing more. Which collective runs where: each time one all-reduce for each
//! unit and each line above. Cost: the first line is a few vectors; the second is the data
//! parallelism of the expert axis.
//!
//! The inner store reduces over `dp` and `cp`, along which ranks have the same parameters.

use crate::data_parallel::sharding::Sharding;
use crate::model::layout::LayoutEntry;
use crate::model::store::{Store, StorePass, forward_store};
use crate::ranks::group::RankGroup;
use crate::tensor::math::{FloatElement, take};
use maypole::Result;

/// True for an entry of a layout whose gradients are terms of a sum over a group.
pub type SummedEntries = fn(&LayoutEntry) -> bool;

/// A store that all-reduces some gradients over other groups before the inner store reduces them.
pub struct SummedStore<T, G = T> {
    inner: Box<dyn Store<T, G>>,
    sums: Vec<(RankGroup, SummedEntries)>,
    /// True if the inner store sends gradients in every backward pass, not only in the last one.
    each: bool,
    last: bool,
}

impl<T, G> SummedStore<T, G> {
    /// A store around `inner`, which is of the form `sharding`. For each of `sums`, gradients of
    /// its entries are all-reduced over its group before `inner` receives them.
    pub fn new(
        inner: Box<dyn Store<T, G>>,
        sums: Vec<(RankGroup, SummedEntries)>,
        sharding: Sharding,
    ) -> Self {
        let each = matches!(sharding, Sharding::Zero2 | Sharding::Fsdp { .. });
        Self { inner, sums, each, last: false }
    }
}

impl<T: FloatElement, G: FloatElement> Store<T, G> for SummedStore<T, G> {
    forward_store!(T, G:
        layout, copies, diverges, weights, forward_done, weights_and_gradients, gradients,
        finish_grad_sync, local_shards, all_gather_params, publish, bytes, all_weights,
    );

    fn pass_begins(&mut self, pass: StorePass) {
        self.last = pass.is_last();
        self.inner.pass_begins(pass);
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

/// All-reduces the gradients of all such entries of a unit over `group`, in one call.
fn sum<T: FloatElement, G: FloatElement>(
    store: &mut dyn Store<T, G>,
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

//! Overlap: the number of passes of units that run while a collective of the store is in flight.
//!
//! What it does: [`ObservedStore`] wraps a store. At the end of the forward or the backward pass of a
//! unit, it checks whether this rank has started a collective and not waited for it yet. That depends
//! on the order of calls alone and not on time, so it is the same in every run. A store that starts
//! its reductions after the backward pass, or waits immediately for them, has no such pass.
//!
//! ```text
//! replicated   backward, last micro-batch: all units before those of the last bucket
//! ZeRO-1       backward, last micro-batch: all units but the last one
//! ZeRO-2       backward: all units but the last one of the first micro-batch; forward: all units of
//!              later micro-batches, since the sum of the first unit is under way
//! FSDP         as ZeRO-2; with prefetch also forward all units but the last one of the first
//!              micro-batch, and backward the last unit
//! ```
//!
//! What is sharded, which collective runs where: as in the store. Cost: an addition a unit.

use crate::averaging::DataForm;
use maypole::Result;
use maypole_trainer::data_parallel::replicated::{bucket, buckets};
use maypole_trainer::data_parallel::sharding::Sharding;
use maypole_trainer::model::layout::ParameterLayout;
use maypole_trainer::model::store::{FlatStore, Store, forward_store};
use maypole_trainer::ranks::timeline::Timeline;
use maypole_trainer::tensor::math::FloatElement;
use std::cell::Cell;
use std::fmt;
use std::rc::Rc;

/// Passes of units.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct OverlappedPasses {
    /// Those that ran while a collective was in flight.
    pub overlapped: u64,
    /// All of them.
    pub all: u64,
}

impl fmt::Display for OverlappedPasses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.overlapped, self.all)
    }
}

impl OverlappedPasses {
    /// The passes of one step by theory: a rank of `ranks` with this `layout`, whose numbers take
    /// `element` bytes, in one stage.
    pub fn theory(
        layout: &ParameterLayout,
        (form, ranks): (impl Into<DataForm>, usize),
        micros: usize,
        element: usize,
    ) -> Self {
        let units = layout.units.len() as u64;
        let later = 2 * units * (micros as u64 - 1);
        let form = form.into();
        let overlapped = match form.sharding() {
            _ if ranks == 1 || form.diverges() => 0,
            _ if form.is_late() => 2 * units * micros as u64,
            _ if form == (DataForm::Stale { late: 0 }) => 0,
            Sharding::Replicated { overlap: false, .. } => 0,
            Sharding::Replicated { bucket: asked, overlap: true } => {
                let most = bucket(asked, layout.len() * element);
                buckets(layout, most / element).last().map_or(0, |last| last.start as u64)
            }
            Sharding::Zero1 => units - 1,
            Sharding::Zero2 | Sharding::Fsdp { prefetch: false } => units - 1 + later,
            Sharding::Fsdp { prefetch: true } => 2 * units - 1 + later,
        };
        Self { overlapped, all: 2 * units * micros as u64 }
    }
}

/// The counter of an [`ObservedStore`].
pub type PassCounter = Rc<Cell<OverlappedPasses>>;

/// Puts the store that `by` makes around `store`.
pub(crate) fn wrap<T: FloatElement>(
    store: &mut Box<dyn Store<T>>,
    by: impl FnOnce(Box<dyn Store<T>>) -> Box<dyn Store<T>>,
) {
    let layout = store.layout();
    let nothing = ParameterLayout { entries: Vec::new(), units: Vec::new(), ..layout.clone() };
    let nothing = Box::new(FlatStore::new(nothing, Vec::new()));
    *store = by(std::mem::replace(store, nothing));
}

/// A store that counts passes.
pub struct ObservedStore<T> {
    inner: Box<dyn Store<T>>,
    timeline: Timeline,
    passes: PassCounter,
}

impl<T: FloatElement> ObservedStore<T> {
    /// Wraps `store`, whose collectives are recorded in `timeline`. Returns the counter of passes.
    pub fn wrap(store: &mut Box<dyn Store<T>>, timeline: &Timeline) -> PassCounter
    where
        T: 'static,
    {
        let passes = Rc::default();
        let (timeline, counter) = (timeline.clone(), Rc::clone(&passes));
        wrap(store, |inner| Box::new(Self { inner, timeline, passes: counter }));
        passes
    }

    fn count(&self) {
        let OverlappedPasses { overlapped, all } = self.passes.get();
        let now = u64::from(self.timeline.under_way() > 0);
        self.passes.set(OverlappedPasses { overlapped: overlapped + now, all: all + 1 });
    }
}

impl<T: FloatElement> Store<T> for ObservedStore<T> {
    forward_store!(T:
        layout, copies, diverges, weights, pass_begins, weights_and_gradients, gradients,
        finish_grad_sync, local_shards, all_gather_params, publish, bytes, all_weights,
    );

    fn forward_done(&mut self, unit: usize) -> Result<()> {
        self.count();
        self.inner.forward_done(unit)
    }

    fn backward_done(&mut self, unit: usize) -> Result<()> {
        self.count();
        self.inner.backward_done(unit)
    }
}

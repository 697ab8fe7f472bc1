//! Stale sums: a rank continues while the all-reduce of gradients is in flight, and updates its weights by
//! the sum some steps later.
//!
//! * **Sharded:** the batch, as in data parallelism. All ranks have the same weights at all times.
//! * **Collective:** one all-reduce of all gradients a step, which may take as long as `late`
//!   steps.
//! * **Cost:** 2 (n-1)/n numbers a parameter leave each rank a step, as in data parallelism. A rank
//!   holds `late` more buffers of all gradients.
//!
//! ```text
//! late = 1     step 0      step 1      step 2
//! compute      g0          g1          g2
//! sum              g0 ........ g1 ........ g2 ...
//! update       nothing     by g0       by g1
//! ```
//!
//! The staleness of a gradient is the number of updates between the weights that it was computed
//! from and those that it updates. It is `late` for all ranks and steps, which is the bound that a
//! stale synchronous parameter server keeps (Ho et al. 2013). With 0 this is data parallelism, to
//! the last bit. The sums of the last `late` steps of a run are not used.

use maypole::Result;
use maypole_trainer::model::store::{FlatStore, Store, forward_store};
use maypole_trainer::ranks::group::{PendingCollective, RankGroup};
use maypole_trainer::ranks::memory::MemoryKind;
use maypole_trainer::tensor::math::FloatElement;
use std::collections::VecDeque;

/// A store of weights that are updated by gradients of earlier steps.
#[derive(Debug)]
pub struct StaleSum<T, G = T> {
    inner: FlatStore<T, G>,
    group: RankGroup,
    late: usize,
    under_way: VecDeque<PendingCollective<G>>,
}

impl<T: FloatElement, G: FloatElement> StaleSum<T, G> {
    /// A store of the weights of `flat`, which are equal on all ranks of `group`. The sum of a
    /// step's gradients updates them `late` steps later.
    pub fn new(flat: FlatStore<T, G>, group: RankGroup, late: usize) -> Self {
        Self { inner: flat, group, late, under_way: VecDeque::with_capacity(late + 1) }
    }
}

impl<T: FloatElement, G: FloatElement> Store<T, G> for StaleSum<T, G> {
    forward_store!(T, G:
        layout, weights, weights_and_gradients, local_shards, all_gather_params, publish, bytes,
    );

    fn copies(&self) -> usize {
        self.group.world()
    }

    fn finish_grad_sync(&mut self) -> Result<()> {
        let own = std::mem::take(&mut self.inner.gradients);
        let length = own.len();
        self.under_way.push_back(self.group.start_all_reduce(own)?);
        let due = if self.under_way.len() > self.late { self.under_way.pop_front() } else { None };
        self.inner.gradients = match due {
            Some(sum) => sum.wait()?,
            None => MemoryKind::Units.hold(|| vec![G::zero(); length]),
        };
        Ok(())
    }
}

//! Mistakes of data parallelism: gradients are averaged although the weights of tokens already
//! divide by the whole batch, the router's are all-reduced once too often, those of micro-batches are
//! reduced again or lost, the buffers of all-gathered units are not freed.

use maypole::Result;
use maypole_trainer::model::layout::LayoutEntry;
use maypole_trainer::model::store::{Store, StorePass, forward_store};
use maypole_trainer::tensor::math::{FloatElement, number, scale};

/// A store whose gradients are divided by the number of ranks that have the same parameters.
pub(super) struct Averaged<T> {
    pub(super) inner: Box<dyn Store<T>>,
    pub(super) ranks: usize,
}

impl<T: FloatElement> Store<T> for Averaged<T> {
    forward_store!(T:
        layout, copies, diverges, weights, forward_done, pass_begins, weights_and_gradients,
        gradients, backward_done, local_shards, all_gather_params, publish, bytes, all_weights,
    );

    fn finish_grad_sync(&mut self) -> Result<()> {
        self.inner.finish_grad_sync()?;
        let share = number(1.0 / self.ranks as f64);
        self.inner.local_shards().into_iter().for_each(|run| scale(run.gradients, share));
        Ok(())
    }
}

/// A store that sums gradients after every micro-batch instead of after the last one, or the reverse.
pub(super) struct MicroSums<T> {
    pub(super) inner: Box<dyn Store<T>>,
    /// True if the sums of the last micro-batch replace those of earlier ones; false if gradients are
    /// summed over ranks after every micro-batch, earlier ones again and again.
    pub(super) replaced: bool,
    /// The last unit of a backward pass that is not the last one of the step.
    pub(super) ends: Option<usize>,
}

impl<T: FloatElement> Store<T> for MicroSums<T> {
    forward_store!(T:
        layout, copies, diverges, weights, forward_done, weights_and_gradients, gradients,
        finish_grad_sync, local_shards, all_gather_params, publish, bytes, all_weights,
    );

    fn pass_begins(&mut self, mut pass: StorePass) {
        if let StorePass::Backward { units, last } = &mut pass {
            self.ends = (!*last).then_some(units.start);
            *last |= !self.replaced;
        }
        self.inner.pass_begins(pass);
    }

    fn backward_done(&mut self, unit: usize) -> Result<()> {
        self.inner.backward_done(unit)?;
        if self.ends == Some(unit) {
            self.inner.finish_grad_sync()?;
            let replaced = self.replaced;
            let owned = self.inner.local_shards().into_iter().filter(|_| replaced);
            owned.for_each(|run| run.gradients.fill(T::zero()));
        }
        Ok(())
    }
}

/// Every parameter that the tensor axis does not divide and that is no expert's: the router too.
pub(super) fn whole_on_each_rank(entry: &LayoutEntry) -> bool {
    entry.cut.is_none() && entry.expert.is_none()
}

/// A store that keeps a copy of each unit of a forward pass until the end of the step.
pub(super) struct KeptUnits<T> {
    pub(super) inner: Box<dyn Store<T>>,
    pub(super) kept: Vec<Vec<T>>,
}

impl<T: FloatElement> Store<T> for KeptUnits<T> {
    forward_store!(T:
        layout, copies, diverges, forward_done, pass_begins, weights_and_gradients, gradients,
        backward_done, finish_grad_sync, local_shards, all_gather_params, bytes, all_weights,
    );

    fn weights(&mut self, unit: usize) -> Result<&[T]> {
        let weights = self.inner.weights(unit)?;
        self.kept.push(weights.to_vec());
        Ok(weights)
    }

    fn publish(&mut self) -> Result<()> {
        self.kept.clear();
        self.inner.publish()
    }
}

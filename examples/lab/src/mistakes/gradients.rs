//! Mistakes of data parallelism: gradients are averaged although the weights of tokens already
//! divide by the whole batch, the router's are summed once too often, gathered units stay.

use maypole::Result;
use maypole_trainer::model::layout::LayoutEntry;
use maypole_trainer::model::store::{Store, forward_store};
use maypole_trainer::tensor::math::{FloatElement, number, scale};

/// A store whose gradients are divided by the number of ranks that have the same parameters.
pub(super) struct Averaged<T> {
    pub(super) inner: Box<dyn Store<T>>,
    pub(super) ranks: usize,
}

impl<T: FloatElement> Store<T> for Averaged<T> {
    forward_store!(T:
        layout, copies, diverges, weights, forward_done, pass_begins, weights_and_gradients,
        gradients, backward_done, owned, share, publish, bytes, all_weights,
    );

    fn finish(&mut self) -> Result<()> {
        self.inner.finish()?;
        let share = number(1.0 / self.ranks as f64);
        self.inner.owned().into_iter().for_each(|run| scale(run.gradients, share));
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
        backward_done, finish, owned, share, bytes, all_weights,
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

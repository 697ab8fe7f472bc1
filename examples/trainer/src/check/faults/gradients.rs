//! A mistake of data parallelism: gradients are averaged although the weights of tokens already
//! divide by the whole batch.

use crate::model::layout::ParameterLayout;
use crate::model::store::{OwnedRun, Store, StoreBytes};
use crate::tensor::math::{FloatElement, number, scale};
use maypole::Result;

/// A store whose gradients are divided by the number of ranks that have the same parameters.
pub(super) struct Averaged<T> {
    pub(super) inner: Box<dyn Store<T>>,
    pub(super) ranks: usize,
}

impl<T: FloatElement> Store<T> for Averaged<T> {
    fn finish(&mut self) -> Result<()> {
        self.inner.finish()?;
        let share = number(1.0 / self.ranks as f64);
        self.inner.owned().into_iter().for_each(|run| scale(run.gradients, share));
        Ok(())
    }

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
        self.inner.backward_begins(last);
    }

    fn weights_and_gradients(&mut self, unit: usize) -> Result<(&[T], &mut [T])> {
        self.inner.weights_and_gradients(unit)
    }

    fn gradients(&mut self, unit: usize) -> Result<&mut [T]> {
        self.inner.gradients(unit)
    }

    fn backward_done(&mut self, unit: usize) -> Result<()> {
        self.inner.backward_done(unit)
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

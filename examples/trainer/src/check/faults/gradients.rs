//! A mistake of data parallelism: gradients are averaged although the weights of tokens already
//! divide by the whole batch.

use crate::model::store::{Store, forward_store};
use crate::tensor::math::{FloatElement, number, scale};
use maypole::Result;

/// A store whose gradients are divided by the number of ranks that have the same parameters.
pub(super) struct Averaged<T> {
    pub(super) inner: Box<dyn Store<T>>,
    pub(super) ranks: usize,
}

impl<T: FloatElement> Store<T> for Averaged<T> {
    forward_store!(T:
        layout, copies, diverges, weights, forward_done, backward_begins, weights_and_gradients,
        gradients, backward_done, owned, share, publish, bytes, all_weights,
    );

    fn finish(&mut self) -> Result<()> {
        self.inner.finish()?;
        let share = number(1.0 / self.ranks as f64);
        self.inner.owned().into_iter().for_each(|run| scale(run.gradients, share));
        Ok(())
    }
}

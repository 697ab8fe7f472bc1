//! The weights and gradients of a rank: the model acquires them unit by unit, and a step updates
//! them.
//!
//! A model of one process has all of them, in two flat buffers ([`FlatStore`]). Every form of data
//! parallelism is another [`Store`]: it may gather a unit's weights when the model needs them, free
//! them when the pass of the unit has ended, and send a unit's gradients when they are final. The code
//! of the model is the same for every store. Weights and gradients may be numbers of two kinds: of 16
//! and of 32 bits, in [mixed precision](crate::model::mixed).

use crate::model::layout::ParameterLayout;
use crate::tensor::math::FloatElement;
use maypole::Result;
use std::ops::Range;

/// A run of consecutive parameters that this rank updates.
#[derive(Debug)]
pub struct ParamShard<'a, T, G = T> {
    /// Its first element in the flat buffer of the rank's [`ParameterLayout`].
    pub offset: usize,
    /// The weights to update.
    pub weights: &'a mut [T],
    /// The sum of the gradients of all ranks.
    pub gradients: &'a mut [G],
}

/// Bytes that a rank holds from step to step.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct StoreBytes {
    /// Bytes of the weights.
    pub weights: usize,
    /// Bytes of the gradients.
    pub gradients: usize,
    /// Bytes of the 32-bit masters in mixed precision, or of the state of an outer optimizer; zero
    /// without either.
    pub masters: usize,
}

/// A pass over consecutive units, which acquires one unit of the store after the other.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum StorePass {
    /// A forward pass, from the first unit to the last.
    Forward {
        /// The units of the pass.
        units: Range<usize>,
    },
    /// A backward pass, from the last unit to the first.
    Backward {
        /// The units of the pass.
        units: Range<usize>,
        /// True for the last backward pass of a step over these units: once a unit is done, its
        /// gradients are final.
        last: bool,
    },
}

impl StorePass {
    /// Returns the unit of the pass after `unit`; `None` if `unit` ends the pass.
    pub fn after(&self, unit: usize) -> Option<usize> {
        let (units, next) = match self {
            Self::Forward { units } => (units, unit.checked_add(1)),
            Self::Backward { units, .. } => (units, unit.checked_sub(1)),
        };
        next.filter(|next| units.contains(next))
    }

    /// True for the last backward pass of a step over its units.
    pub fn is_last(&self) -> bool {
        matches!(self, Self::Backward { last: true, .. })
    }
}

/// Weights and gradients of one rank. A step runs each micro-batch forward and backward, then calls
/// [`finish_grad_sync`](Self::finish_grad_sync), updates the
/// [`local_shards`](Self::local_shards), and calls [`publish`](Self::publish).
pub trait Store<T: FloatElement, G: FloatElement = T> {
    /// Returns the table of the parameters.
    fn layout(&self) -> &ParameterLayout;

    /// Returns the number of ranks that update the same parameters as this rank, this rank
    /// included.
    fn copies(&self) -> usize {
        1
    }

    /// True if the weights of ranks differ between averages, as in local SGD. Each rank then clips
    /// by the norm of its own gradient.
    fn diverges(&self) -> bool {
        false
    }

    /// Returns all weights of unit number `unit`, for its forward pass.
    ///
    /// # Errors
    /// As the collective that may gather them.
    fn weights(&mut self, unit: usize) -> Result<&[T]>;

    /// Called when the forward pass of `unit` no longer needs its weights.
    ///
    /// # Errors
    /// As the collectives in it.
    fn forward_done(&mut self, unit: usize) -> Result<()> {
        let _ = unit;
        Ok(())
    }

    /// Called before a pass.
    fn pass_begins(&mut self, pass: StorePass) {
        let _ = pass;
    }

    /// Returns all weights of unit number `unit`, and the buffer to which the backward pass adds
    /// its gradients.
    ///
    /// # Errors
    /// As the collective that may gather the weights.
    fn weights_and_gradients(&mut self, unit: usize) -> Result<(&[T], &mut [G])>;

    /// Returns the gradients of `unit`. It is called after the unit's backward pass and before
    /// [`backward_done`](Self::backward_done).
    ///
    /// # Errors
    /// As the collectives in it.
    fn gradients(&mut self, unit: usize) -> Result<&mut [G]> {
        Ok(self.weights_and_gradients(unit)?.1)
    }

    /// Called when the backward pass of `unit` is done, for this micro-batch.
    ///
    /// # Errors
    /// As the collectives in it.
    fn backward_done(&mut self, unit: usize) -> Result<()> {
        let _ = unit;
        Ok(())
    }

    /// Called when all backward passes of the step are done. Returns once the gradients that this
    /// rank owns are sums over all ranks.
    ///
    /// # Errors
    /// As the collectives in it.
    fn finish_grad_sync(&mut self) -> Result<()> {
        Ok(())
    }

    /// Returns the parameters that this rank updates. Either all ranks of a data-parallel group
    /// update the same parameters, or each rank updates its own part.
    fn local_shards(&mut self) -> Vec<ParamShard<'_, T, G>>;

    /// Sends the changed weights that this rank owns to the ranks that hold copies of them.
    ///
    /// # Errors
    /// As the collectives in it.
    fn all_gather_params(&mut self) -> Result<()>;

    /// Called after the update. Ranks that need the new weights get them, and gradients become
    /// zero.
    ///
    /// # Errors
    /// As the collectives in it.
    fn publish(&mut self) -> Result<()>;

    /// Returns the bytes that this rank holds.
    fn bytes(&self) -> StoreBytes;

    /// Returns all weights of this rank's layout. They may be gathered, so all ranks that share
    /// them call it.
    ///
    /// # Errors
    /// As the collectives in it.
    fn all_weights(&mut self) -> Result<Vec<T>> {
        let mut all = Vec::with_capacity(self.layout().len());
        for unit in 0..self.layout().units.len() {
            all.extend_from_slice(self.weights(unit)?);
            self.forward_done(unit)?;
        }
        Ok(all)
    }
}

/// Implements methods of [`Store`] by those of the field `inner`, for a store that wraps another
/// store: `forward_store!(T: layout, copies);`, or `forward_store!(T, G: layout);` with gradients of another kind. A wrapper names methods with a default too: a
/// method that it leaves out would run the default, not the method of the inner store.
#[doc(hidden)]
#[macro_export]
macro_rules! forward_store {
    (read $method:ident() -> $result:ty) => {
        fn $method(&self) -> $result {
            self.inner.$method()
        }
    };
    (change $method:ident($($argument:ident: $kind:ty)?) -> $result:ty) => {
        fn $method(&mut self, $($argument: $kind)?) -> $result {
            self.inner.$method($($argument)?)
        }
    };
    (@ $T:ty, $G:ty, layout) => {
        forward_store! { read layout() -> &$crate::model::layout::ParameterLayout }
    };
    (@ $T:ty, $G:ty, copies) => {
        forward_store! { read copies() -> usize }
    };
    (@ $T:ty, $G:ty, diverges) => {
        forward_store! { read diverges() -> bool }
    };
    (@ $T:ty, $G:ty, bytes) => {
        forward_store! { read bytes() -> $crate::model::store::StoreBytes }
    };
    (@ $T:ty, $G:ty, weights) => {
        forward_store! { change weights(unit: usize) -> maypole::Result<&[$T]> }
    };
    (@ $T:ty, $G:ty, forward_done) => {
        forward_store! { change forward_done(unit: usize) -> maypole::Result<()> }
    };
    (@ $T:ty, $G:ty, pass_begins) => {
        fn pass_begins(&mut self, pass: $crate::model::store::StorePass) {
            self.inner.pass_begins(pass)
        }
    };
    (@ $T:ty, $G:ty, weights_and_gradients) => {
        forward_store! {
            change weights_and_gradients(unit: usize) -> maypole::Result<(&[$T], &mut [$G])>
        }
    };
    (@ $T:ty, $G:ty, gradients) => {
        forward_store! { change gradients(unit: usize) -> maypole::Result<&mut [$G]> }
    };
    (@ $T:ty, $G:ty, backward_done) => {
        forward_store! { change backward_done(unit: usize) -> maypole::Result<()> }
    };
    (@ $T:ty, $G:ty, finish_grad_sync) => {
        forward_store! { change finish_grad_sync() -> maypole::Result<()> }
    };
    (@ $T:ty, $G:ty, local_shards) => {
        forward_store! { change local_shards() -> Vec<$crate::model::store::ParamShard<'_, $T, $G>> }
    };
    (@ $T:ty, $G:ty, all_gather_params) => {
        forward_store! { change all_gather_params() -> maypole::Result<()> }
    };
    (@ $T:ty, $G:ty, publish) => {
        forward_store! { change publish() -> maypole::Result<()> }
    };
    (@ $T:ty, $G:ty, all_weights) => {
        forward_store! { change all_weights() -> maypole::Result<Vec<$T>> }
    };
    ($T:ty: $($method:ident),+ $(,)?) => {
        $($crate::model::store::forward_store!(@ $T, $T, $method);)+
    };
    ($T:ty, $G:ty: $($method:ident),+ $(,)?) => {
        $($crate::model::store::forward_store!(@ $T, $G, $method);)+
    };
}
pub use forward_store;

/// All weights and gradients of this rank's layout in two flat buffers; nothing is sent.
#[derive(Debug)]
pub struct FlatStore<T, G = T> {
    layout: ParameterLayout,
    /// The weights, in the order of the layout.
    pub weights: Vec<T>,
    /// The gradients, in the order of the layout.
    pub gradients: Vec<G>,
}

impl<T: FloatElement> FlatStore<T> {
    /// A store of `weights`, with gradients of zero.
    ///
    /// # Panics
    /// If the number of weights is not that of the layout.
    pub fn new(layout: ParameterLayout, weights: Vec<T>) -> Self {
        Self::mixed(layout, weights)
    }
}

impl<T: FloatElement, G: FloatElement> FlatStore<T, G> {
    /// A store of `weights`, with gradients of zero that may be of another kind.
    ///
    /// # Panics
    /// If the number of weights is not that of the layout.
    pub fn mixed(layout: ParameterLayout, weights: Vec<T>) -> Self {
        assert_eq!(weights.len(), layout.len(), "the number of weights is that of the layout");
        let gradients = vec![G::zero(); weights.len()];
        Self { layout, weights, gradients }
    }

    /// Returns the place of unit number `unit` in both buffers.
    pub fn range(&self, unit: usize) -> Range<usize> {
        self.layout.units[unit].range.clone()
    }
}

impl<T: FloatElement, G: FloatElement> Store<T, G> for FlatStore<T, G> {
    fn layout(&self) -> &ParameterLayout {
        &self.layout
    }

    fn weights(&mut self, unit: usize) -> Result<&[T]> {
        Ok(&self.weights[self.range(unit)])
    }

    fn weights_and_gradients(&mut self, unit: usize) -> Result<(&[T], &mut [G])> {
        let range = self.range(unit);
        Ok((&self.weights[range.clone()], &mut self.gradients[range]))
    }

    fn local_shards(&mut self) -> Vec<ParamShard<'_, T, G>> {
        vec![ParamShard { offset: 0, weights: &mut self.weights, gradients: &mut self.gradients }]
    }

    fn all_gather_params(&mut self) -> Result<()> {
        Ok(())
    }

    fn publish(&mut self) -> Result<()> {
        self.gradients.fill(G::zero());
        Ok(())
    }

    fn bytes(&self) -> StoreBytes {
        StoreBytes {
            weights: size_of_val(&*self.weights),
            gradients: size_of_val(&*self.gradients),
            ..StoreBytes::default()
        }
    }
}

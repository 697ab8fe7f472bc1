//! Reduction by either kind of operation: one of this crate's, or the user's.

use super::built_in::BuiltInReducer;
use super::custom::CustomReducer;
use crate::{View, ViewMut};

/// How the sources of a reduction combine.
#[derive(Clone, Debug)]
pub enum Reducer {
    /// By an operation of this crate, with vector instructions.
    BuiltIn(BuiltInReducer),
    /// By a function of the user.
    Custom(CustomReducer),
}

impl Reducer {
    /// Does what [`BuiltInReducer::apply`] or [`CustomReducer::apply`] does.
    ///
    /// # Panics
    /// As [`BuiltInReducer::apply`], and if a custom function panics.
    #[inline(always)]
    pub fn apply(&self, into: ViewMut<'_>, also: Option<ViewMut<'_>>, sources: &[View<'_>]) {
        match self {
            Self::BuiltIn(reducer) => reducer.apply(into, also, sources),
            Self::Custom(reducer) => reducer.apply(into, also, sources),
        }
    }

    /// Cuts `len` bytes into blocks of whole elements: the start of each, and its length of at most `most`
    /// bytes. An element has no more than that.
    #[inline]
    pub fn blocks(&self, len: usize, most: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
        let step = match self {
            Self::BuiltIn(_) => most,
            Self::Custom(reducer) => most - most % reducer.element,
        };
        (0..len).step_by(step).map(move |at| (at, step.min(len - at)))
    }

    /// Does what [`apply`](Self::apply) with one destination does, faster where `into` is memory that
    /// another core has read last.
    ///
    /// # Panics
    /// As [`apply`](Self::apply).
    #[inline(always)]
    pub fn publish(&self, into: ViewMut<'_>, sources: &[View<'_>]) {
        match self {
            Self::BuiltIn(reducer) => reducer.publish(into, sources),
            Self::Custom(reducer) => reducer.apply(into, None, sources),
        }
    }
}

impl From<BuiltInReducer> for Reducer {
    fn from(reducer: BuiltInReducer) -> Self {
        Self::BuiltIn(reducer)
    }
}

//! The folds: the one operation that every lowered step of a schedule performs.

use crate::{BinaryOp, DataType, View, ViewMut};

/// Combines k sources, in order, into one or two destinations.
#[derive(Clone, Copy, Debug)]
pub struct Fold {
    size: usize,
}

impl Fold {
    /// The fastest fold this machine has for elements of `kind`, combined by `op`.
    pub fn new(kind: DataType, op: BinaryOp) -> Self {
        let _ = op;
        Self { size: kind.size() }
    }

    /// `into = (((s0 op s1) op s2) ...)`, element by element; the same to `also`.
    #[inline]
    pub fn apply(&self, into: ViewMut<'_>, also: Option<ViewMut<'_>>, sources: &[View<'_>]) {
        let _ = (self.size, into, also, sources);
        unimplemented!()
    }
}

/// Divides every element by `by`.
pub fn divide(values: ViewMut<'_>, kind: DataType, by: u64) {
    let _ = (values, kind, by);
    unimplemented!()
}

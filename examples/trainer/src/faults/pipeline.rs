//! A mistake of pipelines: activations are kept on a stack, so the first backward pass gets those
//! of the last micro-batch.

/// Takes the activations that were stored last, whatever micro-batch the backward pass is of.
pub(super) fn last(waiting: &[usize], _: usize) -> Option<usize> {
    waiting.len().checked_sub(1)
}

//! Cross-entropy and its gradient.

use super::call::DeviceSlice;
use super::elements::rows;
use super::machine::{Float, Launch, Machine};
use super::norm::ROW_THREADS;
use maypole_kernels::cuda::CudaError;

/// Computes the loss of each token, and in place of `logits`, a row for each token, their gradient
/// times `weight`. The row of a target that is not less than its length stays as it is, and its
/// loss is not written.
///
/// # Errors
/// As [`Machine::launch`].
///
/// # Panics
/// If `logits` are not a row for each target, or there is not a loss for each.
pub fn cross_entropy<T: Float>(
    machine: &mut dyn Machine,
    logits: DeviceSlice<T>,
    losses: DeviceSlice<f64>,
    targets: DeviceSlice<u32>,
    weight: f64,
) -> Result<(), CudaError> {
    let tokens = targets.len();
    let width = rows(logits.len(), tokens);
    assert_eq!(losses.len(), tokens, "a loss for each token");
    let launch = Launch::new::<T>("cross_entropy", tokens, ROW_THREADS).slice(logits);
    let launch = launch.slice(losses).slice(targets).count(width);
    launch.number(weight).number(T::LEAST).on(machine)
}

//! The nonlinearity of a gated feed-forward part: SwiGLU.
//!
//! `y = silu(gate) * up`, with `silu(x) = x / (1 + exp(-x))` (Shazeer 2020). `gate` and `up` are
//! the results of two linear layers. It works on each pair of numbers alone, so a split of any kind
//! leaves it as it is.

use crate::tensor::math::{Real, vectorized};

/// `y` from `gate` and `up`.
pub fn forward<T: Real>(y: &mut [T], gate: &[T], up: &[T]) {
    vectorized(|| {
        for ((y, gate), up) in y.iter_mut().zip(gate).zip(up) {
            *y = *gate * sigmoid(*gate) * *up;
        }
    });
}

/// The gradient of `gate` into `dgate` and that of `up` into `dup`. On entry `dup` is the gradient of
/// `y`.
pub fn backward<T: Real>(dgate: &mut [T], dup: &mut [T], gate: &[T], up: &[T]) {
    vectorized(|| {
        for ((dgate, dup), (gate, up)) in dgate.iter_mut().zip(dup).zip(gate.iter().zip(up)) {
            let share = sigmoid(*gate);
            let dy = *dup;
            *dgate = dy * *up * share * (T::one() + *gate * (T::one() - share));
            *dup = dy * *gate * share;
        }
    });
}

#[inline(always)]
fn sigmoid<T: Real>(x: T) -> T {
    T::one() / (T::one() + (-x).quick_exp())
}

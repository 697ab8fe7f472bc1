//! RMS normalisation: each token's vector scaled to a mean square of 1, then stretched by weights.
//!
//! `y = x * rstd * w`, with `rstd = 1 / sqrt(mean(x^2) + 1e-5)`. It is [layer
//! normalisation](crate::tensor::norm) without the shift to mean 0 and without a bias (Zhang and
//! Sennrich 2019). One number a row, `rstd`, is kept for the backward pass. As with every norm,
//! the gradient of w is a sum over tokens: an axis that divides tokens has to sum it over its
//! ranks.

use crate::tensor::math::{Real, sum_of, vectorized};
use crate::tensor::norm::{EPSILON, NormInputs};

/// `y` from `x`, rows of `w.len()` elements; `stats` gets the `rstd` of each row.
pub fn forward<T: Real>(y: &mut [T], stats: &mut [T], x: &[T], w: &[T]) {
    let width = w.len();
    vectorized(|| {
        let rows = y.chunks_exact_mut(width).zip(x.chunks_exact(width));
        for ((y, x), rstd) in rows.zip(stats) {
            let squares = sum_of(x, x, |x, _| x * x) / T::of(width as f64);
            *rstd = T::one() / (squares + T::of(EPSILON)).sqrt();
            for ((y, x), w) in y.iter_mut().zip(x).zip(w) {
                *y = *x * *rstd * *w;
            }
        }
    });
}

/// Accumulates the gradients of `dy` in `dx` and `dw`. The statistics in `before` are the `rstd` of
/// each row.
pub fn backward<T: Real>(dx: &mut [T], dw: &mut [T], dy: &[T], before: NormInputs<'_, T>) {
    let NormInputs { x, stats, w } = before;
    let width = w.len();
    vectorized(|| {
        let rows = dx.chunks_exact_mut(width).zip(dy.chunks_exact(width));
        for ((dx, dy), (x, rstd)) in rows.zip(x.chunks_exact(width).zip(stats)) {
            row_backward(dx, dw, dy, (x, *rstd, w));
        }
    });
}

#[inline(always)]
fn row_backward<T: Real>(dx: &mut [T], dw: &mut [T], dy: &[T], (x, rstd, w): (&[T], T, &[T])) {
    for ((dw, dy), x) in dw.iter_mut().zip(dy).zip(x) {
        *dw += *dy * *x * rstd;
    }
    let mean = stretched(x, w, dy) * rstd / T::of(w.len() as f64);
    for ((dx, x), (dy, w)) in dx.iter_mut().zip(x).zip(dy.iter().zip(w)) {
        *dx += rstd * (*dy * *w - *x * rstd * mean);
    }
}

/// The sum of `x w dy`, in 16 lanes that are added in order.
#[inline(always)]
fn stretched<T: Real>(x: &[T], w: &[T], dy: &[T]) -> T {
    let mut lanes = [T::zero(); 16];
    let (x16, x1) = x.as_chunks::<16>();
    let (w16, w1) = w.as_chunks::<16>();
    let (dy16, dy1) = dy.as_chunks::<16>();
    for ((x, w), dy) in x16.iter().zip(w16).zip(dy16) {
        for (lane, sum) in lanes.iter_mut().enumerate() {
            *sum += x[lane] * w[lane] * dy[lane];
        }
    }
    let whole = lanes.into_iter().fold(T::zero(), |sum, lane| sum + lane);
    x1.iter().zip(w1).zip(dy1).fold(whole, |sum, ((x, w), dy)| sum + *x * *w * *dy)
}

//! Layer normalisation: each token's vector shifted and scaled to mean 0 and variance 1, then
//! stretched by weights.
//!
//! `y = (x - mean) * rstd * w + b`. The mean and `rstd = 1 / sqrt(variance + 1e-5)` of each row are
//! kept for the backward pass: two numbers a token. Both w and b are as long as a token's vector,
//! so they are replicated on every axis that cuts matrices. Their gradients are sums over tokens:
//! an axis that divides tokens has to sum these gradients over its ranks.

use crate::tensor::math::{Real, sum_of, vectorized};

/// The number that is added to the variance of a row, so that a row of equal numbers has a `rstd`.
pub const EPSILON: f64 = 1e-5;

/// Writes the normalised rows of `x` to `y`, and the mean and `rstd` of each row to `stats`. Rows
/// have `w.len()` elements.
pub fn forward<T: Real>(y: &mut [T], stats: &mut [T], x: &[T], w: &[T], b: &[T]) {
    let width = w.len();
    vectorized(|| {
        for ((y, stats), x) in
            y.chunks_exact_mut(width).zip(stats.chunks_exact_mut(2)).zip(x.chunks_exact(width))
        {
            row(y, stats, x, w, b);
        }
    });
}

#[inline(always)]
fn row<T: Real>(y: &mut [T], stats: &mut [T], x: &[T], w: &[T], b: &[T]) {
    let width = T::of(w.len() as f64);
    let mean = sum_of(x, x, |x, _| x) / width;
    let variance = sum_of(x, x, |x, _| (x - mean) * (x - mean)) / width;
    let rstd = T::one() / (variance + T::of(EPSILON)).sqrt();
    stats[0] = mean;
    stats[1] = rstd;
    for ((y, x), (w, b)) in y.iter_mut().zip(x).zip(w.iter().zip(b)) {
        *y = (*x - mean) * rstd * *w + *b;
    }
}

/// The inputs of the forward pass that the backward pass needs.
#[derive(Clone, Copy, Debug)]
pub struct NormInputs<'a, T> {
    /// The input.
    pub x: &'a [T],
    /// Mean and `rstd` of each row; `rstd` alone, of [`rms_norm`](crate::tensor::rms_norm).
    pub stats: &'a [T],
    /// The weights.
    pub w: &'a [T],
}

/// Adds the gradients that follow from `dy` to `dx`, `dw` and `db`. It adds to `dx` because in a
/// block the gradient of the residual connection around the norm is already there.
pub fn backward<T: Real>(
    dx: &mut [T],
    dw: &mut [T],
    db: &mut [T],
    dy: &[T],
    before: NormInputs<'_, T>,
) {
    let width = before.w.len();
    vectorized(|| {
        let inputs = before.x.chunks_exact(width).zip(before.stats.chunks_exact(2));
        for ((dx, dy), (x, stats)) in
            dx.chunks_exact_mut(width).zip(dy.chunks_exact(width)).zip(inputs)
        {
            row_backward(dx, dw, db, dy, NormInputs { x, stats, w: before.w });
        }
    });
}

#[inline(always)]
fn row_backward<T: Real>(
    dx: &mut [T],
    dw: &mut [T],
    db: &mut [T],
    dy: &[T],
    before: NormInputs<'_, T>,
) {
    let NormInputs { x, stats, w } = before;
    let mean = stats[0];
    let rstd = stats[1];
    let width = T::of(w.len() as f64);
    let mut lanes = [[T::zero(); 16]; 2];
    let (x16, x1) = x.as_chunks::<16>();
    let (w16, w1) = w.as_chunks::<16>();
    let (dy16, dy1) = dy.as_chunks::<16>();
    for ((x, w), dy) in x16.iter().zip(w16).zip(dy16) {
        for lane in 0..16 {
            let slope = dy[lane] * w[lane];
            lanes[0][lane] += slope;
            lanes[1][lane] += slope * (x[lane] - mean) * rstd;
        }
    }
    let [mut slopes, mut products] =
        lanes.map(|lanes| lanes.into_iter().fold(T::zero(), |sum, lane| sum + lane));
    for ((x, w), dy) in x1.iter().zip(w1).zip(dy1) {
        slopes += *dy * *w;
        products += *dy * *w * (*x - mean) * rstd;
    }
    slopes /= width;
    products /= width;
    for (((dx, dw), db), ((dy, x), w)) in dx.iter_mut().zip(dw).zip(db).zip(dy.iter().zip(x).zip(w))
    {
        let normal = (*x - mean) * rstd;
        *dw += *dy * normal;
        *db += *dy;
        *dx += rstd * (*dy * *w - slopes - normal * products);
    }
}

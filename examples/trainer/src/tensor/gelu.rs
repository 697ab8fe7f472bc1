//! The nonlinearity between the two matrices of the feed-forward part: GELU, in its tanh form.
//!
//! `y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))` (Hendrycks and Gimpel 2016). GELU works on
//! each number alone, so every axis of parallelism uses it as it is.

use crate::tensor::math::{Real, vectorized};

/// `y = gelu(x)`, number by number.
pub fn forward<T: Real>(y: &mut [T], x: &[T]) {
    vectorized(|| {
        let [half, one] = [T::of(0.5), T::one()];
        y.iter_mut().zip(x).for_each(|(y, x)| *y = half * *x * (one + tanh(inner(*x))));
    });
}

/// Multiplies `dx`, the gradient of the result, by the derivative at `x`: the gradient of `x`.
pub fn backward<T: Real>(dx: &mut [T], x: &[T]) {
    vectorized(|| {
        let [half, one, slope, cubic] = [T::of(0.5), T::one(), T::of(SLOPE), T::of(3.0 * CUBIC)];
        dx.iter_mut().zip(x).for_each(|(dx, x)| {
            let t = tanh(inner(*x));
            *dx *= half * (one + t) + half * *x * (one - t * t) * slope * (one + cubic * *x * *x);
        });
    });
}

const SLOPE: f64 = 0.797_884_560_802_865_4;
const CUBIC: f64 = 0.044_715;

#[inline(always)]
fn inner<T: Real>(x: T) -> T {
    T::of(SLOPE) * (x + T::of(CUBIC) * x * x * x)
}

#[inline(always)]
fn tanh<T: Real>(x: T) -> T {
    let two = T::one() + T::one();
    T::one() - two / ((two * x).quick_exp() + T::one())
}

//! The number types of a model, and loops over numbers that are compiled for the processor that
//! runs them.
//!
//! A binary for "x86-64" may only use instructions that every such processor has: vectors of 128
//! bits, where most processors have 256 or 512. [`vectorized`] compiles a loop several times, and
//! at run time chooses the copy for the processor. Sums are written with a fixed number of lanes,
//! so they add in the same order in every copy.

use maypole::Element;
use num_traits::{Float, NumAssign};
use std::fmt::Debug;

/// A float that collectives can send and this crate can add, 16-bit floats included.
pub trait FloatElement: Element + Float + NumAssign + Debug + Default {}

impl<T: Element + Float + NumAssign + Debug + Default> FloatElement for T {}

/// Returns the number of type `T` that is nearest to `x`: infinity if `x` is out of range.
pub fn number<T: FloatElement>(x: f64) -> T {
    T::from(x).expect("a float is converted to any float type")
}

/// A number type of a model: `f32` for training, `f64` for checks of derivatives.
pub trait Real: FloatElement {
    /// Returns the number of this type that is nearest to `x`.
    fn of(x: f64) -> Self;

    /// Returns the number as `f64`, which is exact.
    fn wide(self) -> f64;

    /// Returns e to the power of `self`, with an error of a few units in the last place, by code
    /// that vectorizes. In `f32` arguments are clamped to -87..=88, so that the result is finite.
    fn quick_exp(self) -> Self;
}

impl Real for f32 {
    fn of(x: f64) -> Self {
        x as Self
    }

    fn wide(self) -> f64 {
        f64::from(self)
    }

    /// Writes `self` as `k ln(2) + f` with |f| <= ln(2)/2. 2^k is made from the bits of the
    /// exponent, e^f by a Taylor polynomial, whose error is 2e-7. `k ln(2)` is subtracted in two
    /// parts, of which the first is so short that its product with k is exact (Cody and Waite
    /// 1980).
    #[inline(always)]
    fn quick_exp(self) -> Self {
        // Adding 1.5 * 2^23 leaves no bits for a fraction: the sum's low bits are the nearest
        // integer.
        const TO_INTEGER: f32 = 12_582_912.0;
        const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];
        let x = self.clamp(-87.0, 88.0);
        let shifted = x * std::f32::consts::LOG2_E + TO_INTEGER;
        let k = shifted - TO_INTEGER;
        let f = x - k * LN_2[0] - k * LN_2[1];
        let tail = 1.0 / 24.0 + f * (1.0 / 120.0 + f * (1.0 / 720.0));
        let p = 1.0 + f * (1.0 + f * (0.5 + f * (1.0 / 6.0 + f * tail)));
        let power = shifted.to_bits().wrapping_sub(TO_INTEGER.to_bits()).wrapping_add(127) << 23;
        Self::from_bits(power) * p
    }
}

impl Real for f64 {
    fn of(x: f64) -> Self {
        x
    }

    fn wide(self) -> f64 {
        self
    }

    fn quick_exp(self) -> Self {
        self.exp()
    }
}

/// Runs the copy of `work` that is compiled for this processor. Functions that `work` calls must be
/// `#[inline(always)]` to be part of the copy.
#[inline(always)]
pub fn vectorized<R>(work: impl FnOnce() -> R) -> R {
    pulp::Arch::new().dispatch(work)
}

/// Returns the sum of `of(a[i], b[i])`, in 16 lanes that are added in order at the end.
#[inline(always)]
pub fn sum_of<T: Real>(a: &[T], b: &[T], of: impl Fn(T, T) -> T) -> T {
    let mut lanes = [T::zero(); 16];
    let (a, a_rest) = a.as_chunks::<16>();
    let (b, b_rest) = b.as_chunks::<16>();
    for (a, b) in a.iter().zip(b) {
        for ((lane, a), b) in lanes.iter_mut().zip(a).zip(b) {
            *lane += of(*a, *b);
        }
    }
    let whole = lanes.into_iter().fold(T::zero(), |sum, lane| sum + lane);
    a_rest.iter().zip(b_rest).fold(whole, |sum, (a, b)| sum + of(*a, *b))
}

/// Returns the greatest number of `x`, or the least finite number of the type if `x` is empty.
#[inline(always)]
pub fn greatest<T: Real>(x: &[T]) -> T {
    let mut lanes = [T::min_value(); 16];
    let (whole, rest) = x.as_chunks::<16>();
    for chunk in whole {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *lane = if *x > *lane { *x } else { *lane };
        }
    }
    let larger = |most: T, x: &T| if *x > most { *x } else { most };
    rest.iter().fold(lanes.iter().fold(T::min_value(), larger), larger)
}

/// Replaces each number of `x` by `exp(x - shift)`, and returns their sum.
#[inline(always)]
pub fn exponentials<T: Real>(x: &mut [T], shift: T) -> T {
    let mut lanes = [T::zero(); 16];
    let (whole, rest) = x.as_chunks_mut::<16>();
    for chunk in whole {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *x = (*x - shift).quick_exp();
            *lane += *x;
        }
    }
    let mut sum = lanes.into_iter().fold(T::zero(), |sum, lane| sum + lane);
    for x in rest {
        *x = (*x - shift).quick_exp();
        sum += *x;
    }
    sum
}

/// `y += x`.
pub fn add<T: FloatElement>(y: &mut [T], x: &[T]) {
    vectorized(|| y.iter_mut().zip(x).for_each(|(y, x)| *y += *x));
}

/// `y *= factor`.
pub fn scale<T: FloatElement>(y: &mut [T], factor: T) {
    vectorized(|| y.iter_mut().for_each(|y| *y *= factor));
}

/// Returns the sum of the squares, in `f64`.
pub fn sum_of_squares<T: Real>(x: &[T]) -> f64 {
    x.iter().map(|x| x.wide() * x.wide()).sum()
}

/// Removes the first `count` elements from `rest`, and returns them.
///
/// # Panics
/// If `rest` has fewer elements.
pub fn take<'a, T>(rest: &mut &'a [T], count: usize) -> &'a [T] {
    let (first, after) = rest.split_at(count);
    *rest = after;
    first
}

/// [`take`] for a mutable slice.
///
/// # Panics
/// If `rest` has fewer elements.
pub fn take_mut<'a, T>(rest: &mut &'a mut [T], count: usize) -> &'a mut [T] {
    let (first, after) = std::mem::take(rest).split_at_mut(count);
    *rest = after;
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quick_exp_is_exp() {
        for x in (-8700..8800).map(|x| x as f32 / 100.0) {
            let quick = x.quick_exp();
            let exact = f64::from(x).exp();
            assert!(
                (f64::from(quick) - exact).abs() <= 5e-7 * exact,
                "exp({x}) = {exact}, not {quick}"
            );
        }
        assert_eq!(f32::NEG_INFINITY.quick_exp(), (-87f32).quick_exp());
    }

    #[test]
    fn sums_and_maxima_take_every_element() {
        for n in 0..70 {
            let x: Vec<f64> = (0..n).map(f64::from).collect();
            assert_eq!(sum_of(&x, &x, |a, b| a * b), x.iter().map(|x| x * x).sum::<f64>());
            assert_eq!(greatest(&x), x.last().copied().unwrap_or(f64::MIN));
            let mut e = x.clone();
            let sum = exponentials(&mut e, 3.0);
            assert!((sum - x.iter().map(|x| (x - 3.0).exp()).sum::<f64>()).abs() <= 1e-12 * sum);
        }
    }
}

//! 16-bit floats, and their conversion from and to `f32`.

use crate::tensor::math::FloatElement;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// A 16-bit float.
pub trait HalfFloat: FloatElement {
    /// Writes to `to` the nearest 16-bit number of each number; numbers beyond the range become
    /// infinite.
    ///
    /// # Panics
    /// If the slices are not equally long.
    fn narrow(to: &mut [Self], from: &[f32]);

    /// Writes each 16-bit number to `to` as `f32`, which is exact.
    ///
    /// # Panics
    /// If the slices are not equally long.
    fn widen(to: &mut [f32], from: &[Self]);

    /// Rounds every number to the nearest 16-bit number.
    fn coarsen(x: &mut [f32]) {
        let mut half = [Self::zero(); PIECE];
        for piece in x.chunks_mut(PIECE) {
            let half = &mut half[..piece.len()];
            Self::narrow(half, piece);
            Self::widen(piece, half);
        }
    }
}

/// The number of elements that are converted at a time.
pub(crate) const PIECE: usize = 1024;

impl HalfFloat for bf16 {
    fn narrow(to: &mut [Self], from: &[f32]) {
        to.convert_from_f32_slice(from);
    }

    fn widen(to: &mut [f32], from: &[Self]) {
        from.convert_to_f32_slice(to);
    }
}

impl HalfFloat for f16 {
    fn narrow(to: &mut [Self], from: &[f32]) {
        to.convert_from_f32_slice(from);
    }

    fn widen(to: &mut [f32], from: &[Self]) {
        from.convert_to_f32_slice(to);
    }
}

//! Activations until their backward pass, in 16 bits where that loses nothing.
//!
//! What it does: a device with 16-bit arithmetic gives 16-bit numbers. Here layers exchange these
//! numbers as `f32`. Until its backward pass an activation is stored in 16 bits, if all its numbers
//! are then equal to the bit. The means and deviations of norms, and the logarithms of the sums in
//! ring attention, are 32-bit numbers on such a device too, and stay in 32 bits.
//!
//! Cost: a pass over each activation forward and another one backward.

use crate::tensor::half_float::{HalfFloat, PIECE};
use crate::tensor::math::Real;
use std::fmt::Debug;

/// The numbers of a buffer, as they are stored.
#[derive(Debug)]
pub enum PackedNumbers<T> {
    /// In the type that layers compute with.
    Whole(Vec<T>),
    /// In fewer bits, without loss.
    Narrow(Box<dyn NarrowNumbers<T>>),
}

/// Numbers in fewer bits than layers compute with.
pub trait NarrowNumbers<T>: Debug {
    /// Returns the numbers in the type that layers compute with.
    fn widen(&self) -> Vec<T>;

    /// Returns the bytes of the numbers.
    fn bytes(&self) -> usize;
}

impl<H: HalfFloat> NarrowNumbers<f32> for Vec<H> {
    fn widen(&self) -> Vec<f32> {
        let mut wide = vec![0.0; self.len()];
        H::widen(&mut wide, self);
        wide
    }

    fn bytes(&self) -> usize {
        size_of_val(&**self)
    }
}

impl<T: Real> PackedNumbers<T> {
    /// Returns the numbers, equal to the bit to those that were packed.
    pub fn unpack(self) -> Vec<T> {
        match self {
            Self::Whole(numbers) => numbers,
            Self::Narrow(numbers) => numbers.widen(),
        }
    }

    /// Returns the bytes of the numbers as they are stored.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Whole(numbers) => size_of_val(&**numbers),
            Self::Narrow(numbers) => numbers.bytes(),
        }
    }
}

/// Returns `x` in 16 bits, if each number is equal to the bit after widening; else `x` itself.
pub fn pack<H: HalfFloat>(x: Vec<f32>) -> PackedNumbers<f32> {
    let mut half = vec![H::zero(); x.len()];
    let mut wide = [0.0; PIECE];
    let lossless = half.chunks_mut(PIECE).zip(x.chunks(PIECE)).all(|(half, x)| {
        let wide = &mut wide[..x.len()];
        H::narrow(half, x);
        H::widen(wide, half);
        wide.iter().zip(x).all(|(wide, x)| wide.to_bits() == x.to_bits())
    });
    if lossless { PackedNumbers::Narrow(Box::new(half)) } else { PackedNumbers::Whole(x) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};

    #[test]
    fn numbers_come_back_to_the_bit_and_take_half_where_they_can() {
        let coarse: Vec<f32> =
            (0..3000).map(|i| bf16::from_f32(i as f32 * 0.37).to_f32()).collect();
        let packed = pack::<bf16>(coarse.clone());
        assert_eq!(packed.bytes(), 6000);
        assert_eq!(packed.unpack(), coarse);
        // One number at the end that 16 bits do not hold.
        let fine: Vec<f32> = coarse.iter().copied().chain([0.1]).collect();
        let packed = pack::<bf16>(fine.clone());
        assert_eq!(packed.bytes(), 4 * 3001);
        assert_eq!(packed.unpack(), fine);
        let special = vec![-0.0, f32::INFINITY, f32::NEG_INFINITY, 65504.0];
        let back = pack::<f16>(special.clone()).unpack();
        assert!(special.iter().zip(&back).all(|(a, b)| a.to_bits() == b.to_bits()));
    }
}

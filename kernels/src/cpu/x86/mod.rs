//! x86-64: AVX2 (with F16C, which every CPU with AVX2 has) and AVX-512.

mod avx2;
mod avx512;
mod intrinsics;

use super::instruction_set::{Passes, by_op};
use super::loops::{
    self, And, Divide, Lanes, Max, Min, Or, Product, Quotient, Scale, Step, Sum, Xor,
};
use crate::{BinaryOp, View};
use std::arch::x86_64::{__m128i, __m256i, __m512i};

pub(super) fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c")
}

pub(super) fn has_avx512() -> bool {
    has_avx2()
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
}

macro_rules! level {
    ($passes:ident, $passes_of:ident, $long:ident, $register:ty, $features:literal) => {
        /// The fold of elements `T` by `op`. To call it, the CPU must have the level.
        pub(super) fn $passes<T>(op: BinaryOp) -> Passes
        where
            Sum: Step<__m128i, T> + Step<$register, T>,
            Product: Step<__m128i, T> + Step<$register, T>,
            Min: Step<__m128i, T> + Step<$register, T>,
            Max: Step<__m128i, T> + Step<$register, T>,
        {
            by_op!(op, $passes_of<T>)
        }

        fn $passes_of<T, O: Step<__m128i, T> + Step<$register, T>>() -> Passes {
            Passes { line: line::<T, O>, long: $long::<T, O> }
        }

        /// # Safety
        /// As [`loops::Pass`], with a register of bytes or more.
        #[target_feature(enable = $features)]
        unsafe fn $long<T, O: Step<$register, T>>(
            into: *mut u8,
            also: *mut u8,
            sources: &[View<'_>],
            len: usize,
        ) {
            // SAFETY: passed on to our caller; the instruction set is enabled here.
            unsafe { loops::long::<$register, T, O>(into, also, sources, len) }
        }
    };
}

level!(avx2_passes, avx2_passes_of, long_avx2, __m256i, "avx2,f16c");
level!(
    avx512_passes,
    avx512_passes_of,
    long_avx512,
    __m512i,
    "avx2,f16c,avx512f,avx512bw,avx512dq"
);

/// Short vectors at both levels: a payload of a few bytes often starts in the middle of a cache
/// line, and a wide access would straddle two.
///
/// # Safety
/// As [`loops::Pass`].
#[target_feature(enable = "avx2,f16c")]
unsafe fn line<T, O: Step<__m128i, T>>(
    into: *mut u8,
    also: *mut u8,
    sources: &[View<'_>],
    len: usize,
) {
    // SAFETY: passed on to our caller; the instruction set is enabled here.
    unsafe { loops::line::<__m128i, T, O>(into, also, sources, len) }
}

/// The multiplication of elements `T`. To call it, the CPU must have AVX2 and F16C.
pub(super) fn scaler<T>() -> Scale
where
    Product: Step<__m128i, T> + Step<__m256i, T>,
{
    scale::<T>
}

/// # Safety
/// As [`Scale`].
#[target_feature(enable = "avx2,f16c")]
unsafe fn scale<T>(into: *mut u8, from: *const u8, len: usize, factor: &Lanes)
where
    Product: Step<__m128i, T> + Step<__m256i, T>,
{
    // SAFETY: passed on to our caller; the instruction set is enabled here.
    unsafe {
        if len < size_of::<__m256i>() {
            loops::scale::<__m128i, T>(into, from, len, factor);
        } else {
            loops::scale_long::<__m256i, T>(into, from, len, factor);
        }
    }
}

/// The division of elements `T`. To call it, the CPU must have AVX2 and F16C.
pub(super) fn divider<T: Quotient<__m128i> + Quotient<__m256i>>() -> Divide {
    divide::<T>
}

/// Wider registers would not be faster: the divider is what takes the time.
///
/// # Safety
/// As [`Divide`].
#[target_feature(enable = "avx2,f16c")]
unsafe fn divide<T: Quotient<__m128i> + Quotient<__m256i>>(values: *mut u8, len: usize, by: u64) {
    // SAFETY: passed on to our caller; the instruction set is enabled here.
    unsafe {
        if len < size_of::<__m256i>() {
            loops::divide::<__m128i, T>(values, len, by);
        } else {
            loops::divide_long::<__m256i, T>(values, len, by);
        }
    }
}

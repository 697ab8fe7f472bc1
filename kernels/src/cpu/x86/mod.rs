//! x86-64: AVX2 (with F16C, which every CPU with AVX2 has) and AVX-512.

mod avx2;
mod avx512;
mod intrinsics;

use super::loops;
use super::operations::{
    And, Combine, MapFn, Max, Min, OnEach, Or, Product, ReduceFns, Sum, Xor, by_op,
};
use crate::{BinaryOp, View};
use std::arch::x86_64::{__m128i, __m256i, __m512i};

/// True if the CPU has AVX2 and F16C.
pub(super) fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c")
}

/// True if the CPU has AVX2, F16C and AVX-512 F, BW and DQ.
pub(super) fn has_avx512() -> bool {
    has_avx2()
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
}

macro_rules! reductions {
    ($reduce_fns:ident, $reduce_fns_of:ident, $long:ident, $register:ty, $features:literal) => {
        /// The functions that combine elements `T` by `op`. To call them, the CPU must have the
        /// instruction set.
        pub(super) fn $reduce_fns<T>(op: BinaryOp) -> ReduceFns
        where
            Sum: Combine<__m128i, T> + Combine<$register, T>,
            Product: Combine<__m128i, T> + Combine<$register, T>,
            Min: Combine<__m128i, T> + Combine<$register, T>,
            Max: Combine<__m128i, T> + Combine<$register, T>,
        {
            by_op!(op, $reduce_fns_of<T>)
        }

        fn $reduce_fns_of<T, O: Combine<__m128i, T> + Combine<$register, T>>() -> ReduceFns {
            ReduceFns { short: reduce_short::<T, O>, long: $long::<T, O> }
        }

        /// # Safety
        /// As [`ReduceFn`](super::operations::ReduceFn), with a register of bytes or more.
        #[target_feature(enable = $features)]
        unsafe fn $long<T, O: Combine<$register, T>>(
            into: *mut u8,
            also: *mut u8,
            sources: &[View<'_>],
            len: usize,
        ) {
            // SAFETY: passed on to our caller; the instruction set is enabled here.
            unsafe { loops::reduce_long::<$register, T, O>(into, also, sources, len) }
        }
    };
}

reductions!(avx2_reduce_fns, avx2_reduce_fns_of, reduce_long_avx2, __m256i, "avx2,f16c");
reductions!(
    avx512_reduce_fns,
    avx512_reduce_fns_of,
    reduce_long_avx512,
    __m512i,
    "avx2,f16c,avx512f,avx512bw,avx512dq"
);

/// Reduces short buffers with registers of 128 bits, even if the CPU has AVX-512. A payload of a
/// few bytes often starts in the middle of a cache line, and a wider access would touch two lines.
///
/// # Safety
/// As [`ReduceFn`](super::operations::ReduceFn).
#[target_feature(enable = "avx2,f16c")]
unsafe fn reduce_short<T, O: Combine<__m128i, T>>(
    into: *mut u8,
    also: *mut u8,
    sources: &[View<'_>],
    len: usize,
) {
    // SAFETY: passed on to our caller; the instruction set is enabled here.
    unsafe { loops::reduce_short::<__m128i, T, O>(into, also, sources, len) }
}

/// The function that applies `F` to each element. To call it, the CPU must have AVX2 and F16C.
pub(super) fn map_fn<F, N>() -> MapFn<N>
where
    F: OnEach<__m128i, Number = N> + OnEach<__m256i, Number = N>,
{
    map::<F, N>
}

/// Multiplies or divides with registers of 256 bits. Wider ones would not be faster: memory
/// bandwidth bounds products, and the CPU's divider quotients.
///
/// # Safety
/// As [`MapFn`].
#[target_feature(enable = "avx2,f16c")]
unsafe fn map<F, N>(into: *mut u8, from: *const u8, len: usize, number: N)
where
    F: OnEach<__m128i, Number = N> + OnEach<__m256i, Number = N>,
{
    // SAFETY: passed on to our caller; the instruction set is enabled here.
    unsafe {
        if len < size_of::<__m256i>() {
            loops::map::<__m128i, F>(into, from, len, number);
        } else {
            loops::map_long::<__m256i, F>(into, from, len, number);
        }
    }
}

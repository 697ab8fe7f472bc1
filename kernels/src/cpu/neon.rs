//! aarch64: NEON, which every 64-bit Arm CPU has.

use super::intrinsics::{binary, lanes};
use super::operations::{
    And, Combine, MapFn, Max, Min, OnEach, Or, PartialRegister, Product, ReduceFns, Register, Sum,
    Xor, by_op,
};
use super::vector::Vector;
use super::{loops, partial};
use crate::BinaryOp;
use std::arch::aarch64::*;

/// The functions that combine elements `T` by `op`.
pub(super) fn reduce_fns<T>(op: BinaryOp) -> ReduceFns
where
    Sum: Combine<uint8x16_t, T>,
    Product: Combine<uint8x16_t, T>,
    Min: Combine<uint8x16_t, T>,
    Max: Combine<uint8x16_t, T>,
{
    by_op!(op, reduce_fns_of<T>)
}

fn reduce_fns_of<T, O: Combine<uint8x16_t, T>>() -> ReduceFns {
    ReduceFns {
        short: loops::reduce_short::<uint8x16_t, T, O>,
        long: loops::reduce_long::<uint8x16_t, T, O>,
    }
}

/// The function that applies `F` to each element.
pub(super) fn map_fn<F: OnEach<uint8x16_t, Number = N>, N>() -> MapFn<N> {
    loops::map::<uint8x16_t, F>
}

impl Register for uint8x16_t {}

impl PartialRegister for uint8x16_t {
    #[inline(always)]
    unsafe fn load_part(from: *const u8, len: usize) -> Self {
        // SAFETY: passed on to our caller.
        unsafe {
            let [low, high] = partial::load(from, len);
            vreinterpretq_u8_u64(vcombine_u64(vcreate_u64(low), vcreate_u64(high)))
        }
    }

    #[inline(always)]
    unsafe fn store_part(self, to: *mut u8, len: usize) {
        // SAFETY: passed on to our caller.
        unsafe {
            let lanes = vreinterpretq_u64_u8(self);
            partial::store([vgetq_lane_u64::<0>(lanes), vgetq_lane_u64::<1>(lanes)], to, len);
        }
    }
}

/// Multiplies lane by lane in scalar registers, because NEON has no product of 64-bit lanes.
#[inline(always)]
unsafe fn mul_u64(left: uint64x2_t, right: uint64x2_t) -> uint64x2_t {
    // SAFETY: the CPU has NEON.
    unsafe {
        let low = vgetq_lane_u64::<0>(left).wrapping_mul(vgetq_lane_u64::<0>(right));
        let high = vgetq_lane_u64::<1>(left).wrapping_mul(vgetq_lane_u64::<1>(right));
        vcombine_u64(vcreate_u64(low), vcreate_u64(high))
    }
}

/// Minima and maxima of 64-bit lanes. A comparison selects them, because NEON has no instruction for
/// them.
macro_rules! extremes {
    ($($min:ident $max:ident: $type:ty, $greater:ident $choose:ident;)*) => {$(
        #[inline(always)]
        unsafe fn $min(left: $type, right: $type) -> $type {
            // SAFETY: the CPU has NEON.
            unsafe { $choose($greater(left, right), right, left) }
        }

        #[inline(always)]
        unsafe fn $max(left: $type, right: $type) -> $type {
            // SAFETY: the CPU has NEON.
            unsafe { $choose($greater(left, right), left, right) }
        }
    )*};
}

extremes! {
    min_i64 max_i64: int64x2_t, vcgtq_s64 vbslq_s64;
    min_u64 max_u64: uint64x2_t, vcgtq_u64 vbslq_u64;
}

impl Vector for uint8x16_t {
    binary! {
        and: vandq_u8,
        or: vorrq_u8,
        xor: veorq_u8,
        add_8: vaddq_u8,
        min_u8: vminq_u8,
        max_u8: vmaxq_u8,
    }
    lanes! { vreinterpretq_s8_u8 vreinterpretq_u8_s8;
        min_i8: vminq_s8,
        max_i8: vmaxq_s8,
    }
    lanes! { vreinterpretq_u16_u8 vreinterpretq_u8_u16;
        add_16: vaddq_u16,
        mul_16: vmulq_u16,
        min_u16: vminq_u16,
        max_u16: vmaxq_u16,
    }
    lanes! { vreinterpretq_s16_u8 vreinterpretq_u8_s16;
        min_i16: vminq_s16,
        max_i16: vmaxq_s16,
    }
    lanes! { vreinterpretq_u32_u8 vreinterpretq_u8_u32;
        add_32: vaddq_u32,
        mul_32: vmulq_u32,
        min_u32: vminq_u32,
        max_u32: vmaxq_u32,
    }
    lanes! { vreinterpretq_s32_u8 vreinterpretq_u8_s32;
        min_i32: vminq_s32,
        max_i32: vmaxq_s32,
    }
    lanes! { vreinterpretq_u64_u8 vreinterpretq_u8_u64;
        add_64: vaddq_u64,
        mul_64: mul_u64,
        min_u64: min_u64,
        max_u64: max_u64,
    }
    lanes! { vreinterpretq_s64_u8 vreinterpretq_u8_s64;
        min_i64: min_i64,
        max_i64: max_i64,
    }
    // NEON's minimum and maximum are IEEE 754-2019's: a NaN operand gives a NaN, and -0 is below
    // +0.
    lanes! { vreinterpretq_f32_u8 vreinterpretq_u8_f32;
        add_f32: vaddq_f32,
        mul_f32: vmulq_f32,
        div_f32: vdivq_f32,
        minimum_f32: vminq_f32,
        maximum_f32: vmaxq_f32,
    }
    lanes! { vreinterpretq_f64_u8 vreinterpretq_u8_f64;
        add_f64: vaddq_f64,
        mul_f64: vmulq_f64,
        div_f64: vdivq_f64,
        minimum_f64: vminq_f64,
        maximum_f64: vmaxq_f64,
    }
    #[inline(always)]
    unsafe fn up_8_of_16(self) -> Self {
        // SAFETY: the CPU has NEON.
        unsafe { vreinterpretq_u8_u16(vshlq_n_u16::<8>(vreinterpretq_u16_u8(self))) }
    }

    #[inline(always)]
    unsafe fn down_8_of_16(self) -> Self {
        // SAFETY: the CPU has NEON.
        unsafe { vreinterpretq_u8_u16(vshrq_n_u16::<8>(vreinterpretq_u16_u8(self))) }
    }

    #[inline(always)]
    unsafe fn down_16_of_32(self) -> Self {
        // SAFETY: the CPU has NEON.
        unsafe { vreinterpretq_u8_u32(vshrq_n_u32::<16>(vreinterpretq_u32_u8(self))) }
    }

    #[inline(always)]
    unsafe fn up_16_of_32(self) -> Self {
        // SAFETY: the CPU has NEON.
        unsafe { vreinterpretq_u8_u32(vshlq_n_u32::<16>(vreinterpretq_u32_u8(self))) }
    }

    #[inline(always)]
    unsafe fn nan_mask_f32(self) -> Self {
        // SAFETY: the CPU has NEON.
        unsafe {
            let value = vreinterpretq_f32_u8(self);
            vmvnq_u8(vreinterpretq_u8_u32(vceqq_f32(value, value)))
        }
    }

    #[inline(always)]
    unsafe fn widen_f16(self) -> [Self; 2] {
        // SAFETY: the CPU has NEON.
        unsafe {
            let halves = vreinterpretq_f16_u8(self);
            let low = vcvt_f32_f16(vget_low_f16(halves));
            let high = vcvt_high_f32_f16(halves);
            [vreinterpretq_u8_f32(low), vreinterpretq_u8_f32(high)]
        }
    }

    #[inline(always)]
    unsafe fn narrow_f16([low, high]: [Self; 2]) -> Self {
        // SAFETY: the CPU has NEON.
        unsafe {
            let low = vcvt_f16_f32(vreinterpretq_f32_u8(low));
            vreinterpretq_u8_f16(vcvt_high_f16_f32(low, vreinterpretq_f32_u8(high)))
        }
    }
}

//! The operations that a vector instruction set implements, and the arithmetic written on them
//! once.
//!
//! An instruction set implements [`Vector`] for its register, mostly by one instruction a method.
//! Products of bytes and arithmetic on bf16 need several instructions in every instruction set, so
//! they are written here, on the methods of [`Vector`].

use super::operations::{And, Combine, Max, Min, Or, Product, Quotient, Register, Sum, Xor};
use half::{bf16, f16};

macro_rules! vector {
    ($($name:ident)*) => {
        /// A register of bits. The name of a method has the type of the lanes.
        ///
        /// # Safety
        /// Every method needs a CPU that has the register's instruction set.
        pub(super) trait Vector: Register {
            $(unsafe fn $name(self, other: Self) -> Self;)*
            /// Shifts 16-bit lanes left by 8 bits.
            unsafe fn up_8_of_16(self) -> Self;
            /// Shifts 16-bit lanes right by 8 bits, filling with zeros.
            unsafe fn down_8_of_16(self) -> Self;
            /// Shifts 32-bit lanes left by 16 bits.
            unsafe fn up_16_of_32(self) -> Self;
            /// Shifts 32-bit lanes right by 16 bits, filling with zeros.
            unsafe fn down_16_of_32(self) -> Self;
            /// Sets all bits of the f32 lanes where `self` is a NaN, and no bit of the others.
            unsafe fn nan_mask_f32(self) -> Self;
            /// Converts f16 to two registers of f32, in an order that `narrow_f16` undoes.
            unsafe fn widen_f16(self) -> [Self; 2];
            /// Converts f32 to f16, rounding to nearest, ties to even.
            unsafe fn narrow_f16(wide: [Self; 2]) -> Self;
        }
    };
}

vector! {
    and or xor
    add_8 add_16 add_32 add_64
    mul_16 mul_32 mul_64
    min_i8 min_i16 min_i32 min_i64 min_u8 min_u16 min_u32 min_u64
    max_i8 max_i16 max_i32 max_i64 max_u8 max_u16 max_u32 max_u64
    add_f32 mul_f32 div_f32 minimum_f32 maximum_f32
    add_f64 mul_f64 div_f64 minimum_f64 maximum_f64
}

macro_rules! combine {
    ($($type:ty: $sum:ident $product:ident $min:ident $max:ident;)*) => {$(
        combine! { $type, Sum: $sum }
        combine! { $type, Product: $product }
        combine! { $type, Min: $min }
        combine! { $type, Max: $max }
    )*};
    ($type:ty, $op:ty: $method:ident) => {
        impl<R: Vector> Combine<R, $type> for $op {
            #[inline(always)]
            unsafe fn combine(left: R, right: R) -> R {
                // SAFETY: the caller's CPU has the instruction set.
                unsafe { left.$method(right) }
            }
        }
    };
}

combine! {
    i16: add_16 mul_16 min_i16 max_i16;
    u16: add_16 mul_16 min_u16 max_u16;
    i32: add_32 mul_32 min_i32 max_i32;
    u32: add_32 mul_32 min_u32 max_u32;
    i64: add_64 mul_64 min_i64 max_i64;
    u64: add_64 mul_64 min_u64 max_u64;
    f32: add_f32 mul_f32 minimum_f32 maximum_f32;
    f64: add_f64 mul_f64 minimum_f64 maximum_f64;
}
combine! { i8, Sum: add_8 }
combine! { i8, Min: min_i8 }
combine! { i8, Max: max_i8 }
combine! { u8, Sum: add_8 }
combine! { u8, Min: min_u8 }
combine! { u8, Max: max_u8 }
// For integers of every size, byte by byte.
combine! { u8, And: and }
combine! { u8, Or: or }
combine! { u8, Xor: xor }

macro_rules! byte_product {
    ($($type:ty)*) => {$(
        impl<R: Vector> Combine<R, $type> for Product {
            #[inline(always)]
            unsafe fn combine(left: R, right: R) -> R {
                // SAFETY: the caller's CPU has the instruction set.
                unsafe {
                    // Multiplies even and odd bytes separately, as 16-bit lanes. The low byte of a
                    // product depends on the low bytes of its factors alone.
                    let even = left.mul_16(right).and(lanes_of::<R, 0x00ff_00ff>());
                    let odd = left.down_8_of_16().mul_16(right.down_8_of_16()).up_8_of_16();
                    even.or(odd)
                }
            }
        }
    )*};
}

byte_product! { i8 u8 }

/// A register of equal lanes, from constant memory.
#[inline(always)]
unsafe fn lanes_of<R: Vector, const LANE: u32>() -> R {
    const { assert!(R::BYTES <= size_of::<[u32; 16]>()) };
    // SAFETY: there are as many bytes as a register has.
    unsafe { R::load(const { &[LANE; 16] }.as_ptr().cast()) }
}

/// A register of equal lanes.
#[inline(always)]
unsafe fn repeated<R: Vector, T: Copy>(lane: T) -> R {
    let lanes = [lane; 16];
    const { assert!(R::BYTES <= 16 * size_of::<T>()) };
    // SAFETY: there are as many bytes as a register has.
    unsafe { R::load(lanes.as_ptr().cast()) }
}

macro_rules! combine_halves {
    ($($type:ty, $op:ty: $widen:path, $method:ident, $narrow:path;)*) => {$(
        impl<R: Vector> Combine<R, $type> for $op {
            #[inline(always)]
            unsafe fn combine(left: R, right: R) -> R {
                // SAFETY: the caller's CPU has the instruction set.
                unsafe {
                    let (left, right) = ($widen(left), $widen(right));
                    $narrow([left[0].$method(right[0]), left[1].$method(right[1])])
                }
            }
        }
    )*};
}

combine_halves! {
    f16, Sum: R::widen_f16, add_f32, R::narrow_f16;
    f16, Product: R::widen_f16, mul_f32, R::narrow_f16;
    f16, Min: R::widen_f16, minimum_f32, R::narrow_f16;
    f16, Max: R::widen_f16, maximum_f32, R::narrow_f16;
    bf16, Sum: widen_bf16, add_f32, round_bf16;
    bf16, Product: widen_bf16, mul_f32, round_bf16;
    // The result is one of two bf16 or a NaN, so nothing is rounded.
    bf16, Min: widen_bf16, minimum_f32, truncate_bf16;
    bf16, Max: widen_bf16, maximum_f32, truncate_bf16;
}

/// The upper half of each 32-bit lane.
const UPPER: u32 = 0xffff_0000;

/// Converts bf16 to f32: those with even places, and those with odd ones.
#[inline(always)]
unsafe fn widen_bf16<R: Vector>(halves: R) -> [R; 2] {
    // SAFETY: the caller's CPU has the instruction set.
    unsafe { [halves.up_16_of_32(), halves.and(lanes_of::<R, UPPER>())] }
}

/// Converts f32 to bf16, in the order that [`widen_bf16`] made.
#[inline(always)]
unsafe fn truncate_bf16<R: Vector>([even, odd]: [R; 2]) -> R {
    // SAFETY: the caller's CPU has the instruction set.
    unsafe { even.down_16_of_32().or(odd.and(lanes_of::<R, UPPER>())) }
}

/// Rounds f32 to bf16: to nearest, ties to even. Adding 0x7fff (just under half of the last kept
/// bit) carries into the upper half exactly if the value must be rounded up; adding the last kept
/// bit rounds a tie to even. The additions could turn a NaN into a number, so all of its bits are set.
#[inline(always)]
unsafe fn round_bf16<R: Vector>(wide: [R; 2]) -> R {
    // SAFETY: the caller's CPU has the instruction set.
    unsafe {
        let mut rounded = wide;
        for half in &mut rounded {
            let is_odd = half.down_16_of_32().and(lanes_of::<R, 1>());
            let number = half.add_32(lanes_of::<R, 0x7fff>()).add_32(is_odd);
            *half = number.or(half.nan_mask_f32());
        }
        truncate_bf16(rounded)
    }
}

macro_rules! quotients {
    ($($type:ty: |$value:ident, $by:ident| $quotient:expr;)*) => {$(
        impl<R: Vector> Quotient<R> for $type {
            #[inline(always)]
            unsafe fn quotient($value: R, $by: u64) -> R {
                // SAFETY: the caller's CPU has the instruction set.
                unsafe { $quotient }
            }
        }
    )*};
}

quotients! {
    f32: |value, by| value.div_f32(repeated(by as f32));
    f64: |value, by| value.div_f64(repeated(by as f64));
    f16: |value, by| {
        let by = repeated(by as f32);
        let [low, high] = value.widen_f16();
        R::narrow_f16([low.div_f32(by), high.div_f32(by)])
    };
    bf16: |value, by| {
        let by = repeated(by as f32);
        let [even, odd] = widen_bf16(value);
        round_bf16([even.div_f32(by), odd.div_f32(by)])
    };
}

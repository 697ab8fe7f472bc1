//! The arithmetic in plain Rust. Every instruction set gives the same results as this code, and
//! machines without a supported instruction set run it.

use super::loops;
use super::operations::{
    And, Combine, MapFn, Max, Min, OnEach, Or, PartialRegister, Product, Quotient, ReduceFns,
    Register, Sum, Xor, by_op,
};
use crate::{BinaryOp, View};
use half::{bf16, f16};
use std::ops::{BitAnd, BitOr, BitXor};

/// A number of a type for which every bit pattern is a value: how two numbers combine, and how a
/// number is divided.
pub(super) trait PortableElement: Copy {
    /// As many elements as fill 16 bytes.
    type Register: PartialRegister;
    const ZERO: Self;
    fn sum(self, other: Self) -> Self;
    fn product(self, other: Self) -> Self;
    fn least(self, other: Self) -> Self;
    fn greatest(self, other: Self) -> Self;
    fn quotient(self, by: u64) -> Self;
}

macro_rules! element {
    ($type:ty: $zero:expr; |$a:ident, $b:ident| $sum:expr, $product:expr, $least:expr, $greatest:expr;
        |$value:ident, $by:ident| $quotient:expr
    ) => {
        impl PortableElement for $type {
            type Register = PortableRegister<$type, { 16 / size_of::<$type>() }>;
            const ZERO: Self = $zero;
            element! { sum($a, $b) $sum }
            element! { product($a, $b) $product }
            element! { least($a, $b) $least }
            element! { greatest($a, $b) $greatest }
            #[inline(always)]
            fn quotient(self, $by: u64) -> Self {
                let $value = self;
                $quotient
            }
        }
    };
    ($name:ident($a:ident, $b:ident) $value:expr) => {
        #[inline(always)]
        fn $name(self, $b: Self) -> Self {
            let $a = self;
            $value
        }
    };
}

// Integers wrap. Quotients of signed ones are those of magnitudes: `by` may be larger than the type
// can hold, and the most negative number has no positive counterpart.
macro_rules! integers {
    ($($type:ty)*; |$value:ident, $by:ident| $quotient:expr) => {$(
        element! { $type: 0;
            |a, b| a.wrapping_add(b), a.wrapping_mul(b), a.min(b), a.max(b);
            |$value, $by| $quotient as $type
        }
    )*};
}

macro_rules! unsigned {
    ($($type:ty)*) => { integers! { $($type)*; |value, by| u64::from(value) / by } };
}

macro_rules! signed {
    ($($type:ty)*) => {
        integers! { $($type)*; |value, by| {
            let size = (u64::from(value.unsigned_abs()) / by) as i64;
            if value < 0 { size.wrapping_neg() } else { size }
        } }
    };
}

unsigned! { u8 u16 u32 u64 }
signed! { i8 i16 i32 i64 }

macro_rules! floats {
    ($($type:ident)*) => {$(
        element! { $type: 0.0;
            |a, b| a + b, a * b,
            if a < b {
                a
            } else if b < a {
                b
            } else if a == b {
                // Equal bits, or zeros of both signs: -0 is the least, so OR keeps a sign bit.
                Self::from_bits(a.to_bits() | b.to_bits())
            } else {
                Self::NAN
            },
            if a > b {
                a
            } else if b > a {
                b
            } else if a == b {
                Self::from_bits(a.to_bits() & b.to_bits())
            } else {
                Self::NAN
            };
            |value, by| value / by as $type
        }
    )*};
}

floats! { f32 f64 }

// Computes in f32 and rounds once (to nearest, ties to even, in `from_f32`).
macro_rules! halves {
    ($($type:ty)*) => {$(
        element! { $type: <$type>::ZERO;
            |a, b| Self::from_f32(a.to_f32() + b.to_f32()),
            Self::from_f32(a.to_f32() * b.to_f32()),
            Self::from_f32(a.to_f32().least(b.to_f32())),
            Self::from_f32(a.to_f32().greatest(b.to_f32()));
            |value, by| Self::from_f32(value.to_f32() / by as f32)
        }
    )*};
}

halves! { f16 bf16 }

/// A register of `N` elements. The compiler may turn its loops into vector instructions.
#[derive(Clone, Copy)]
pub(super) struct PortableRegister<T, const N: usize>([T; N]);

impl<T: PortableElement, const N: usize> Register for PortableRegister<T, N> {}

impl<T: PortableElement, const N: usize> PartialRegister for PortableRegister<T, N> {
    #[inline(always)]
    unsafe fn load_part(from: *const u8, len: usize) -> Self {
        let mut elements = [T::ZERO; N];
        for (index, element) in elements.iter_mut().take(len / size_of::<T>()).enumerate() {
            // SAFETY: the caller is responsible for `len` bytes, and the element ends at `len` or before.
            *element = unsafe { from.cast::<T>().add(index).read_unaligned() };
        }
        Self(elements)
    }

    #[inline(always)]
    unsafe fn store_part(self, to: *mut u8, len: usize) {
        for (index, element) in self.0.into_iter().take(len / size_of::<T>()).enumerate() {
            // SAFETY: the caller is responsible for `len` bytes, and the element ends at `len` or before.
            unsafe { to.cast::<T>().add(index).write_unaligned(element) };
        }
    }
}

macro_rules! combine {
    ($op:ty: $method:ident of [$($bound:tt)*] $type:ty) => {
        impl<$($bound)* const N: usize> Combine<PortableRegister<$type, N>, $type> for $op {
            #[inline(always)]
            unsafe fn combine(
                mut left: PortableRegister<$type, N>,
                right: PortableRegister<$type, N>,
            ) -> PortableRegister<$type, N> {
                for lane in 0..N {
                    left.0[lane] = left.0[lane].$method(right.0[lane]);
                }
                left
            }
        }
    };
}

combine! { Sum: sum of [T: PortableElement,] T }
combine! { Product: product of [T: PortableElement,] T }
combine! { Min: least of [T: PortableElement,] T }
combine! { Max: greatest of [T: PortableElement,] T }
combine! { And: bitand of [] u8 }
combine! { Or: bitor of [] u8 }
combine! { Xor: bitxor of [] u8 }

impl<T: PortableElement, const N: usize> Quotient<PortableRegister<T, N>> for T {
    #[inline(always)]
    unsafe fn quotient(mut value: PortableRegister<T, N>, by: u64) -> PortableRegister<T, N> {
        for element in &mut value.0 {
            *element = element.quotient(by);
        }
        value
    }
}

/// The functions that combine elements `T` by `op`.
pub(super) fn reduce_fns<T: PortableElement>(op: BinaryOp) -> ReduceFns
where
    Sum: Combine<T::Register, T>,
    Product: Combine<T::Register, T>,
    Min: Combine<T::Register, T>,
    Max: Combine<T::Register, T>,
{
    by_op!(op, reduce_fns_of<T>)
}

/// One function serves all lengths: unrolling the conversions of f16 and bf16 in software tripled
/// the build time of this crate.
fn reduce_fns_of<
    T: PortableElement,
    O: Combine<T::Register, T> + Combine<PortableRegister<T, 1>, T>,
>() -> ReduceFns {
    ReduceFns { short: reduce::<T, O>, long: reduce::<T, O> }
}

/// Reduces less than 16 bytes element by element, because filling a part of an array would take
/// longer than the arithmetic.
///
/// # Safety
/// As [`ReduceFn`](super::operations::ReduceFn).
unsafe fn reduce<
    T: PortableElement,
    O: Combine<T::Register, T> + Combine<PortableRegister<T, 1>, T>,
>(
    into: *mut u8,
    also: *mut u8,
    sources: &[View<'_>],
    len: usize,
) {
    // SAFETY: passed on to our caller.
    unsafe {
        if len < T::Register::BYTES {
            loops::reduce_short::<PortableRegister<T, 1>, T, O>(into, also, sources, len);
        } else {
            loops::reduce_short::<T::Register, T, O>(into, also, sources, len);
        }
    }
}

/// The function that applies `F` to each element `T`.
pub(super) fn map_fn<T: PortableElement, F: OnEach<T::Register>>() -> MapFn<F::Number> {
    loops::map::<T::Register, F>
}

//! The arithmetic in plain Rust. Every instruction set gives the same results as this code, and
//! machines without a supported instruction set run it.

use super::loops;
use super::operations::{
    And, Combine, DivideFn, Max, Min, Or, PartialRegister, Product, Quotient, ReduceFns, Register,
    ScaleFn, Sum, Xor, by_op,
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

macro_rules! integer {
    ($($type:ty: |$value:ident, $by:ident| $quotient:expr;)*) => {$(
        impl PortableElement for $type {
            type Register = PortableRegister<$type, { 16 / size_of::<$type>() }>;
            const ZERO: Self = 0;
            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn product(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            #[inline(always)]
            fn least(self, other: Self) -> Self {
                self.min(other)
            }
            #[inline(always)]
            fn greatest(self, other: Self) -> Self {
                self.max(other)
            }
            #[inline(always)]
            fn quotient(self, $by: u64) -> Self {
                let $value = self;
                $quotient
            }
        }
    )*};
}

// Divides magnitudes: `by` may be larger than the type can hold, and the most negative number has
// no positive counterpart.
macro_rules! signed {
    ($($type:ty)*) => {
        integer! {$(
            $type: |value, by| {
                let size = (u64::from(value.unsigned_abs()) / by) as $type;
                if value < 0 { size.wrapping_neg() } else { size }
            };
        )*}
    };
}

macro_rules! unsigned {
    ($($type:ty)*) => {
        integer! {$($type: |value, by| (u64::from(value) / by) as $type;)*}
    };
}

signed! { i8 i16 i32 i64 }
unsigned! { u8 u16 u32 u64 }

macro_rules! float {
    ($($type:ty)*) => {$(
        impl PortableElement for $type {
            type Register = PortableRegister<$type, { 16 / size_of::<$type>() }>;
            const ZERO: Self = 0.0;
            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                self + other
            }
            #[inline(always)]
            fn product(self, other: Self) -> Self {
                self * other
            }
            #[inline(always)]
            fn least(self, other: Self) -> Self {
                if self < other {
                    self
                } else if other < self {
                    other
                } else if self == other {
                    // Equal bits, or zeros of both signs: -0 is the least, so OR keeps a sign bit.
                    Self::from_bits(self.to_bits() | other.to_bits())
                } else {
                    Self::NAN
                }
            }
            #[inline(always)]
            fn greatest(self, other: Self) -> Self {
                if self > other {
                    self
                } else if other > self {
                    other
                } else if self == other {
                    Self::from_bits(self.to_bits() & other.to_bits())
                } else {
                    Self::NAN
                }
            }
            #[inline(always)]
            fn quotient(self, by: u64) -> Self {
                self / by as $type
            }
        }
    )*};
}

float! { f32 f64 }

// Computes in f32 and rounds once (to nearest, ties to even, in `from_f32`).
macro_rules! half {
    ($($type:ty)*) => {$(
        impl PortableElement for $type {
            type Register = PortableRegister<$type, { 16 / size_of::<$type>() }>;
            const ZERO: Self = <$type>::ZERO;
            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                Self::from_f32(self.to_f32() + other.to_f32())
            }
            #[inline(always)]
            fn product(self, other: Self) -> Self {
                Self::from_f32(self.to_f32() * other.to_f32())
            }
            #[inline(always)]
            fn least(self, other: Self) -> Self {
                Self::from_f32(self.to_f32().least(other.to_f32()))
            }
            #[inline(always)]
            fn greatest(self, other: Self) -> Self {
                Self::from_f32(self.to_f32().greatest(other.to_f32()))
            }
            #[inline(always)]
            fn quotient(self, by: u64) -> Self {
                Self::from_f32(self.to_f32() / by as f32)
            }
        }
    )*};
}

half! { f16 bf16 }

/// A register of `N` elements. The compiler may turn its loops into vector instructions.
#[derive(Clone, Copy)]
pub(super) struct PortableRegister<T, const N: usize>([T; N]);

impl<T: PortableElement, const N: usize> Register for PortableRegister<T, N> {
    const BYTES: usize = size_of::<[T; N]>();

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller is responsible for the bytes; any bits are a `PortableElement`.
        unsafe { Self(from.cast::<[T; N]>().read_unaligned()) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller is responsible for the bytes.
        unsafe { to.cast::<[T; N]>().write_unaligned(self.0) }
    }
}

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

/// The function that multiplies elements `T`.
pub(super) fn scale_fn<T: PortableElement>() -> ScaleFn
where
    Product: Combine<T::Register, T>,
{
    loops::scale::<T::Register, T>
}

/// The function that divides elements `T`.
pub(super) fn divide_fn<T: PortableElement + Quotient<T::Register>>() -> DivideFn {
    loops::divide::<T::Register, T>
}

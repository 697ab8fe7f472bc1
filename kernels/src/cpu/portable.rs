//! The arithmetic contract in plain Rust: what every other file here must agree with, and the fold
//! of any machine whose vector instructions are not known here.

use super::instruction_set::{Passes, by_op};
use super::loops::{
    self, And, Divide, Max, Min, Or, Partial, Product, Quotient, Register, Scale, Step, Sum, Xor,
};
use crate::{BinaryOp, View};
use half::{bf16, f16};
use std::ops::{BitAnd, BitOr, BitXor};

/// One number, for which any bits are a value: how two combine, and how one is divided.
pub(super) trait Element: Copy {
    /// As many as fill 16 bytes.
    type Chunk: Partial;
    const ZERO: Self;
    fn sum(self, other: Self) -> Self;
    fn product(self, other: Self) -> Self;
    fn least(self, other: Self) -> Self;
    fn greatest(self, other: Self) -> Self;
    fn quotient(self, by: u64) -> Self;
}

macro_rules! integer {
    ($($type:ty: |$value:ident, $by:ident| $quotient:expr;)*) => {$(
        impl Element for $type {
            type Chunk = Elements<$type, { 16 / size_of::<$type>() }>;
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

// A quotient of magnitudes: `by` may be more than the type can hold, and the most negative number
// has no opposite.
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
        impl Element for $type {
            type Chunk = Elements<$type, { 16 / size_of::<$type>() }>;
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
                match () {
                    () if self < other => self,
                    () if other < self => other,
                    // Equal bits, or zeros: one sign bit makes the result negative.
                    () if self == other => Self::from_bits(self.to_bits() | other.to_bits()),
                    () => Self::NAN,
                }
            }
            #[inline(always)]
            fn greatest(self, other: Self) -> Self {
                match () {
                    () if self > other => self,
                    () if other > self => other,
                    () if self == other => Self::from_bits(self.to_bits() & other.to_bits()),
                    () => Self::NAN,
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

// One step in f32, one rounding (to nearest, ties to even, in `from_f32`).
macro_rules! half {
    ($($type:ty)*) => {$(
        impl Element for $type {
            type Chunk = Elements<$type, { 16 / size_of::<$type>() }>;
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

/// `N` elements, as many as fill 16 bytes: a register for compilers that find vectors themselves.
#[derive(Clone, Copy)]
pub(super) struct Elements<T, const N: usize>([T; N]);

impl<T: Element, const N: usize> Register for Elements<T, N> {
    const BYTES: usize = size_of::<[T; N]>();

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller answers for the bytes; any bits are an `Element`.
        unsafe { Self(from.cast::<[T; N]>().read_unaligned()) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller answers for the bytes.
        unsafe { to.cast::<[T; N]>().write_unaligned(self.0) }
    }
}

impl<T: Element, const N: usize> Partial for Elements<T, N> {
    #[inline(always)]
    unsafe fn load_part(from: *const u8, len: usize) -> Self {
        let mut elements = [T::ZERO; N];
        for (index, element) in elements.iter_mut().take(len / size_of::<T>()).enumerate() {
            // SAFETY: the caller answers for `len` bytes, and the element ends at `len` or before.
            *element = unsafe { from.cast::<T>().add(index).read_unaligned() };
        }
        Self(elements)
    }

    #[inline(always)]
    unsafe fn store_part(self, to: *mut u8, len: usize) {
        for (index, element) in self.0.into_iter().take(len / size_of::<T>()).enumerate() {
            // SAFETY: the caller answers for `len` bytes, and the element ends at `len` or before.
            unsafe { to.cast::<T>().add(index).write_unaligned(element) };
        }
    }
}

macro_rules! steps {
    ($($op:ty: $method:ident;)*) => {$(
        impl<T: Element, const N: usize> Step<Elements<T, N>, T> for $op {
            #[inline(always)]
            unsafe fn step(mut left: Elements<T, N>, right: Elements<T, N>) -> Elements<T, N> {
                for lane in 0..N {
                    left.0[lane] = left.0[lane].$method(right.0[lane]);
                }
                left
            }
        }
    )*};
}

steps! {
    Sum: sum;
    Product: product;
    Min: least;
    Max: greatest;
}

macro_rules! bit_steps {
    ($($op:ty: $method:ident;)*) => {$(
        impl<const N: usize> Step<Elements<u8, N>, u8> for $op {
            #[inline(always)]
            unsafe fn step(mut left: Elements<u8, N>, right: Elements<u8, N>) -> Elements<u8, N> {
                for lane in 0..N {
                    left.0[lane] = left.0[lane].$method(right.0[lane]);
                }
                left
            }
        }
    )*};
}

bit_steps! {
    And: bitand;
    Or: bitor;
    Xor: bitxor;
}

impl<T: Element, const N: usize> Quotient<Elements<T, N>> for T {
    #[inline(always)]
    unsafe fn quotient(mut value: Elements<T, N>, by: u64) -> Elements<T, N> {
        for element in &mut value.0 {
            *element = element.quotient(by);
        }
        value
    }
}

/// The fold of elements `T` by `op`.
pub(super) fn passes<T: Element>(op: BinaryOp) -> Passes
where
    Sum: Step<T::Chunk, T>,
    Product: Step<T::Chunk, T>,
    Min: Step<T::Chunk, T>,
    Max: Step<T::Chunk, T>,
{
    by_op!(op, passes_of<T>)
}

/// One loop for all lengths: unrolling software conversions of halves tripled the time that this
/// crate takes to build.
fn passes_of<T: Element, O: Step<T::Chunk, T> + Step<Elements<T, 1>, T>>() -> Passes {
    Passes { line: any::<T, O>, long: any::<T, O> }
}

/// Less than a chunk goes one by one: filling a part of an array costs more than the arithmetic.
///
/// # Safety
/// As [`loops::Pass`].
unsafe fn any<T: Element, O: Step<T::Chunk, T> + Step<Elements<T, 1>, T>>(
    into: *mut u8,
    also: *mut u8,
    sources: &[View<'_>],
    len: usize,
) {
    // SAFETY: passed on to our caller.
    unsafe {
        if len < T::Chunk::BYTES {
            loops::line::<Elements<T, 1>, T, O>(into, also, sources, len);
        } else {
            loops::line::<T::Chunk, T, O>(into, also, sources, len);
        }
    }
}

pub(super) fn scaler<T: Element>() -> Scale
where
    Product: Step<T::Chunk, T>,
{
    loops::scale::<T::Chunk, T>
}

pub(super) fn divider<T: Element + Quotient<T::Chunk>>() -> Divide {
    loops::divide::<T::Chunk, T>
}

//! The interface of an instruction set, and the types of the functions made of it.
//!
//! An instruction set implements [`Register`] for its registers, and [`Combine`] for each pair of
//! an element type and an operation. The functions of `loops` turn these into reductions of whole
//! buffers; [`ReduceFns`] holds the two functions of one reduction.

use crate::View;
use std::marker::PhantomData;

/// A register: the bytes that one instruction works on. Any bits are a value.
pub(super) trait Register: Copy {
    const BYTES: usize = size_of::<Self>();

    /// # Safety
    /// `from` has [`Self::BYTES`] readable bytes; the CPU has the register's instruction set.
    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller is responsible for the bytes; no alignment is needed.
        unsafe { from.cast::<Self>().read_unaligned() }
    }

    /// # Safety
    /// `to` has [`Self::BYTES`] writable bytes; the CPU has the register's instruction set.
    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller is responsible for the bytes; no alignment is needed.
        unsafe { to.cast::<Self>().write_unaligned(self) }
    }
}

/// A register whose first bytes alone can be loaded and stored.
pub(super) trait PartialRegister: Register {
    /// # Safety
    /// `from` has `len` readable bytes, `0 < len < Self::BYTES`; the CPU has the register's
    /// instruction set.
    unsafe fn load_part(from: *const u8, len: usize) -> Self;

    /// # Safety
    /// `to` has `len` writable bytes, `0 < len < Self::BYTES`; the CPU has the register's
    /// instruction set.
    unsafe fn store_part(self, to: *mut u8, len: usize);
}

/// How an operation (`Self`) combines two registers `R` of elements `T`.
pub(super) trait Combine<R, T> {
    /// # Safety
    /// The CPU has the register's instruction set.
    unsafe fn combine(left: R, right: R) -> R;
}

/// Division of a register of elements `Self`.
pub(super) trait Quotient<R> {
    /// # Safety
    /// The CPU has the register's instruction set; `by` is not zero.
    unsafe fn quotient(value: R, by: u64) -> R;
}

pub(super) struct Sum;
pub(super) struct Product;
pub(super) struct Min;
pub(super) struct Max;
pub(super) struct And;
pub(super) struct Or;
pub(super) struct Xor;

/// A reduction whose arguments have been checked: `into`, `also` (or null), the sources, and the
/// length of each in bytes.
///
/// # Safety
/// There is at least one source; all buffers have `len > 0` bytes, a multiple of the element size;
/// the CPU has the instruction set that the function was chosen for.
pub(super) type ReduceFn =
    unsafe fn(into: *mut u8, also: *mut u8, sources: &[View<'_>], len: usize);

/// The functions of one reduction.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReduceFns {
    /// For every length; fast for a cache line (64 bytes) or less.
    pub(super) short: ReduceFn,
    /// For [`LONG`] bytes or more.
    pub(super) long: ReduceFn,
}

/// Bytes from which on [`ReduceFns::long`] is used. No register is longer.
pub(super) const LONG: usize = 65;

/// An operation on each element of a buffer with one `number`, whose arguments have been checked:
/// `into = from op number`, `len` bytes. `from` may be `into`.
///
/// # Safety
/// There are `len > 0` bytes, a multiple of the element size; the number is no zero divisor; the CPU
/// has the instruction set that the function was chosen for.
pub(super) type MapFn<N> = unsafe fn(into: *mut u8, from: *const u8, len: usize, number: N);

/// One element, repeated to fill the longest register that multiplies by it.
pub(super) type RepeatedFactor = [u8; 32];

/// An operation with one number on a register of elements.
pub(super) trait OnEach<R> {
    /// Bytes of an element.
    const ELEMENT: usize;
    /// The number as a [`MapFn`] takes it.
    type Number: Copy;
    /// The number as each register is combined with it.
    type Operand: Copy;

    /// # Safety
    /// The CPU has the register's instruction set.
    unsafe fn operand(number: Self::Number) -> Self::Operand;

    /// # Safety
    /// The CPU has the register's instruction set; a divisor is not zero.
    unsafe fn apply(value: R, operand: Self::Operand) -> R;
}

/// Multiplication of elements `T`.
pub(super) struct Times<T>(PhantomData<T>);
/// Division of elements `T`.
pub(super) struct Over<T>(PhantomData<T>);

impl<R: Register, T> OnEach<R> for Times<T>
where
    Product: Combine<R, T>,
{
    const ELEMENT: usize = size_of::<T>();
    type Number = RepeatedFactor;
    type Operand = R;

    #[inline(always)]
    unsafe fn operand(factor: RepeatedFactor) -> R {
        const { assert!(R::BYTES <= size_of::<RepeatedFactor>()) };
        // SAFETY: the factor has the bytes of a register.
        unsafe { R::load(factor.as_ptr()) }
    }

    #[inline(always)]
    unsafe fn apply(value: R, factor: R) -> R {
        // SAFETY: passed on to our caller.
        unsafe { Product::combine(value, factor) }
    }
}

impl<R, T: Quotient<R>> OnEach<R> for Over<T> {
    const ELEMENT: usize = size_of::<T>();
    type Number = u64;
    type Operand = u64;

    #[inline(always)]
    unsafe fn operand(by: u64) -> u64 {
        by
    }

    #[inline(always)]
    unsafe fn apply(value: R, by: u64) -> R {
        // SAFETY: passed on to our caller.
        unsafe { T::quotient(value, by) }
    }
}

/// Calls `$make::<$type, O>` for the operation `O` that `$op` names. And, Or and Xor do not depend
/// on the type, so one function of each serves all integers.
macro_rules! by_op {
    ($op:expr, $make:ident<$type:ty>) => {
        match $op {
            BinaryOp::Sum => $make::<$type, Sum>(),
            BinaryOp::Product => $make::<$type, Product>(),
            BinaryOp::Min => $make::<$type, Min>(),
            BinaryOp::Max => $make::<$type, Max>(),
            BinaryOp::And => $make::<u8, And>(),
            BinaryOp::Or => $make::<u8, Or>(),
            BinaryOp::Xor => $make::<u8, Xor>(),
        }
    };
}
pub(super) use by_op;

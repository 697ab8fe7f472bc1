//! The folds: the one operation that every lowered step of a schedule performs.
//!
//! Elements combine from left to right, and every binary step rounds on its own: no fused
//! multiply-add, no tree, no wider sum carried along. So the same sources in the same order give
//! the same bits on every machine and at every level of vector instructions (a NaN stays a NaN, but
//! which one is not promised).
//!
//! | file | idea |
//! |---|---|
//! | `loops` | the shape of a fold over any register: loops, tails, one or two destinations |
//! | `portable` | the arithmetic in plain Rust: what all else must agree with |
//! | `vector` | the same arithmetic in a vocabulary of vector operations |
//! | `x86`, `neon` | that vocabulary in AVX2, AVX-512 and NEON (with `intrinsics` and `partial`: shorthand, short lengths) |
//! | `custom` | a fold by a function of the user's |
//! | `instruction_set` | which of these a machine has, and the table of functions |

mod custom;
mod instruction_set;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod intrinsics;
mod loops;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod partial;
mod portable;
#[cfg(test)]
mod tests;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod vector;
#[cfg(target_arch = "x86_64")]
mod x86;

use crate::{BinaryOp, DataType, Scalar, View, ViewMut};
pub use custom::{CustomReducer, Reducer};
use instruction_set::{LONG, Level, Passes};
use loops::Lanes;
use std::ptr::null_mut;

/// Combines k sources, in order, into one or two destinations.
///
/// A `BuiltInReducer` is two function pointers, chosen once for the machine: keep it, copy it, and apply it
/// as often as needed.
///
/// ```
/// use maypole_kernels::{BinaryOp, DataType, BuiltInReducer, View, ViewMut};
///
/// let (mut mine, yours) = ([1.0f32, 2.0], [10.0f32, 20.0]);
/// let into = ViewMut::of(&mut mine);
/// // A destination may be a source: this is `mine += yours`.
/// BuiltInReducer::new(DataType::F32, BinaryOp::Sum).apply(into, None, &[into.as_view(), View::of(&yours)]);
/// assert_eq!(mine, [11.0, 22.0]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct BuiltInReducer {
    passes: Passes,
    /// The element size less one: the bits that a length must not have.
    partial: usize,
}

impl BuiltInReducer {
    /// The fastest fold this machine has for elements of `kind`, combined by `op`.
    ///
    /// # Panics
    /// If `kind` has no such operation: see [`BinaryOp::supports`].
    pub fn new(kind: DataType, op: BinaryOp) -> Self {
        Self::at(Level::best(), kind, op)
    }

    /// The machine must have `level`.
    fn at(level: Level, kind: DataType, op: BinaryOp) -> Self {
        assert!(op.supports(kind), "{op:?} works on the bits of integers, not on {}", kind.name());
        Self { passes: level.passes(kind, op), partial: kind.size() - 1 }
    }

    /// `into = (((s0 op s1) op s2) ...)`, element by element; the same to `also`. One source is
    /// copied as it is.
    ///
    /// Buffers may start at any address. A destination may be a source, or the other destination.
    /// One that overlaps a source in any other way leaves unspecified numbers in the destinations.
    ///
    /// # Panics
    /// If there is no source, if the lengths are not all equal, or if they are no multiple of the
    /// element size.
    #[inline]
    pub fn apply(&self, into: ViewMut<'_>, also: Option<ViewMut<'_>>, sources: &[View<'_>]) {
        let len = check(into, also, sources, self.partial);
        if let [source] = *sources {
            into.copy_from(source);
            if let Some(also) = also {
                also.copy_from(source);
            }
        } else if len > 0 {
            let pass = if len < LONG { self.passes.line } else { self.passes.long };
            let also = also.map_or(null_mut(), ViewMut::as_mut_ptr);
            // SAFETY: all buffers have `len` bytes, above; `at` was given a level that the machine
            // has.
            unsafe { pass(into.as_mut_ptr(), also, sources, len) }
        }
    }
}

/// The length of all buffers of a fold, which is a multiple of the element size: `partial` is that
/// less one.
#[inline(always)]
fn check(
    into: ViewMut<'_>,
    also: Option<ViewMut<'_>>,
    sources: &[View<'_>],
    partial: usize,
) -> usize {
    let len = into.len();
    let equal = sources.iter().all(|source| source.len() == len)
        && also.is_none_or(|also| also.len() == len);
    if sources.is_empty() || !equal || len & partial != 0 {
        refuse(into, also, sources, partial + 1);
    }
    len
}

/// Says what is wrong with the arguments of a fold.
#[cold]
#[inline(never)]
fn refuse(into: ViewMut<'_>, also: Option<ViewMut<'_>>, sources: &[View<'_>], size: usize) -> ! {
    assert!(!sources.is_empty(), "a fold needs at least one source");
    let lens: Vec<_> = sources.iter().map(|source| source.len()).collect();
    let (into, also) = (into.len(), also.map(ViewMut::len));
    assert!(
        into.is_multiple_of(size),
        "a fold into {into} bytes, which is no multiple of the element size {size}"
    );
    panic!("a fold needs equal lengths, not {into} bytes (and {also:?}) from sources of {lens:?}");
}

/// Divides every element by `by`: the end of an average.
///
/// Floats round once, to nearest, ties to even (`by` is first rounded to the element type, or to
/// f32 for f16 and bf16, which are divided in f32). Integers truncate toward zero.
///
/// ```
/// use maypole_kernels::{DataType, ViewMut, divide};
///
/// let mut sums = [7i32, -7, 9];
/// divide(ViewMut::of(&mut sums), DataType::I32, 2);
/// assert_eq!(sums, [3, -3, 4]);
/// ```
///
/// # Panics
/// If `by` is zero, or if the length of `values` is no multiple of the element size.
pub fn divide(values: ViewMut<'_>, kind: DataType, by: u64) {
    divide_at(Level::best(), values, kind, by);
}

/// The machine must have `level`.
fn divide_at(level: Level, values: ViewMut<'_>, kind: DataType, by: u64) {
    let (len, size) = (values.len(), kind.size());
    assert!(by != 0, "cannot divide {} elements by zero", kind.name());
    assert!(
        len.is_multiple_of(size),
        "dividing {len} bytes, which is no multiple of the element size {size}"
    );
    if len > 0 {
        // SAFETY: `len` bytes live in the view, `by` is not zero, the machine has the level.
        unsafe { level.divide(kind)(values.as_mut_ptr(), len, by) }
    }
}

/// `into = from * factor`, element by element. `from` may be `into`; one that overlaps it in any
/// other way leaves unspecified numbers there.
///
/// Integers wrap; f16 and bf16 are multiplied in f32 and rounded once.
///
/// ```
/// use maypole_kernels::{DataType, Scalar, View, ViewMut, scale};
///
/// let (numbers, mut halves) = ([3.0f32, -1.0], [0.0f32; 2]);
/// let half = Scalar::from_f64(DataType::F32, 0.5).unwrap();
/// scale(ViewMut::of(&mut halves), View::of(&numbers), half);
/// assert_eq!(halves, [1.5, -0.5]);
/// ```
///
/// # Panics
/// If the lengths differ or are no multiple of the element size.
pub fn scale(into: ViewMut<'_>, from: View<'_>, factor: Scalar) {
    scale_at(Level::best(), into, from, factor);
}

/// The machine must have `level`.
fn scale_at(level: Level, into: ViewMut<'_>, from: View<'_>, factor: Scalar) {
    let (len, size) = (into.len(), factor.kind().size());
    assert_eq!(len, from.len(), "scaling needs equal lengths");
    assert!(
        len.is_multiple_of(size),
        "scaling {len} bytes, which is no multiple of the element size {size}"
    );
    let lanes: Lanes = std::array::from_fn(|at| factor.bytes()[at % size]);
    if len > 0 {
        // SAFETY: `len` bytes live in both views, the machine has the level.
        unsafe { level.scale(factor.kind())(into.as_mut_ptr(), from.as_ptr(), len, &lanes) }
    }
}

//! Multiplication and division of all elements by one number.

use super::instruction_set::InstructionSet;
use super::operations::RepeatedFactor;
use crate::{DataType, Scalar, View, ViewMut};

/// Computes `into = from / by`, element by element. `from` may be the same memory as `into`. If it
/// overlaps `into` in any other way, `into` holds unspecified numbers afterwards.
///
/// Floats round once, to nearest, ties to even (`by` is first rounded to the element type, or to
/// f32 for f16 and bf16, which are divided in f32). Integers truncate toward zero.
///
/// ```
/// use maypole_kernels::{DataType, View, ViewMut, divide};
///
/// let mut sums = [7i32, -7, 9];
/// let mut halves = [0.0f32; 2];
/// let all = ViewMut::of(&mut sums);
/// divide(all, all.as_view(), DataType::I32, 2);
/// divide(ViewMut::of(&mut halves), View::of(&[3.0f32, -1.0]), DataType::F32, 2);
/// assert_eq!((sums, halves), ([3, -3, 4], [1.5, -0.5]));
/// ```
///
/// # Panics
/// If `by` is zero, or if the lengths differ or are no multiple of the element size.
pub fn divide(into: ViewMut<'_>, from: View<'_>, kind: DataType, by: u64) {
    divide_with(InstructionSet::best(), into, from, kind, by);
}

/// As [`divide`], with `instructions`, which the machine must have.
pub(super) fn divide_with(
    instructions: InstructionSet,
    into: ViewMut<'_>,
    from: View<'_>,
    kind: DataType,
    by: u64,
) {
    let len = into.len();
    let size = kind.size();
    assert!(by != 0, "cannot divide {} elements by zero", kind.name());
    assert_eq!(len, from.len(), "a division needs equal lengths");
    assert!(
        len.is_multiple_of(size),
        "cannot divide {len} bytes: that is no multiple of the element size {size}"
    );
    if len > 0 {
        // SAFETY: both views have `len` bytes, a multiple of the element size; `by` is not zero; the
        // machine has the instructions.
        unsafe { instructions.divide(kind)(into.as_mut_ptr(), from.as_ptr(), len, by) }
    }
}

/// Computes `into = from * factor`, element by element. `from` may be the same memory as `into`.
/// If it overlaps `into` in any other way, `into` holds unspecified numbers afterwards.
///
/// Integers wrap; f16 and bf16 are multiplied in f32 and rounded once.
///
/// ```
/// use maypole_kernels::{DataType, Scalar, View, ViewMut, scale};
///
/// let numbers = [3.0f32, -1.0];
/// let mut halves = [0.0f32; 2];
/// let half = Scalar::from_f64(DataType::F32, 0.5).unwrap();
/// scale(ViewMut::of(&mut halves), View::of(&numbers), half);
/// assert_eq!(halves, [1.5, -0.5]);
/// ```
///
/// # Panics
/// If the lengths differ or are no multiple of the element size.
pub fn scale(into: ViewMut<'_>, from: View<'_>, factor: Scalar) {
    scale_with(InstructionSet::best(), into, from, factor);
}

/// As [`scale`], with `instructions`, which the machine must have.
pub(super) fn scale_with(
    instructions: InstructionSet,
    into: ViewMut<'_>,
    from: View<'_>,
    factor: Scalar,
) {
    let len = into.len();
    let size = factor.kind().size();
    assert_eq!(len, from.len(), "scaling needs equal lengths");
    assert!(
        len.is_multiple_of(size),
        "cannot scale {len} bytes: that is no multiple of the element size {size}"
    );
    let repeated: RepeatedFactor = std::array::from_fn(|at| factor.bytes()[at % size]);
    if len > 0 {
        let scale = instructions.scale(factor.kind());
        // SAFETY: both views have `len` bytes, a multiple of the element size; the machine has the
        // instructions.
        unsafe { scale(into.as_mut_ptr(), from.as_ptr(), len, repeated) }
    }
}

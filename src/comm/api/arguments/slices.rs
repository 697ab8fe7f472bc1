//! The memory that a call or a message reads or writes, of any type of elements.

use crate::element::{DataType, Element, Written};
use maypole_kernels::{View, ViewMut};

/// Elements of type `T` that a call reads: `&input`, or an [`AnySlice`].
#[diagnostic::on_unimplemented(
    message = "a call cannot read `{Self}`",
    label = "this lends no elements to read",
    note = "lend a slice, an array, a `Vec` or another `AsRef<[T]>`: `&input`"
)]
pub trait IntoInput<'a, T> {
    /// The elements.
    fn into_input(self) -> AnySlice<'a>;
}

impl<'a, T: Element, A: AsRef<[T]> + ?Sized> IntoInput<'a, T> for &'a A {
    #[inline]
    fn into_input(self) -> AnySlice<'a> {
        let elements = self.as_ref();
        AnySlice {
            kind: T::DATA_TYPE,
            count: elements.len(),
            bytes: View::of(elements),
            is_any: false,
        }
    }
}

impl<'a, T: Element, A: AsRef<[T]> + ?Sized> IntoInput<'a, T> for &'a mut A {
    #[inline]
    fn into_input(self) -> AnySlice<'a> {
        (&*self).into_input()
    }
}

impl<'a> IntoInput<'a, AnyElement> for AnySlice<'a> {
    fn into_input(self) -> Self {
        self
    }
}

/// Elements of type `T` that a call writes: `&mut output`, or an [`AnySliceMut`].
#[diagnostic::on_unimplemented(
    message = "a call cannot write to `{Self}`",
    label = "this lends no elements to write",
    note = "lend a slice, an array, a `Vec` or another `AsMut<[T]>`: `&mut output`"
)]
pub trait IntoOutput<'a, T> {
    /// The elements.
    fn into_output(self) -> AnySliceMut<'a>;
}

impl<'a, T: Element, B: AsMut<[T]> + ?Sized> IntoOutput<'a, T> for &'a mut B {
    #[inline]
    fn into_output(self) -> AnySliceMut<'a> {
        let elements = self.as_mut();
        AnySliceMut {
            kind: T::DATA_TYPE,
            count: elements.len(),
            memory: T::written(elements),
            is_any: false,
        }
    }
}

impl<'a> IntoOutput<'a, AnyElement> for AnySliceMut<'a> {
    fn into_output(self) -> Self {
        self
    }
}

/// Stands for a dynamic type of elements: see [`AnySlice`].
#[derive(Clone, Copy, Debug)]
pub enum AnyElement {}

/// Elements of a dynamic type that a call reads: those of another language.
///
/// ```
/// use maypole::{AnySlice, AnySliceMut, Communicator, DataType, ReduceOp};
/// let sums = Communicator::run_local(2, |mut comm| {
///     let mut bytes = [0; 3];
///     let input = AnySlice::new(DataType::U8, &[1, 2, 3]);
///     let output = AnySliceMut::new(DataType::U8, &mut bytes);
///     comm.all_reduce((input, output), ReduceOp::Sum).unwrap();
///     bytes
/// });
/// assert_eq!(sums, [[2, 4, 6]; 2]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct AnySlice<'a> {
    pub(crate) kind: DataType,
    pub(super) count: usize,
    bytes: View<'a>,
    /// True if the bytes may be no elements.
    is_any: bool,
}

impl<'a> AnySlice<'a> {
    /// The elements of type `kind` that lie in `bytes`. They begin at a multiple of their size. Of
    /// `bool`s, every byte but 0 is true. A call refuses bytes that are no elements.
    pub fn new(kind: DataType, bytes: &'a [u8]) -> Self {
        Self { kind, count: bytes.len() / kind.size(), bytes: View::of(bytes), is_any: true }
    }

    /// Why the bytes are no elements.
    #[inline(always)]
    pub(crate) fn flaw(&self) -> Option<SliceFlaw> {
        if self.is_any { SliceFlaw::of(self.kind, self.bytes) } else { None }
    }

    /// The bytes, unless they are `bool`s of which every byte but 0 is true.
    #[inline(always)]
    pub(super) fn plain(&self) -> Option<View<'a>> {
        (!self.is_any || self.kind != DataType::Bool).then_some(self.bytes)
    }

    /// Calls `work` with the bytes.
    #[inline(always)]
    pub(crate) fn read<R>(self, work: impl FnOnce(View<'_>) -> R) -> R {
        if let Some(bytes) = self.plain() {
            return work(bytes);
        }
        let mut bytes = self.bytes.to_vec();
        Written::BoolBytes(&mut bytes).write(|bytes| work(bytes.as_view()))
    }
}

/// Elements of a dynamic type that a call writes: see [`AnySlice`].
#[derive(Debug)]
pub struct AnySliceMut<'a> {
    pub(crate) kind: DataType,
    pub(super) count: usize,
    pub(crate) memory: Written<'a>,
    is_any: bool,
}

impl<'a> AnySliceMut<'a> {
    /// The elements of type `kind` that lie in `bytes`: as [`AnySlice::new`].
    pub fn new(kind: DataType, bytes: &'a mut [u8]) -> Self {
        Self {
            kind,
            count: bytes.len() / kind.size(),
            memory: match kind {
                DataType::Bool => Written::BoolBytes(bytes),
                _ => Written::Elements(ViewMut::of(bytes)),
            },
            is_any: true,
        }
    }

    /// Why the bytes are no elements.
    #[inline(always)]
    pub(crate) fn flaw(&self) -> Option<SliceFlaw> {
        match &self.memory {
            Written::Elements(bytes) if self.is_any => SliceFlaw::of(self.kind, bytes.as_view()),
            _ => None,
        }
    }
}

/// Why bytes are not the elements of a call.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(crate) enum SliceFlaw {
    #[error("a buffer does not begin at a multiple of {0} bytes: copy it to one that does")]
    Start(usize),
    #[error("{bytes} bytes are no whole number of elements of {size} bytes")]
    Length { bytes: usize, size: usize },
    #[error("the input has elements of {}, and the output of {}", .0.name(), .1.name())]
    Kinds(DataType, DataType),
}

impl SliceFlaw {
    #[cold]
    fn of(kind: DataType, bytes: View<'_>) -> Option<Self> {
        let size = kind.size();
        if !bytes.len().is_multiple_of(size) {
            return Some(Self::Length { bytes: bytes.len(), size });
        }
        // No bytes are no elements, at any address.
        let is_aligned = bytes.is_empty() || bytes.as_ptr().addr().is_multiple_of(size);
        (!is_aligned).then_some(Self::Start(size))
    }
}

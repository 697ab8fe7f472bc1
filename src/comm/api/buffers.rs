//! What a call is given: memory to read, memory to write, and the lengths of blocks.

use crate::element::{DataType, Element, Written};
use crate::engine::calls::lengths::BufferLengths;
use maypole_kernels::{View, ViewMut};
use std::marker::PhantomData;

/// The buffers of a collective call, with elements of type `T`.
///
/// A call takes anything that [becomes](IntoBuffers) buffers:
///
/// | argument | meaning |
/// |---|---|
/// | `&mut data` | in place: `data` is input and output |
/// | `(&input, &mut output)` | apart |
/// | `(&input, &mut output, &counts)` | apart; the output is cut into blocks of these lengths, one a rank |
/// | `(&input, &counts, &mut output)` | apart; the input is cut into blocks of these lengths |
/// | `(&input, &sent, &mut output, &received)` | apart; both are cut, as an all-to-all needs it |
///
/// `data` and `output` are slices, arrays, `Vec`s, [`RegisteredBuffer`](crate::RegisteredBuffer)s
/// and all else that lends its elements by [`AsMut`]; `input` lends them by [`AsRef`]. Of elements
/// whose type is known at run time, an [`AnySliceMut`] takes the place of `&mut data`, and an
/// [`AnySlice`] that of `&input`. Each method says how long its buffers are. One that a rank does not
/// need may be empty: `&[]`, `&mut []`.
///
/// ```
/// use maypole::{Communicator, ReduceOp};
/// Communicator::run_local(2, |mut comm| {
///     let input = vec![1.5f32; 4];
///     let mut output = [0.0; 4];
///     comm.all_reduce((&input, &mut output), ReduceOp::Sum).unwrap();
///     comm.all_reduce(&mut output[..2], ReduceOp::Max).unwrap();
///     assert_eq!(output, [3.0; 4]);
///
///     // Rank r brings r + 1 elements.
///     let mine = vec![7u8; comm.rank() + 1];
///     let mut all = [0; 3];
///     comm.all_gather((&mine, &mut all, &[1, 2])).unwrap();
///     assert_eq!(all, [7; 3]);
/// });
/// ```
///
/// A slice in a variable is moved into a call. To use it again, lend it: `&mut *slice`.
#[derive(Debug)]
pub struct CallBuffers<'a, T> {
    /// `None` in place.
    pub(crate) input: Option<AnySlice<'a>>,
    pub(crate) output: AnySliceMut<'a>,
    /// The lengths of the blocks that the input is cut into, and the output.
    pub(crate) counts: [Option<&'a [usize]>; 2],
    elements: PhantomData<fn(T)>,
}

impl<'a, T> CallBuffers<'a, T> {
    #[inline]
    fn new(input: Option<AnySlice<'a>>, output: AnySliceMut<'a>) -> Self {
        Self { input, output, counts: [None; 2], elements: PhantomData }
    }

    /// The same buffers, cut into blocks of these lengths: the input, and the output. A collective
    /// that cuts one of the two takes either. An all-to-all that is given one takes it for both.
    #[must_use]
    pub fn with_counts(self, input: Option<&'a [usize]>, output: Option<&'a [usize]>) -> Self {
        Self { counts: [input, output], ..self }
    }

    #[inline]
    pub(crate) fn lengths(&self) -> BufferLengths {
        let output = self.output.count;
        match &self.input {
            None => BufferLengths::InPlace(output),
            Some(input) => BufferLengths::Apart { input: input.count, output },
        }
    }

    /// What makes these buffers unsuitable for any call.
    #[inline]
    pub(crate) fn flaw(&self) -> Option<SliceFlaw> {
        let input = self.input.as_ref();
        let kinds = input.filter(|input| input.kind != self.output.kind);
        let unequal = kinds.map(|input| SliceFlaw::Kinds(input.kind, self.output.kind));
        self.output.flaw.or(input.and_then(|input| input.flaw)).or(unequal)
    }

    /// Calls `work` with the input, unless it is the output, and with the output.
    #[inline(always)]
    pub(crate) fn lend<R>(self, work: impl FnOnce(Option<View<'_>>, ViewMut<'_>) -> R) -> R {
        self.output.memory.write(|output| match self.input {
            None => work(None, output),
            Some(input) => input.read(|input| work(Some(input), output)),
        })
    }
}

/// What becomes the [`CallBuffers`] of a call on elements of type `T`.
///
/// # Messages of the compiler
///
/// Elements of two types:
///
/// ```compile_fail,E0277
/// # use maypole::{Communicator, ReduceOp};
/// # fn rank(comm: &mut Communicator, input: [f32; 4], mut output: [f64; 4]) {
/// comm.all_reduce((&input, &mut output), ReduceOp::Sum);
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the buffers of a call",
    label = "these are not the buffers of a call",
    note = "a call takes `&mut data` in place, or `(&input, &mut output)`",
    note = "blocks of unequal lengths: `(&input, &mut output, &counts)`, or `&counts` behind `&input`"
)]
pub trait IntoBuffers<'a, T> {
    /// The buffers.
    fn into_buffers(self) -> CallBuffers<'a, T>;
}

impl<'a, T> IntoBuffers<'a, T> for CallBuffers<'a, T> {
    #[inline]
    fn into_buffers(self) -> Self {
        self
    }
}

impl<'a, T: Element, B: AsMut<[T]> + ?Sized> IntoBuffers<'a, T> for &'a mut B {
    #[inline]
    fn into_buffers(self) -> CallBuffers<'a, T> {
        CallBuffers::new(None, self.into_output())
    }
}

impl<'a, T, I, B> IntoBuffers<'a, T> for (I, &'a mut B)
where
    T: Element,
    I: IntoInput<'a, T>,
    B: AsMut<[T]> + ?Sized,
{
    #[inline]
    fn into_buffers(self) -> CallBuffers<'a, T> {
        CallBuffers::new(Some(self.0.into_input()), self.1.into_output())
    }
}

impl<'a, T, I, B, C> IntoBuffers<'a, T> for (I, &'a mut B, &'a C)
where
    T: Element,
    I: IntoInput<'a, T>,
    B: AsMut<[T]> + ?Sized,
    C: AsRef<[usize]> + ?Sized,
{
    #[inline]
    fn into_buffers(self) -> CallBuffers<'a, T> {
        (self.0, self.1).into_buffers().with_counts(None, Some(self.2.as_ref()))
    }
}

impl<'a, T, I, B, C> IntoBuffers<'a, T> for (I, &'a C, &'a mut B)
where
    T: Element,
    I: IntoInput<'a, T>,
    B: AsMut<[T]> + ?Sized,
    C: AsRef<[usize]> + ?Sized,
{
    #[inline]
    fn into_buffers(self) -> CallBuffers<'a, T> {
        (self.0, self.2).into_buffers().with_counts(Some(self.1.as_ref()), None)
    }
}

impl<'a, T, I, B, C, D> IntoBuffers<'a, T> for (I, &'a C, &'a mut B, &'a D)
where
    T: Element,
    I: IntoInput<'a, T>,
    B: AsMut<[T]> + ?Sized,
    C: AsRef<[usize]> + ?Sized,
    D: AsRef<[usize]> + ?Sized,
{
    #[inline]
    fn into_buffers(self) -> CallBuffers<'a, T> {
        let (input, sent, output, received) = self;
        (input, output).into_buffers().with_counts(Some(sent.as_ref()), Some(received.as_ref()))
    }
}

impl<'a> IntoBuffers<'a, AnyElement> for AnySliceMut<'a> {
    fn into_buffers(self) -> CallBuffers<'a, AnyElement> {
        CallBuffers::new(None, self)
    }
}

impl<'a> IntoBuffers<'a, AnyElement> for (AnySlice<'a>, AnySliceMut<'a>) {
    fn into_buffers(self) -> CallBuffers<'a, AnyElement> {
        CallBuffers::new(Some(self.0), self.1)
    }
}

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
            is_bool_bytes: false,
            flaw: None,
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
            flaw: None,
        }
    }
}

impl<'a> IntoOutput<'a, AnyElement> for AnySliceMut<'a> {
    fn into_output(self) -> Self {
        self
    }
}

/// Stands for a type of elements that is known at run time: see [`AnySlice`].
#[derive(Clone, Copy, Debug)]
pub enum AnyElement {}

/// Elements that a call reads, whose type is known at run time: those of another language.
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
    count: usize,
    bytes: View<'a>,
    /// True for `bool`s of which every byte but 0 is true.
    is_bool_bytes: bool,
    pub(crate) flaw: Option<SliceFlaw>,
}

impl<'a> AnySlice<'a> {
    /// The elements of type `kind` that lie in `bytes`. They begin at a multiple of their size. Of
    /// `bool`s, every byte but 0 is true. A call refuses bytes that are no elements.
    pub fn new(kind: DataType, bytes: &'a [u8]) -> Self {
        Self {
            kind,
            count: bytes.len() / kind.size(),
            bytes: View::of(bytes),
            is_bool_bytes: kind == DataType::Bool,
            flaw: SliceFlaw::of(kind, bytes),
        }
    }

    /// Calls `work` with the bytes.
    #[inline(always)]
    pub(crate) fn read<R>(self, work: impl FnOnce(View<'_>) -> R) -> R {
        if !self.is_bool_bytes {
            return work(self.bytes);
        }
        let mut bytes = self.bytes.to_vec();
        Written::BoolBytes(&mut bytes).write(|bytes| work(bytes.as_view()))
    }
}

/// Elements that a call writes, whose type is known at run time: see [`AnySlice`].
#[derive(Debug)]
pub struct AnySliceMut<'a> {
    pub(crate) kind: DataType,
    count: usize,
    pub(crate) memory: Written<'a>,
    pub(crate) flaw: Option<SliceFlaw>,
}

impl<'a> AnySliceMut<'a> {
    /// The elements of type `kind` that lie in `bytes`: as [`AnySlice::new`].
    pub fn new(kind: DataType, bytes: &'a mut [u8]) -> Self {
        Self {
            kind,
            count: bytes.len() / kind.size(),
            flaw: SliceFlaw::of(kind, bytes),
            memory: match kind {
                DataType::Bool => Written::BoolBytes(bytes),
                _ => Written::Elements(ViewMut::of(bytes)),
            },
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
    fn of(kind: DataType, bytes: &[u8]) -> Option<Self> {
        let size = kind.size();
        if !bytes.len().is_multiple_of(size) {
            return Some(Self::Length { bytes: bytes.len(), size });
        }
        // No bytes are no elements, wherever they are said to begin.
        let is_aligned = bytes.is_empty() || bytes.as_ptr().addr().is_multiple_of(size);
        (!is_aligned).then_some(Self::Start(size))
    }
}

/// What owns the elements of a request's buffers: `data` in place, or `(input, output)`.
///
/// `data` and `output` are arrays, `Vec`s and all else that lends elements of type `T` by [`AsMut`];
/// `input` lends them by [`AsRef`]. `Form` tells the two apart, and follows from them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the buffers of a request",
    label = "these are not the buffers of a request",
    note = "a request takes `data` in place, or `(input, output)`, and gives them back"
)]
pub trait OwnedBuffers<T, Form> {
    /// The buffers, for a call.
    fn buffers(&mut self) -> CallBuffers<'_, T>;
}

/// One buffer in place: see [`OwnedBuffers`].
#[derive(Clone, Copy, Debug)]
pub enum InPlace {}

/// An input and an output: see [`OwnedBuffers`].
#[derive(Clone, Copy, Debug)]
pub enum Apart {}

impl<T: Element, B: AsMut<[T]>> OwnedBuffers<T, InPlace> for B {
    fn buffers(&mut self) -> CallBuffers<'_, T> {
        self.into_buffers()
    }
}

impl<T: Element, A: AsRef<[T]>, B: AsMut<[T]>> OwnedBuffers<T, Apart> for (A, B) {
    fn buffers(&mut self) -> CallBuffers<'_, T> {
        (&self.0, &mut self.1).into_buffers()
    }
}

//! The buffers of a call: memory to read, memory to write, and the lengths of blocks.

use crate::comm::api::arguments::slices::{
    AnyElement, AnySlice, AnySliceMut, IntoInput, IntoOutput, SliceFlaw,
};
use crate::element::{DataType, Element, Written};
use crate::engine::calls::counts::BufferLengths;
use bytemuck::Pod;
use maypole_kernels::{View, ViewMut};
use std::any::type_name;
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
/// and all else that lends its elements by [`AsMut`]; `input` lends them by [`AsRef`]. For elements
/// of a dynamic type, an [`AnySliceMut`] takes the place of `&mut data`, and an [`AnySlice`] that
/// of `&input`. Each method states the lengths of its buffers. One that a rank does not need may be
/// empty: `&[]`, `&mut []`.
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
    pub(crate) stands_for: Option<&'static str>,
    /// How many of the library's elements are one of the caller's.
    pub(crate) lanes: usize,
    elements: PhantomData<fn(T)>,
}

impl<'a, T> CallBuffers<'a, T> {
    #[inline]
    fn new(input: Option<AnySlice<'a>>, output: AnySliceMut<'a>) -> Self {
        Self { input, output, counts: [None; 2], stands_for: None, lanes: 1, elements: PhantomData }
    }

    /// The same buffers, cut into blocks of these lengths: the input, and the output. A collective
    /// that cuts one of the two takes either. An all-to-all that is given one takes it for both.
    #[must_use]
    pub fn with_counts(self, input: Option<&'a [usize]>, output: Option<&'a [usize]>) -> Self {
        Self { counts: [input, output], ..self }
    }

    /// The same buffers, whose elements stand for those of a type that the library lacks, such as `"f32 of
    /// complex64"`. A call whose ranks pass other names is an [`Error::Mismatch`](crate::Error::Mismatch).
    ///
    /// ```
    /// use maypole::{Communicator, IntoBuffers, ReduceOp};
    /// Communicator::run_local(2, |mut comm| {
    ///     let mut number = [1.0f32, 2.0];
    ///     let buffers = (&mut number).into_buffers().standing_for("f32 of complex64");
    ///     comm.all_reduce(buffers, ReduceOp::Sum).unwrap();
    ///     assert_eq!(number, [2.0, 4.0]);
    /// });
    /// ```
    #[must_use]
    pub fn standing_for(self, name: &'static str) -> Self {
        Self { stands_for: Some(name), ..self }
    }

    /// Elements of a type of your own, in place: structs, pairs or arrays of 1 to 1024 bytes, which an
    /// [`Operation`](crate::Operation) combines. No record is cut: the function is given whole ones, and
    /// counts are in records. Every collective that combines nothing moves them.
    ///
    /// All ranks pass records of one type. A built-in operation is an
    /// [`Error::Invalid`](crate::Error::Invalid).
    ///
    /// ```
    /// use bytemuck::{Pod, Zeroable};
    /// use maypole::{CallBuffers, Communicator, Operation};
    ///
    /// /// A loss, and the index of the trial that has it.
    /// #[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
    /// #[repr(C)]
    /// struct Trial {
    ///     loss: f64,
    ///     index: u64,
    /// }
    ///
    /// // The argmin, MPI's MINLOC: the least loss, and the lower index of two equal ones.
    /// let least = Operation::new("argmin", true, |left: &[Trial], right: &mut [Trial]| {
    ///     for (left, right) in left.iter().zip(right) {
    ///         let order = left.loss.total_cmp(&right.loss).then(left.index.cmp(&right.index));
    ///         *right = if order.is_lt() { *left } else { *right };
    ///     }
    /// });
    /// let best = Communicator::run_local(3, |mut comm| {
    ///     let loss = [0.7, 0.2, 0.5][comm.rank()];
    ///     let mut trials = [Trial { loss, index: comm.rank() as u64 }];
    ///     comm.all_reduce(CallBuffers::records(&mut trials), &least).unwrap();
    ///     trials[0]
    /// });
    /// assert_eq!(best, [Trial { loss: 0.2, index: 1 }; 3]);
    /// ```
    #[doc(alias("MPI_MINLOC", "MPI_MAXLOC", "MPI_Type_create_struct", "argmin"))]
    pub fn records(data: &'a mut [T]) -> Self
    where
        T: Pod,
    {
        const { assert!(size_of::<T>() > 0 && size_of::<T>() <= 1024, "a record has 1 to 1024 bytes") };
        let count = data.len();
        let mut output = AnySliceMut::new(DataType::U8, bytemuck::cast_slice_mut(data));
        output.count = count;
        let buffers = Self::new(None, output);
        Self { stands_for: Some(type_name::<T>()), lanes: size_of::<T>(), ..buffers }
    }

    #[inline(always)]
    pub(crate) fn lengths(&self) -> BufferLengths {
        let output = self.output.count;
        match &self.input {
            None => BufferLengths::InPlace(output),
            Some(input) => BufferLengths::Apart { input: input.count, output },
        }
    }

    /// Why no call can use these buffers; `None` if one can.
    #[inline(always)]
    pub(crate) fn flaw(&self) -> Option<SliceFlaw> {
        let (input, output) = (self.input.as_ref(), &self.output);
        let other = input.filter(|input| input.kind != output.kind);
        let unequal = other.map(|input| SliceFlaw::Kinds(input.kind, output.kind));
        output.flaw().or(input.and_then(AnySlice::flaw)).or(unequal)
    }

    /// The input, unless it is the output, and the output. `None` if there must be copies of them.
    #[inline(always)]
    pub(crate) fn plain(&self) -> Option<(Option<View<'a>>, ViewMut<'a>)> {
        let Written::Elements(output) = self.output.memory else { return None };
        match &self.input {
            None => Some((None, output)),
            Some(input) => Some((Some(input.plain()?), output)),
        }
    }

    /// Calls `work` with the input, unless it is the output, and with the output.
    pub(crate) fn lend<R>(self, work: impl FnOnce(Option<View<'_>>, ViewMut<'_>) -> R) -> R {
        self.output.memory.write(|output| match self.input {
            None => work(None, output),
            Some(input) => input.read(|input| work(Some(input), output)),
        })
    }
}

/// Arguments that convert to the [`CallBuffers`] of a call on elements of type `T`.
///
/// # Messages of the compiler
///
/// For each mistake, the first line of the error. A forgotten `&mut`; the notes name the forms that a
/// call takes:
///
/// ```compile_fail,E0277
/// # let mut comm = maypole::Communicator::local(1).remove(0);
/// # let x = [1.0f32; 4];
/// // error: `&[f32; 4]` cannot be the buffers of a call
/// comm.all_reduce(&x, maypole::ReduceOp::Sum).unwrap();
/// ```
///
/// Two buffers that are not one tuple, and one number:
///
/// ```compile_fail,E0277
/// # let mut comm = maypole::Communicator::local(1).remove(0);
/// # let (x, mut y) = ([1.0f32; 4], [1.0f32; 4]);
/// // error: `&[f32; 4]` cannot be the buffers of a call
/// // note: a call takes `&mut data` in place, or `(&input, &mut output)`: two buffers are one tuple
/// comm.all_reduce(&x, &mut y, maypole::ReduceOp::Sum).unwrap();
/// // error: `&mut f32` cannot be the buffers of a call
/// // note: one number: `std::slice::from_mut(&mut number)`
/// comm.all_reduce(&mut 1.0f32, maypole::ReduceOp::Sum).unwrap();
/// ```
///
/// Elements of a type of your own:
///
/// ```compile_fail,E0277
/// # let mut comm = maypole::Communicator::local(1).remove(0);
/// struct Pair(f32, u32);
/// // error: `Pair` is no type of elements
/// // note: a slice of a type of your own: `CallBuffers::records(&mut data)` with an `Operation`, or ...
/// comm.all_reduce(&mut [Pair(1.0, 2)], maypole::ReduceOp::Sum).unwrap();
/// ```
///
/// A `Vec` instead of its slice:
///
/// ```compile_fail,E0277
/// # let mut comm = maypole::Communicator::local(1).remove(0);
/// # let (x, v) = ([1.0f32; 4], vec![1.0f32; 4]);
/// // error: `(&[f32; 4], Vec<f32>)` cannot be the buffers of a call
/// comm.all_reduce((&x, v), maypole::ReduceOp::Sum).unwrap();
/// ```
///
/// Elements of two types:
///
/// ```compile_fail,E0277
/// # let mut comm = maypole::Communicator::local(1).remove(0);
/// // error: the trait bound `[f32; 4]: AsRef<[f64]>` is not satisfied
/// comm.all_reduce((&[1.0f32; 4], &mut [1.0f64; 4]), maypole::ReduceOp::Sum).unwrap();
/// ```
///
/// An operation on other elements, and none at all:
///
/// ```compile_fail,E0277
/// # let mut comm = maypole::Communicator::local(1).remove(0);
/// # let (mut x, first) = ([1.0f32; 4], |_: &[f64], _: &mut [f64]| ());
/// // error: `&Operation<f64>` cannot combine elements of type `f32`
/// comm.all_reduce(&mut x, &maypole::Operation::new("first", false, first)).unwrap();
/// ```
///
/// ```compile_fail,E0277
/// # let mut comm = maypole::Communicator::local(1).remove(0);
/// # let mut x = [1.0f32; 4];
/// // error: `{closure}` cannot combine elements of type `f32`
/// // note: ... an `Operation<f32>`, which `Operation::new(name, commutative, function)` makes of a function
/// comm.all_reduce(&mut x, |left: f32, right: f32| left + right).unwrap();
/// ```
///
/// ```compile_fail,E0061
/// # let mut comm = maypole::Communicator::local(1).remove(0);
/// # let mut x = [1.0f32; 4];
/// // error: this method takes 2 arguments but 1 argument was supplied: provide `op`
/// comm.all_reduce(&mut x).unwrap();
/// ```
///
/// Counts of another type than `usize`, and counts in place:
///
/// ```compile_fail,E0277
/// # let mut comm = maypole::Communicator::local(1).remove(0);
/// # let (x, mut y) = ([1.0f32; 4], [1.0f32; 4]);
/// // error: the trait bound `[i32; 1]: AsRef<[usize]>` is not satisfied
/// comm.all_gather((&x, &mut y, &[4i32])).unwrap();
/// ```
///
/// ```compile_fail,E0277
/// # let mut comm = maypole::Communicator::local(1).remove(0);
/// # let mut y = [1.0f32; 4];
/// // error: `(&mut [f32; 4], &[usize; 1])` cannot be the buffers of a call
/// comm.all_gather((&mut y, &[4usize])).unwrap();
/// ```
///
/// A request on borrowed buffers. Pass a `Vec` or an array, or begin a
/// [`scope`](crate::Communicator::scope):
///
/// ```compile_fail,E0597
/// # let mut comm = maypole::Communicator::local(1).remove(0);
/// let mut x = [1.0f32; 4];
/// // error: `x` does not live long enough: argument requires that `x` is borrowed for `'static`
/// let request = comm.start_all_reduce(&mut x[..], maypole::ReduceOp::Sum);
/// ```
///
/// ```
/// # let mut comm = maypole::Communicator::local(1).remove(0);
/// let mut x = [1.0f32; 4];
/// comm.scope(|scope| {
///     let request = scope.start_all_reduce(&mut x[..], maypole::ReduceOp::Sum);
/// });
/// ```
///
/// A slice that an earlier call has taken; the compiler proposes `&mut *slice`:
///
/// ```compile_fail,E0382
/// # let mut comm = maypole::Communicator::local(1).remove(0);
/// # let mut y = [1.0f32; 4];
/// let slice = &mut y[..2];
/// comm.all_reduce(slice, maypole::ReduceOp::Sum).unwrap();
/// // error: use of moved value: `slice`
/// comm.all_reduce(slice, maypole::ReduceOp::Sum).unwrap();
/// ```
///
/// An operation that the type does not have, counts that are missing, and blocks of a wrong length
/// are detected only at run time, and are [`Error::Invalid`](crate::Error::Invalid):
///
/// ```
/// # let mut comm = maypole::Communicator::local(1).remove(0);
/// # let mut x = [1.0f32; 4];
/// let error = comm.all_reduce(&mut x, maypole::ReduceOp::Or).unwrap_err();
/// assert!(error.to_string().ends_with("'or' works on the bits of integers, not on f32"));
/// let error = comm.all_gather((&x[..1], &mut [0.0; 3])).unwrap_err();
/// assert!(error.to_string().ends_with("the output has 3 elements and needs 1"));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the buffers of a call",
    label = "these are not the buffers of a call",
    note = "a call takes `&mut data` in place, or `(&input, &mut output)`: two buffers are one tuple",
    note = "one number: `std::slice::from_mut(&mut number)`",
    note = "blocks of unequal lengths: `(&input, &mut output, &counts)`, or `&counts` behind \
            `&input`"
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

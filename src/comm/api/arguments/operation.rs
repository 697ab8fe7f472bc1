//! How a call combines elements: a built-in operation, or one of the user's.

use crate::element::ReduceOp;
use crate::engine::calls::call::Reduction;
use crate::schedule::collective::Collective;
use bytemuck::Pod;
use maypole_kernels::CustomReducer;
use std::marker::PhantomData;
use std::panic::{RefUnwindSafe, UnwindSafe};

/// A user-defined operation on elements.
///
/// The function is given `left` and `right`, equally long, and makes `right[i] = left[i] op
/// right[i]`; `left` is that of lower ranks if the operation does not commute. It is called for
/// chunks of the vectors and must treat every element equally. The operation must be associative,
/// up to rounding. If the function panics, the communicator fails on all ranks, and the call panics
/// with the same panic.
///
/// All ranks pass the same operation. The calls of different ranks are compared by its name and by
/// whether it commutes. A call of an operation that does not commute is refused with
/// [`Error::Invalid`](crate::Error::Invalid) if the algorithm that was named does not keep the order
/// of the ranks.
///
/// `T` is a type of elements, or one of your own, whose slices are [records](crate::CallBuffers::records):
/// MPI's MINLOC and MAXLOC are operations on pairs.
///
/// ```
/// use maypole::{Communicator, Operation};
/// let longest = Operation::new("longest", true, |left: &[i32], right: &mut [i32]| {
///     for (left, right) in left.iter().zip(right) {
///         *right = if left.abs() > right.abs() { *left } else { *right };
///     }
/// });
/// let all = Communicator::run_local(3, |mut comm| {
///     let mut x = [[2, -7, 5][comm.rank()]];
///     comm.all_reduce(&mut x, &longest).unwrap();
///     x
/// });
/// assert_eq!(all, [[-7]; 3]);
/// // It may be used where a panic is caught.
/// std::panic::catch_unwind(|| longest.name()).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Operation<T> {
    function: UserFunction,
    elements: PhantomData<fn(T)>,
}

// A function that panics fails its communicator, and no other call sees what it left behind.
impl<T> UnwindSafe for Operation<T> {}
impl<T> RefUnwindSafe for Operation<T> {}

/// The function of an [`Operation`], on bytes.
#[derive(Clone, Debug)]
pub(crate) struct UserFunction {
    name: &'static str,
    commutative: bool,
    pub(crate) reducer: CustomReducer,
}

impl<T> Operation<T> {
    /// The operation `right = left op right`. One that is not `commutative` runs only by algorithms
    /// that are proved to keep the order of the ranks.
    #[doc(alias = "MPI_Op_create")]
    pub fn new(
        name: &'static str,
        commutative: bool,
        combine: impl Fn(&[T], &mut [T]) + Send + Sync + 'static,
    ) -> Self
    where
        T: Pod,
    {
        let reducer = CustomReducer::new(combine);
        Self { function: UserFunction { name, commutative, reducer }, elements: PhantomData }
    }

    /// The name, equal on all ranks.
    pub fn name(&self) -> &'static str {
        self.function.name
    }
}

/// How a call combines elements of type `T`: a [`ReduceOp`], or an [`Operation`] of the user's. Both
/// [become](IntoOp) one.
#[derive(Debug)]
pub struct Op<'a, T> {
    pub(crate) kind: OpKind<'a>,
    elements: PhantomData<fn(T)>,
}

/// The operation of an [`Op`], without the type of its elements.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OpKind<'a> {
    BuiltIn(ReduceOp),
    User(&'a UserFunction),
}

impl<T> Op<'_, T> {
    /// The operation of calls that combine nothing.
    pub(crate) const NONE: Self = Self::built_in(ReduceOp::Sum);

    const fn built_in(op: ReduceOp) -> Self {
        Self { kind: OpKind::BuiltIn(op), elements: PhantomData }
    }

    /// The same operation, for a request.
    pub(crate) fn into_owned(self) -> OwnedOp {
        match self.kind {
            OpKind::BuiltIn(op) => OwnedOp::BuiltIn(op),
            OpKind::User(function) => OwnedOp::User(function.clone()),
        }
    }
}

impl OpKind<'_> {
    /// The operation of calls that combine nothing.
    pub(crate) const NONE: Self = Self::BuiltIn(ReduceOp::Sum);

    /// The operation, or [`NONE`](Self::NONE) if `collective` combines nothing.
    #[inline]
    pub(crate) fn used_by(self, collective: Collective) -> Self {
        if collective.reduces() { self } else { Self::NONE }
    }

    /// The part of the operation on which all ranks must agree.
    #[inline]
    pub(crate) fn reduction(self) -> Reduction {
        match self {
            Self::BuiltIn(op) => op.into(),
            Self::User(UserFunction { name, commutative, .. }) => {
                Reduction::Custom { name, commutative: *commutative }
            }
        }
    }
}

/// An [`Op`] that a request keeps.
#[derive(Clone, Debug)]
pub(crate) enum OwnedOp {
    BuiltIn(ReduceOp),
    User(UserFunction),
}

impl OwnedOp {
    pub(crate) fn lend<T>(&self) -> Op<'_, T> {
        let kind = match self {
            Self::BuiltIn(op) => OpKind::BuiltIn(*op),
            Self::User(function) => OpKind::User(function),
        };
        Op { kind, elements: PhantomData }
    }
}

/// Arguments that convert to the [`Op`] of a call on elements of type `T`: a [`ReduceOp`], or `&operation`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot combine elements of type `{T}`",
    label = "this is no operation on elements of type `{T}`",
    note = "a call takes a `ReduceOp`, or `&operation` with an `Operation<{T}>`, which \
            `Operation::new(name, commutative, function)` makes of a function"
)]
pub trait IntoOp<'a, T> {
    /// The operation.
    fn into_op(self) -> Op<'a, T>;
}

impl<'a, T> IntoOp<'a, T> for ReduceOp {
    #[inline]
    fn into_op(self) -> Op<'a, T> {
        Op::built_in(self)
    }
}

impl<'a, T> IntoOp<'a, T> for &'a Operation<T> {
    #[inline]
    fn into_op(self) -> Op<'a, T> {
        Op { kind: OpKind::User(&self.function), elements: PhantomData }
    }
}

impl<'a, T> IntoOp<'a, T> for Op<'a, T> {
    #[inline]
    fn into_op(self) -> Self {
        self
    }
}

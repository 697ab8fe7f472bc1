//! The types of elements, and how elements are combined.
//!
//! # Arithmetic
//!
//! Combining many contributions is a sequence of *binary steps*, `left op right`, and each of them
//! rounds as the element type does. Nothing is fused, reordered or kept in a wider type between
//! two steps.
//!
//! * **Sum, product.** Integers wrap. `f32` and `f64` follow IEEE 754: to nearest, ties to even.
//!   `f16` and `bf16` are computed in `f32` and rounded at each step.
//! * **Minimum, maximum.** Integers are compared by value. Floats follow `minimum` and `maximum` of
//!   IEEE 754-2019: the result is NaN if either operand is, and -0 < +0.
//! * **Average.** Of floats: each contribution is divided by the number of ranks, then the quotients
//!   are summed. So the average of finite numbers is finite, where their sum may be infinite (but for
//!   numbers that differ from the greatest one by no more than the roundings of the quotients). A
//!   quotient rounds once for `f32` and `f64`. For `f16` and `bf16` it is computed in `f32`, then
//!   rounded. Of integers: the whole sum, which may be longer than the type, is divided once, at the
//!   end, towards zero; ranks exchange 64 bits a number, and twice that for `i64` and `u64`. On GPUs
//!   the sum wraps before it is divided, as NCCL's does.
//! * **Pre-multiplied sum.** Each product of an input and its factor wraps for integers and rounds
//!   once for `f32` and `f64`. For `f16` and `bf16` it is computed in `f32`, then rounded.
//! * **And, or, xor.** Bitwise on integers; refused on floats.
//!
//! `bool` has logical operations only: and, or, xor, minimum (which is and) and maximum (which is
//! or). A sum, product or average of `bool`s is refused, because libraries disagree about its
//! meaning; to count, sum integers. A call that writes `bool`s works on a copy of them.
//!
//! All bits of a result are specified, except the sign and payload of a NaN.
//!
//! # Determinism
//!
//! Floats round, so `(x0 + x1) + x2` and `x0 + (x1 + x2)` may differ. The order in which
//! contributions are combined is determined by each algorithm's [schedule](crate::schedule) alone:
//!
//! * **One schedule, one result.** The same schedule gives the same bits on every run and on every
//!   executor: over shared memory, TCP or between threads, in windows of any length, in place or
//!   not, on any processor, in any timing.
//! * **One result for all.** The ranks of an all-reduce end with the same bits.
//! * **The choice of schedule may differ.** The tuner's choice depends on the collective, the
//!   number of ranks, their hosts and the bytes. So the same numbers in a vector of another length,
//!   or on other hosts, may be combined in another order, and elements of one vector need not all
//!   be combined alike (a ring begins each chunk at another rank).
//! * **Deterministic mode** takes that freedom away:
//!   [`set_deterministic`](crate::Communicator::set_deterministic), or `MAYPOLE_DETERMINISTIC=1`,
//!   allows only schedules of which [`verify`](mod@crate::schedule::verify) derives that every
//!   element is `((x0 op x1) op x2) op ... x(n-1)`. Then the result is a function of the
//!   contributions alone: that of the plain loop over the ranks.
//!
//! The mode has no overhead where every order results in the same bits: integers, minimum, maximum,
//! and collectives that combine nothing. It costs nothing either where the tuner's choice combines
//! from left to right anyway, as one and two [shots](crate::algorithms::direct) do. Otherwise long
//! vectors lose the gain of pipelining. In a reduction to one rank, that rank alone combines, and
//! receives `(n-1) S` bytes for a vector of `S` bytes. A scan runs down a chain.
//! `MAYPOLE_DETERMINISTIC=1 maypole perf` measures the cost.

use bytemuck::{NoUninit, Zeroable};
pub use half::{bf16, f16};
pub use maypole_kernels::DataType;
use maypole_kernels::{BinaryOp, Scalar, ViewMut};
use std::fmt;
use std::str::FromStr;

/// A type that collectives move and combine.
///
/// Implemented for `f16`, `bf16`, `f32`, `f64`, all integers of 8 to 64 bits, `usize` and `isize`
/// (which are `u64` and `i64` to other ranks), and `bool`. Sealed, because every kernel must
/// implement it.
///
/// ```
/// use maypole::{DataType, Element};
/// assert_eq!(f32::DATA_TYPE, DataType::F32);
/// assert_eq!(usize::DATA_TYPE, DataType::U64);
/// assert_eq!(bool::DATA_TYPE, DataType::Bool);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no type of elements",
    label = "no element, as `f32` is one",
    note = "a slice of a type of your own: `CallBuffers::records(&mut data)` with an `Operation`, or \
            `bytemuck::cast_slice_mut(&mut data)`, which makes numbers of it",
    note = "several buffers: one flat buffer of which they are parts, or a call for each of them"
)]
pub trait Element: NoUninit + Zeroable + Send + Sync + sealed::Writable {
    /// The type, as a value.
    const DATA_TYPE: DataType;
}

pub(crate) mod sealed {
    use crate::element::Written;

    /// An element type whose slices can be written as bytes.
    pub trait Writable: Sized + 'static {
        /// The bytes of `elements`.
        fn written(elements: &mut [Self]) -> Written<'_>;
    }

    impl Writable for bool {
        fn written(elements: &mut [Self]) -> Written<'_> {
            Written::Bools(elements)
        }
    }
}

/// Memory that a call writes: for the sealed part of [`Element`].
#[doc(hidden)]
#[derive(Debug)]
pub enum Written<'a> {
    /// Elements of which every pattern of bytes is one.
    Elements(ViewMut<'a>),
    /// Most bytes are no valid `bool`, and a peer could send any byte.
    Bools(&'a mut [bool]),
    /// The `bool`s of another language. Every byte but 0 is true.
    BoolBytes(&'a mut [u8]),
}

impl Written<'_> {
    /// Calls `work` with the bytes to read and to write. Those of `bool`s are a copy, which becomes
    /// `bool`s again at the end.
    #[inline(always)]
    pub(crate) fn write<R>(self, work: impl FnOnce(ViewMut<'_>) -> R) -> R {
        match self {
            Self::Elements(bytes) => work(bytes),
            Self::Bools(elements) => {
                let mut bytes: Vec<u8> = elements.iter().map(|it| u8::from(*it)).collect();
                let done = work(ViewMut::of(&mut bytes));
                elements.iter_mut().zip(bytes).for_each(|(element, byte)| *element = byte != 0);
                done
            }
            Self::BoolBytes(elements) => {
                normalize_bools(elements);
                let done = work(ViewMut::of(elements));
                normalize_bools(elements);
                done
            }
        }
    }
}

/// Makes 1 of every byte but 0.
fn normalize_bools(bytes: &mut [u8]) {
    bytes.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
}

macro_rules! elements {
    ($($element:ty => $kind:ident),+ $(,)?) => {
        $(
            impl sealed::Writable for $element {
                #[inline(always)]
                fn written(elements: &mut [Self]) -> Written<'_> {
                    Written::Elements(ViewMut::of(elements))
                }
            }
            impl Element for $element {
                const DATA_TYPE: DataType = DataType::$kind;
            }
        )+
    };
}

elements! {
    f16 => F16, bf16 => BF16, f32 => F32, f64 => F64,
    i8 => I8, i16 => I16, i32 => I32, i64 => I64,
    u8 => U8, u16 => U16, u32 => U32, u64 => U64,
}

#[cfg(target_pointer_width = "64")]
elements! { usize => U64, isize => I64 }

impl Element for bool {
    const DATA_TYPE: DataType = DataType::Bool;
}

/// How contributions are combined.
///
/// An n-ary reduction equals the sequence of binary ones that its schedule states, with rounding
/// after each. Integer sums and products wrap. `Min` and `Max` are IEEE 754-2019 minimum and
/// maximum: a NaN anywhere gives NaN. `Avg` divides each contribution by the number of ranks and
/// sums the quotients, so that it is finite where the sum of floats would not be; integers are
/// summed, and their sum is divided once, towards zero. `And`, `Or` and `Xor` are bitwise, logical
/// on `bool`, and refused on floats. `PreMulSum` is the sum of inputs that each rank first multiplies by a
/// factor of its own, rounding once.
///
/// ```
/// use maypole::{Communicator, Factor, ReduceOp};
/// let sums = Communicator::run_local(2, |mut comm| {
///     let mut x = [8.0f32];
///     let share = if comm.rank() == 0 { 0.25 } else { 0.75 };
///     comm.all_reduce(&mut x, ReduceOp::PreMulSum(Factor::new(share))).unwrap();
///     x
/// });
/// assert_eq!(sums, [[8.0]; 2]);
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the names are the meaning")]
pub enum ReduceOp {
    Sum,
    Product,
    Min,
    Max,
    Avg,
    And,
    Or,
    Xor,
    PreMulSum(Factor),
}

impl ReduceOp {
    /// Every operation that needs no factor, in declaration order.
    pub const ALL: &[Self] = {
        use ReduceOp::*;
        &[Sum, Product, Min, Max, Avg, And, Or, Xor]
    };

    /// The name on the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Product => "product",
            Self::Min => "min",
            Self::Max => "max",
            Self::Avg => "avg",
            Self::And => "and",
            Self::Or => "or",
            Self::Xor => "xor",
            Self::PreMulSum(_) => "premul-sum",
        }
    }

    /// True if elements of `kind` have this operation: bits of floats cannot be combined, and
    /// `bool` has logical operations only.
    pub const fn supports(self, kind: DataType) -> bool {
        self.binary().supports(kind)
    }

    /// How two elements are combined within the schedule.
    pub(crate) const fn binary(self) -> BinaryOp {
        match self {
            Self::Sum | Self::Avg | Self::PreMulSum(_) => BinaryOp::Sum,
            Self::Product => BinaryOp::Product,
            Self::Min => BinaryOp::Min,
            Self::Max => BinaryOp::Max,
            Self::And => BinaryOp::And,
            Self::Or => BinaryOp::Or,
            Self::Xor => BinaryOp::Xor,
        }
    }
}

/// The number by which a rank multiplies its input before the sum; each rank has its own.
///
/// For floats it is rounded to the element type. An integer type must hold it exactly.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Factor(u64);

impl Factor {
    /// Leaves inputs as they are.
    pub const ONE: Self = Self::new(1.0);

    /// This number.
    pub const fn new(value: f64) -> Self {
        Self(value.to_bits())
    }

    /// The number.
    pub const fn value(self) -> f64 {
        f64::from_bits(self.0)
    }

    /// The number as an element of `kind`; `None` if `kind` cannot hold it.
    pub(crate) fn scalar(self, kind: DataType) -> Option<Scalar> {
        Scalar::from_f64(kind, self.value())
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The error for a name that is no operation.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("'{0}' is no reduction; use one of \
         {names}", names = ReduceOp::ALL.iter().map(|op| op.name()).collect::<Vec<_>>().join(", "))]
pub struct UnknownReduceOp(String);

impl FromStr for ReduceOp {
    type Err = UnknownReduceOp;

    fn from_str(name: &str) -> Result<Self, UnknownReduceOp> {
        let known = Self::ALL.iter().find(|op| op.name() == name);
        known.copied().ok_or_else(|| UnknownReduceOp(name.to_owned()))
    }
}

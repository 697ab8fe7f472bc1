//! What buffers are made of, and how elements are combined.

use bytemuck::Pod;
pub use half::{bf16, f16};
use maypole_kernels::BinaryOp;
pub use maypole_kernels::DataType;
use std::fmt;
use std::str::FromStr;

/// A type that collectives move and combine.
///
/// Implemented for `f16`, `bf16`, `f32`, `f64` and all integers of 8 to 64 bits; sealed, because every kernel must know
/// it.
///
/// ```
/// use maypole::element::{DataType, Element};
/// assert_eq!(f32::DATA_TYPE, DataType::F32);
/// ```
pub trait Element: Pod + Send + Sync + sealed::Sealed {
    /// The type, as a value.
    const DATA_TYPE: DataType;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! elements {
    ($($element:ty => $kind:ident),+ $(,)?) => {
        $(
            impl sealed::Sealed for $element {}
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

/// How contributions are combined.
///
/// An n-ary reduction equals the sequence of binary ones that its schedule states, with rounding after each. Integer
/// sums and products wrap. `Min` and `Max` are IEEE 754-2019 minimum and maximum: a NaN anywhere gives NaN. `Avg` is the
/// sum, divided once at the end by the number of ranks; integers truncate towards zero.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the names are the meaning")]
pub enum ReduceOp {
    Sum,
    Product,
    Min,
    Max,
    Avg,
}

impl ReduceOp {
    /// Every operation, in declaration order.
    pub const ALL: [Self; 5] = [Self::Sum, Self::Product, Self::Min, Self::Max, Self::Avg];

    /// The name on the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Product => "product",
            Self::Min => "min",
            Self::Max => "max",
            Self::Avg => "avg",
        }
    }

    /// How two elements are combined on the way.
    pub(crate) const fn binary(self) -> BinaryOp {
        match self {
            Self::Sum | Self::Avg => BinaryOp::Sum,
            Self::Product => BinaryOp::Product,
            Self::Min => BinaryOp::Min,
            Self::Max => BinaryOp::Max,
        }
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that means no operation.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("'{0}' is no reduction; there are sum, product, min, max and avg")]
pub struct UnknownReduceOp(String);

impl FromStr for ReduceOp {
    type Err = UnknownReduceOp;

    fn from_str(name: &str) -> Result<Self, UnknownReduceOp> {
        Self::ALL.into_iter().find(|op| op.name() == name).ok_or_else(|| UnknownReduceOp(name.to_owned()))
    }
}

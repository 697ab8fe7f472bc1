//! What elements are and how two of them combine.

/// The type of one element of a buffer.
///
/// Exhaustive on purpose: every kernel must say what it does with each type.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[allow(missing_docs, reason = "the names are the meaning")]
pub enum DataType {
    F16,
    BF16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
}

impl DataType {
    /// Every type, in declaration order.
    pub const ALL: [Self; 12] = [
        Self::F16,
        Self::BF16,
        Self::F32,
        Self::F64,
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::U8,
        Self::U16,
        Self::U32,
        Self::U64,
    ];

    /// Bytes of one element: 1, 2, 4 or 8.
    #[inline]
    pub const fn size(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::F16 | Self::BF16 | Self::I16 | Self::U16 => 2,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F64 | Self::I64 | Self::U64 => 8,
        }
    }

    /// The name as the command line and JSON write it: `f32`, `bf16`, `u8` ...
    pub const fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::I8 => "i8",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
        }
    }
}

/// How two elements become one.
///
/// Integer sums and products wrap. `Min` and `Max` are IEEE 754-2019 `minimum` and `maximum` on floats: a NaN on either
/// side gives a NaN, and -0 is less than +0. f16 and bf16 are computed in f32 and rounded once (to nearest, ties to
/// even) per binary step.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[allow(missing_docs, reason = "the names are the meaning")]
pub enum BinaryOp {
    Sum,
    Product,
    Min,
    Max,
}

impl BinaryOp {
    /// Every operation, in declaration order.
    pub const ALL: [Self; 4] = [Self::Sum, Self::Product, Self::Min, Self::Max];
}

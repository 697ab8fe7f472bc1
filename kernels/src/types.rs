//! Types of elements, and operations on two of them.

use half::{bf16, f16};

/// Evaluates an expression in which a name stands for the type of the elements that a [`DataType`]
/// names. A [`Bool`](DataType::Bool) is a byte, `u8`, because not every byte is a `bool`.
///
/// ```
/// use maypole_kernels::{DataType, with_type};
/// assert_eq!(with_type!(DataType::BF16, T => size_of::<T>()), 2);
/// ```
#[macro_export]
macro_rules! with_type {
    ($kind:expr, $T:ident => $value:expr) => {
        $crate::with_type! { $kind, $T => $value,
            F16: $crate::f16, BF16: $crate::bf16, F32: f32, F64: f64,
            I8: i8, I16: i16, I32: i32, I64: i64,
            U8: u8, U16: u16, U32: u32, U64: u64, Bool: u8,
        }
    };
    ($kind:expr, $T:ident => $value:expr, $($name:ident: $type:ty,)*) => {
        match $kind {
            $($crate::DataType::$name => {
                type $T = $type;
                $value
            })*
        }
    };
}

/// The type of one element of a buffer.
///
/// The enum is exhaustive on purpose: every kernel must handle every type.
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
    /// One byte: 0 is false, 1 is true.
    Bool,
}

impl DataType {
    /// All types, in the order of declaration.
    pub const ALL: [Self; 13] = [
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
        Self::Bool,
    ];

    /// Every type of numbers: all but [`Bool`](Self::Bool), in declaration order.
    pub const NUMBERS: [Self; 12] = *Self::ALL.first_chunk().expect("there are 13 types");

    /// By type, in declaration order.
    const NAMES: [&'static str; 13] =
        ["f16", "bf16", "f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool"];

    /// Returns the bytes of one element: 1, 2, 4 or 8.
    #[inline]
    pub const fn size(self) -> usize {
        with_type!(self, T => size_of::<T>())
    }

    /// Returns true for f16, bf16, f32 and f64.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::BF16 | Self::F32 | Self::F64)
    }

    /// Returns the name that the command line and JSON use: `f32`, `bf16`, `u8` ...
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

/// An operation that combines two elements into one.
///
/// Integer sums and products wrap. `Min` and `Max` are IEEE 754-2019 `minimum` and `maximum` on
/// floats: a NaN on either side gives a NaN, and -0 is less than +0. f16 and bf16 are computed in
/// f32 and rounded once (to nearest, ties to even) per binary step. `And`, `Or` and `Xor` are
/// bitwise, and for integers only. On bools they are logical, `Min` is `And` and `Max` is `Or`; a
/// sum or a product of bools is refused.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[allow(missing_docs, reason = "the names are the meaning")]
pub enum BinaryOp {
    Sum,
    Product,
    Min,
    Max,
    And,
    Or,
    Xor,
}

impl BinaryOp {
    /// All operations, in the order of declaration.
    pub const ALL: [Self; 7] =
        [Self::Sum, Self::Product, Self::Min, Self::Max, Self::And, Self::Or, Self::Xor];

    /// Returns true if elements of `kind` have this operation.
    ///
    /// ```
    /// use maypole_kernels::{BinaryOp, DataType};
    /// assert!(BinaryOp::Xor.supports(DataType::U8) && !BinaryOp::Xor.supports(DataType::F32));
    /// assert!(BinaryOp::Or.supports(DataType::Bool) && !BinaryOp::Sum.supports(DataType::Bool));
    /// ```
    pub const fn supports(self, kind: DataType) -> bool {
        match self {
            Self::Sum | Self::Product => !matches!(kind, DataType::Bool),
            Self::Min | Self::Max => true,
            Self::And | Self::Or | Self::Xor => !kind.is_float(),
        }
    }
}

/// One element and its type.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Scalar {
    kind: DataType,
    /// The element's bytes, followed by zeros.
    bytes: [u8; 8],
}

impl Scalar {
    /// Converts `value` to an element of `kind`. Floats round once, to nearest, ties to even.
    /// Returns `None` if an integer type cannot hold `value` exactly.
    ///
    /// ```
    /// use maypole_kernels::{DataType, Scalar};
    /// assert_eq!(Scalar::from_f64(DataType::I16, -3.0).unwrap().bytes(), (-3i16).to_ne_bytes());
    /// assert_eq!(Scalar::from_f64(DataType::I16, 0.5), None);
    /// assert_eq!(Scalar::from_f64(DataType::U8, 256.0), None);
    /// ```
    pub fn from_f64(kind: DataType, value: f64) -> Option<Self> {
        /// Appends zeros to the element.
        fn padded<const N: usize>(element: [u8; N]) -> [u8; 8] {
            std::array::from_fn(|at| element.get(at).copied().unwrap_or(0))
        }
        macro_rules! integer {
            ($type:ty) => {{
                // The cast to the integer saturates, and the cast back to f64 may round up to the
                // first number that the integer cannot hold; so compare as f64 and as i128.
                let whole = value as $type;
                let exact = whole as f64 == value && whole as i128 == value as i128;
                exact.then(|| padded(whole.to_ne_bytes()))
            }};
        }
        let bytes = match kind {
            DataType::F16 => Some(padded(f16::from_f64(value).to_ne_bytes())),
            DataType::BF16 => Some(padded(bf16::from_f64(value).to_ne_bytes())),
            DataType::F32 => Some(padded((value as f32).to_ne_bytes())),
            DataType::F64 => Some(padded(value.to_ne_bytes())),
            DataType::I8 => integer!(i8),
            DataType::I16 => integer!(i16),
            DataType::I32 => integer!(i32),
            DataType::I64 => integer!(i64),
            DataType::U8 => integer!(u8),
            DataType::U16 => integer!(u16),
            DataType::U32 => integer!(u32),
            DataType::U64 => integer!(u64),
            DataType::Bool => None,
        };
        bytes.map(|bytes| Self { kind, bytes })
    }

    /// Returns the type.
    pub const fn kind(self) -> DataType {
        self.kind
    }

    /// Returns the bytes of the element, as in memory.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.kind.size()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_that_of_the_type() {
        for kind in DataType::NUMBERS {
            let path = with_type!(kind, T => std::any::type_name::<T>());
            assert_eq!(path.rsplit("::").next(), Some(kind.name()));
        }
        assert_eq!(DataType::ALL.map(|kind| kind as usize), std::array::from_fn(|at| at));
        assert_eq!(DataType::Bool.name(), "bool");
    }
}

//! Reductions and divisions written as plainly as possible. They share no code with the library.

use crate::{BinaryOp, DataType};
use half::{bf16, f16};

/// Calls `$integer!(type, ..)` or `$float!(type, wide type, ..)` for `$kind`.
macro_rules! by_kind {
    ($kind:expr, $integer:ident, $float:ident, $($argument:expr),*) => {
        match $kind {
            DataType::F16 => $float!(f16, f32, $($argument),*),
            DataType::BF16 => $float!(bf16, f32, $($argument),*),
            DataType::F32 => $float!(f32, f32, $($argument),*),
            DataType::F64 => $float!(f64, f64, $($argument),*),
            DataType::I8 => $integer!(i8, $($argument),*),
            DataType::I16 => $integer!(i16, $($argument),*),
            DataType::I32 => $integer!(i32, $($argument),*),
            DataType::I64 => $integer!(i64, $($argument),*),
            DataType::U8 | DataType::Bool => $integer!(u8, $($argument),*),
            DataType::U16 => $integer!(u16, $($argument),*),
            DataType::U32 => $integer!(u32, $($argument),*),
            DataType::U64 => $integer!(u64, $($argument),*),
        }
    };
}

/// Converts an element to the type that the arithmetic uses, and back.
trait Rounds<Wide> {
    fn widen(self) -> Wide;
    fn narrow(wide: Wide) -> Self;
}

macro_rules! rounds {
    ($($type:ty, $wide:ty: $widen:expr, $round:expr;)*) => {$(
        impl Rounds<$wide> for $type {
            fn widen(self) -> $wide {
                $widen(self)
            }
            fn narrow(wide: $wide) -> Self {
                $round(wide)
            }
        }
    )*};
}

rounds! {
    f16, f32: f16::to_f32_const, f16::from_f32_const;
    bf16, f32: bf16::to_f32_const, bf16::from_f32_const;
    f32, f32: std::convert::identity, std::convert::identity;
    f64, f64: std::convert::identity, std::convert::identity;
}

macro_rules! read {
    ($type:ty, $bytes:expr) => {
        <$type>::from_le_bytes($bytes.try_into().expect("one element"))
    };
}

pub(super) fn is_nan(kind: DataType, element: &[u8]) -> bool {
    macro_rules! integer {
        ($($ignored:tt)*) => {
            false
        };
    }
    macro_rules! float {
        ($type:ty, $wide:ty, $element:expr) => {
            read!($type, $element).is_nan()
        };
    }
    by_kind!(kind, integer, float, element)
}

fn step(kind: DataType, op: BinaryOp, left: &[u8], right: &[u8]) -> Vec<u8> {
    macro_rules! integer {
        ($type:ty, $left:expr, $right:expr) => {{
            // The cast at the end keeps the low bits, which is how integers wrap.
            let left = read!($type, $left) as i128;
            let right = read!($type, $right) as i128;
            let result = match op {
                BinaryOp::Sum => left + right,
                BinaryOp::Product => left.wrapping_mul(right),
                BinaryOp::Min => left.min(right),
                BinaryOp::Max => left.max(right),
                BinaryOp::And => left & right,
                BinaryOp::Or => left | right,
                BinaryOp::Xor => left ^ right,
            };
            (result as $type).to_le_bytes().to_vec()
        }};
    }
    macro_rules! float {
        ($type:ty, $wide:ty, $left:expr, $right:expr) => {{
            let left: $wide = read!($type, $left).widen();
            let right: $wide = read!($type, $right).widen();
            let nan = left.is_nan() || right.is_nan();
            let result = match op {
                BinaryOp::Sum => left + right,
                BinaryOp::Product => left * right,
                BinaryOp::Min | BinaryOp::Max if nan => <$wide>::NAN,
                // Without NaNs, the total order is the usual order, with -0 below +0.
                BinaryOp::Min => {
                    if left.total_cmp(&right).is_lt() {
                        left
                    } else {
                        right
                    }
                }
                BinaryOp::Max => {
                    if left.total_cmp(&right).is_gt() {
                        left
                    } else {
                        right
                    }
                }
                BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => {
                    unreachable!("floats have no bitwise operations")
                }
            };
            <$type>::narrow(result).to_le_bytes().to_vec()
        }};
    }
    by_kind!(kind, integer, float, left, right)
}

/// Reduces sources of equal length from left to right.
pub(super) fn fold(kind: DataType, op: BinaryOp, sources: &[&[u8]]) -> Vec<u8> {
    let size = kind.size();
    let mut result = sources[0].to_vec();
    for source in &sources[1..] {
        for (left, right) in result.chunks_mut(size).zip(source.chunks(size)) {
            let combined = step(kind, op, left, right);
            left.copy_from_slice(&combined);
        }
    }
    result
}

/// The quotients of all elements.
pub(super) fn divide(kind: DataType, values: &[u8], by: u64) -> Vec<u8> {
    macro_rules! integer {
        ($type:ty, $value:expr) => {
            ((read!($type, $value) as i128 / i128::from(by)) as $type).to_le_bytes().to_vec()
        };
    }
    macro_rules! float {
        ($type:ty, $wide:ty, $value:expr) => {{
            let wide: $wide = read!($type, $value).widen();
            <$type>::narrow(wide / by as $wide).to_le_bytes().to_vec()
        }};
    }
    values.chunks(kind.size()).flat_map(|value| by_kind!(kind, integer, float, value)).collect()
}

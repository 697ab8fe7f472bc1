//! Which instruction sets there are, and the functions that each offers for a type and an
//! operation.

use super::loops::{Divide, Pass, Scale};
#[cfg(target_arch = "aarch64")]
use super::neon;
use super::portable;
#[cfg(target_arch = "x86_64")]
use super::x86;
use crate::{BinaryOp, DataType};
use half::{bf16, f16};

/// A set of instructions that folds are written for, least first.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Level {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "aarch64")]
    Neon,
}

/// The passes of one fold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passes {
    /// For any length; meant for a cache line or less.
    pub(super) line: Pass,
    /// For [`LONG`] bytes or more.
    pub(super) long: Pass,
}

/// Bytes from which on the long pass is used: no register of any level is longer.
pub(super) const LONG: usize = 65;

/// Calls `$function::<T>` for the element type `T` that `$kind` names.
macro_rules! by_kind {
    ($kind:expr, $($function:ident)::+ ($($argument:expr),*)) => {
        match $kind {
            DataType::F16 => $($function)::+::<f16>($($argument),*),
            DataType::BF16 => $($function)::+::<bf16>($($argument),*),
            DataType::F32 => $($function)::+::<f32>($($argument),*),
            DataType::F64 => $($function)::+::<f64>($($argument),*),
            DataType::I8 => $($function)::+::<i8>($($argument),*),
            DataType::I16 => $($function)::+::<i16>($($argument),*),
            DataType::I32 => $($function)::+::<i32>($($argument),*),
            DataType::I64 => $($function)::+::<i64>($($argument),*),
            DataType::U8 => $($function)::+::<u8>($($argument),*),
            DataType::U16 => $($function)::+::<u16>($($argument),*),
            DataType::U32 => $($function)::+::<u32>($($argument),*),
            DataType::U64 => $($function)::+::<u64>($($argument),*),
        }
    };
}

impl Level {
    #[cfg(target_arch = "x86_64")]
    const ALL: &[Self] = &[Self::Portable, Self::Avx2, Self::Avx512];
    #[cfg(target_arch = "aarch64")]
    const ALL: &[Self] = &[Self::Portable, Self::Neon];
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    const ALL: &[Self] = &[Self::Portable];

    /// The levels that this machine has, least first.
    pub(super) fn available() -> impl DoubleEndedIterator<Item = Self> {
        Self::ALL.iter().copied().filter(|level| level.is_available())
    }

    pub(super) fn best() -> Self {
        Self::available().next_back().expect("every machine has the portable level")
    }

    fn is_available(self) -> bool {
        match self {
            Self::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => x86::has_avx2(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => x86::has_avx512(),
            #[cfg(target_arch = "aarch64")]
            Self::Neon => std::arch::is_aarch64_feature_detected!("neon"),
        }
    }

    pub(super) fn passes(self, kind: DataType, op: BinaryOp) -> Passes {
        match self {
            Self::Portable => by_kind!(kind, portable::passes(op)),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => by_kind!(kind, x86::avx2_passes(op)),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => by_kind!(kind, x86::avx512_passes(op)),
            #[cfg(target_arch = "aarch64")]
            Self::Neon => by_kind!(kind, neon::passes(op)),
        }
    }

    /// How elements of `kind` are multiplied by one number. Memory is what takes the time, so no
    /// level is wider than 256 bits.
    pub(super) fn scale(self, kind: DataType) -> Scale {
        match self {
            Self::Portable => by_kind!(kind, portable::scaler()),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 | Self::Avx512 => by_kind!(kind, x86::scaler()),
            #[cfg(target_arch = "aarch64")]
            Self::Neon => by_kind!(kind, neon::scaler()),
        }
    }

    /// How elements of `kind` are divided. No instruction set divides vectors of integers.
    pub(super) fn divide(self, kind: DataType) -> Divide {
        if self == Self::Portable {
            return by_kind!(kind, portable::divider());
        }
        #[cfg(target_arch = "aarch64")]
        use neon::divider;
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        use portable::divider;
        #[cfg(target_arch = "x86_64")]
        use x86::divider;
        match kind {
            DataType::F16 => divider::<f16>(),
            DataType::BF16 => divider::<bf16>(),
            DataType::F32 => divider::<f32>(),
            DataType::F64 => divider::<f64>(),
            _ => by_kind!(kind, portable::divider()),
        }
    }
}

/// Calls `$make::<$type, O>` for the step `O` that `$op` names. Bits have no type: one function
/// serves all integers.
macro_rules! by_op {
    ($op:expr, $make:ident<$type:ty>) => {
        match $op {
            BinaryOp::Sum => $make::<$type, Sum>(),
            BinaryOp::Product => $make::<$type, Product>(),
            BinaryOp::Min => $make::<$type, Min>(),
            BinaryOp::Max => $make::<$type, Max>(),
            BinaryOp::And => $make::<u8, And>(),
            BinaryOp::Or => $make::<u8, Or>(),
            BinaryOp::Xor => $make::<u8, Xor>(),
        }
    };
}
pub(super) use by_op;

//! Which instruction sets this machine has, and the functions that each provides for a type and an
//! operation.

#[cfg(target_arch = "aarch64")]
use super::neon;
use super::operations::{DivideFn, ReduceFns, ScaleFn};
use super::portable;
#[cfg(target_arch = "x86_64")]
use super::x86;
use crate::{BinaryOp, DataType};
use half::{bf16, f16};

/// An instruction set that reductions are written for. Ordered from narrow to wide.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum InstructionSet {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "aarch64")]
    Neon,
}

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
            DataType::U8 | DataType::Bool => $($function)::+::<u8>($($argument),*),
            DataType::U16 => $($function)::+::<u16>($($argument),*),
            DataType::U32 => $($function)::+::<u32>($($argument),*),
            DataType::U64 => $($function)::+::<u64>($($argument),*),
        }
    };
}

impl InstructionSet {
    #[cfg(target_arch = "x86_64")]
    const ALL: &[Self] = &[Self::Portable, Self::Avx2, Self::Avx512];
    #[cfg(target_arch = "aarch64")]
    const ALL: &[Self] = &[Self::Portable, Self::Neon];
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    const ALL: &[Self] = &[Self::Portable];

    /// The instruction sets of this machine, from narrow to wide.
    pub(super) fn available() -> impl DoubleEndedIterator<Item = Self> {
        Self::ALL.iter().copied().filter(|instructions| instructions.is_available())
    }

    /// The widest instruction set of this machine.
    pub(super) fn best() -> Self {
        Self::available().next_back().expect("every machine can run portable code")
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

    /// The functions that combine elements of `kind` by `op`.
    pub(super) fn reduce(self, kind: DataType, op: BinaryOp) -> ReduceFns {
        match self {
            Self::Portable => by_kind!(kind, portable::reduce_fns(op)),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => by_kind!(kind, x86::avx2_reduce_fns(op)),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => by_kind!(kind, x86::avx512_reduce_fns(op)),
            #[cfg(target_arch = "aarch64")]
            Self::Neon => by_kind!(kind, neon::reduce_fns(op)),
        }
    }

    /// The function that multiplies elements of `kind` by one number. Registers of 256 bits are
    /// the widest, because memory bandwidth bounds the speed.
    pub(super) fn scale(self, kind: DataType) -> ScaleFn {
        match self {
            Self::Portable => by_kind!(kind, portable::scale_fn()),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 | Self::Avx512 => by_kind!(kind, x86::scale_fn()),
            #[cfg(target_arch = "aarch64")]
            Self::Neon => by_kind!(kind, neon::scale_fn()),
        }
    }

    /// The function that divides elements of `kind`. Integers are divided by portable code: no
    /// instruction set has a vector division of integers.
    pub(super) fn divide(self, kind: DataType) -> DivideFn {
        if self == Self::Portable {
            return by_kind!(kind, portable::divide_fn());
        }
        #[cfg(target_arch = "aarch64")]
        use neon::divide_fn;
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        use portable::divide_fn;
        #[cfg(target_arch = "x86_64")]
        use x86::divide_fn;
        match kind {
            DataType::F16 => divide_fn::<f16>(),
            DataType::BF16 => divide_fn::<bf16>(),
            DataType::F32 => divide_fn::<f32>(),
            DataType::F64 => divide_fn::<f64>(),
            _ => by_kind!(kind, portable::divide_fn()),
        }
    }
}

//! Which instruction sets this machine has, and the functions that each provides for a type and an
//! operation.

#[cfg(target_arch = "aarch64")]
use super::neon;
use super::operations::{MapFn, Over, ReduceFns, RepeatedFactor, Times};
use super::portable;
#[cfg(target_arch = "x86_64")]
use super::x86;
use crate::{BinaryOp, DataType, with_type};

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
            Self::Portable => with_type!(kind, T => portable::reduce_fns::<T>(op)),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => with_type!(kind, T => x86::avx2_reduce_fns::<T>(op)),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => with_type!(kind, T => x86::avx512_reduce_fns::<T>(op)),
            #[cfg(target_arch = "aarch64")]
            Self::Neon => with_type!(kind, T => neon::reduce_fns::<T>(op)),
        }
    }

    /// The function that multiplies elements of `kind` by one number. Registers of 256 bits are
    /// the widest, because memory bandwidth bounds the speed.
    pub(super) fn scale(self, kind: DataType) -> MapFn<RepeatedFactor> {
        match self {
            Self::Portable => with_type!(kind, T => portable::map_fn::<T, Times<T>>()),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 | Self::Avx512 => with_type!(kind, T => x86::map_fn::<Times<T>, _>()),
            #[cfg(target_arch = "aarch64")]
            Self::Neon => with_type!(kind, T => neon::map_fn::<Times<T>, _>()),
        }
    }

    /// The function that divides elements of `kind`. Integers are divided by portable code: no
    /// instruction set has a vector division of integers.
    pub(super) fn divide(self, kind: DataType) -> MapFn<u64> {
        #[cfg(target_arch = "aarch64")]
        use neon::map_fn;
        #[cfg(target_arch = "x86_64")]
        use x86::map_fn;
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        match kind {
            _ if self == Self::Portable => {}
            DataType::F16 => return map_fn::<Over<half::f16>, _>(),
            DataType::BF16 => return map_fn::<Over<half::bf16>, _>(),
            DataType::F32 => return map_fn::<Over<f32>, _>(),
            DataType::F64 => return map_fn::<Over<f64>, _>(),
            _ => {}
        }
        with_type!(kind, T => portable::map_fn::<T, Over<T>>())
    }
}

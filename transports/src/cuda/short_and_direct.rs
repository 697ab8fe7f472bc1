//! The arguments of the kernels that need no program: the structs of `kernels/cuda/program.h`.

use super::layout::{MOST_SHORT_RANKS, SHORT_BLOCKS, SHORT_THREADS};
use cudarc::driver::DeviceRepr;
use cudarc::driver::sys::CUdeviceptr;

/// Most bytes of a rank in a short call.
pub(super) const MOST_SHORT_BYTES: usize = SHORT_BLOCKS * SHORT_THREADS * 8;

/// `ShortLaunch` of `program.h`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct ShortLaunch {
    pub(super) lines: [CUdeviceptr; MOST_SHORT_RANKS],
    pub(super) announced: [CUdeviceptr; MOST_SHORT_RANKS],
    pub(super) counts: CUdeviceptr,
    pub(super) input: CUdeviceptr,
    pub(super) output: CUdeviceptr,
    pub(super) abort: CUdeviceptr,
    pub(super) report: CUdeviceptr,
    pub(super) gone: CUdeviceptr,
    pub(super) failed: CUdeviceptr,
    pub(super) patience: u64,
    pub(super) bytes: u32,
    pub(super) fingerprint: u32,
    pub(super) ranks: u32,
    pub(super) me: u32,
    pub(super) number: u32,
    pub(super) kind: u32,
}

// SAFETY: plain numbers, in the order of the struct that the kernel takes by value.
unsafe impl DeviceRepr for ShortLaunch {}

/// The operation of a short call. Its numbers are those of `program.h`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ShortKind {
    /// Every rank gets the combination of all inputs.
    Combine = 0,
    /// Every rank gets all inputs, side by side.
    Gather = 1,
    /// Every rank gets its block of each input, side by side.
    Exchange = 2,
}

/// The operation of a direct call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DirectKind {
    /// Every rank gets the combination of all inputs.
    AllReduce,
    /// Every rank gets all inputs, side by side.
    AllGather,
    /// Every rank gets the combination of one block of all inputs.
    ReduceScatter,
    /// Every rank gets the input of this one.
    Broadcast(usize),
}

/// `DirectLaunch` of `program.h`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct DirectLaunch {
    pub(super) words: [CUdeviceptr; MOST_SHORT_RANKS],
    pub(super) announced: [CUdeviceptr; MOST_SHORT_RANKS],
    pub(super) fails: [CUdeviceptr; MOST_SHORT_RANKS],
    pub(super) counts: CUdeviceptr,
    pub(super) input: CUdeviceptr,
    pub(super) output: CUdeviceptr,
    pub(super) abort: CUdeviceptr,
    pub(super) report: CUdeviceptr,
    pub(super) gone: CUdeviceptr,
    pub(super) failed: CUdeviceptr,
    pub(super) patience: u64,
    pub(super) bytes: u64,
    pub(super) fingerprint: u32,
    pub(super) ranks: u32,
    pub(super) me: u32,
    pub(super) number: u32,
    pub(super) kind: u32,
    pub(super) root: u32,
}

// SAFETY: plain numbers, in the order of the struct that the kernel takes by value.
unsafe impl DeviceRepr for DirectLaunch {}

impl DirectKind {
    pub(super) fn number(self) -> u32 {
        match self {
            Self::AllReduce => 0,
            Self::AllGather => 1,
            Self::ReduceScatter => 2,
            Self::Broadcast(_) => 3,
        }
    }
}

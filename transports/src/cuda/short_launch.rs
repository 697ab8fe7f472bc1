//! The argument of the kernel of short calls: a struct of `kernels/cuda/program.h`.

use cudarc::driver::DeviceRepr;
use cudarc::driver::sys::CUdeviceptr;
use maypole_kernels::packed::{MOST_SHORT_RANKS, ShortProgram};

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
    pub(super) fingerprint: u32,
    pub(super) number: u32,
    pub(super) program: ShortProgram,
}

// SAFETY: plain numbers, in the order of the struct that the kernel takes by value.
unsafe impl DeviceRepr for ShortLaunch {}

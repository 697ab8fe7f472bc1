//! Memory of devices: its errors, and what is left of it.

use crate::raw::{allocate, context, free, result};
use crate::{Role, check};
use cudarc::driver::CudaSlice;
use cudarc::driver::sys::{self, CUresult};

pub(crate) const ROLES: &[(&str, Role)] =
    &[("frees memory twice", free_twice), ("leaves memory", leave)];

fn free_twice() {
    let context = context(0);
    let address = allocate(100).unwrap();
    assert_eq!(free(address + 8), Err(CUresult::CUDA_ERROR_INVALID_VALUE));
    free(address).unwrap();
    assert_eq!(free(address), Err(CUresult::CUDA_ERROR_INVALID_VALUE));
    assert_eq!(allocate(0), Err(CUresult::CUDA_ERROR_INVALID_VALUE));
    let mut slice: CudaSlice<u32> = context.default_stream().alloc_zeros(4).unwrap();
    let too_long = [0u32; 5];
    let stream = context.default_stream();
    // SAFETY: the driver refuses the copy, because it is longer than the memory.
    let copied = unsafe {
        let (start, _guard) = cudarc::driver::DevicePtrMut::device_ptr_mut(&mut slice, &stream);
        result(sys::cuMemcpyHtoDAsync_v2(start, too_long.as_ptr().cast(), 20, stream.cu_stream()))
    };
    assert_eq!(copied, Err(CUresult::CUDA_ERROR_INVALID_VALUE));
}

#[test]
fn memory_that_is_not_there_is_an_error_emulated() {
    check("frees memory twice", &[]);
}

fn leave() {
    let context = context(0);
    allocate(100).unwrap();
    std::mem::forget(context.new_stream().unwrap());
}

#[test]
fn what_is_left_at_exit_is_noticed_emulated() {
    let Some(ended) = check("leaves memory", &[("FAKE_CUDA_LEAKS", "1")]) else { return };
    let left = "fake driver: left at exit: 1 device allocations, 1 streams, 1 contexts";
    assert!(ended.lines.iter().any(|line| line == left), "{:?}", ended.lines);
}

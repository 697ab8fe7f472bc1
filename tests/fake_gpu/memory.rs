//! Memory of devices: its limit, its errors, and leaks.

use crate::raw::{allocate, context, free, result};
use crate::{Role, check};
use cudarc::driver::sys::{self, CUresult};
use cudarc::driver::{CudaSlice, DriverError};

pub(crate) const ROLES: &[(&str, Role)] = &[
    ("fills a device", fill),
    ("frees memory twice", free_twice),
    ("leaves memory", leave),
    ("leaves nothing", leave_nothing),
];

const OUT_OF_MEMORY: CUresult = CUresult::CUDA_ERROR_OUT_OF_MEMORY;

fn fill() {
    let context = context(0);
    let (free_bytes, total) = context.mem_get_info().unwrap();
    assert_eq!((free_bytes, total), (1 << 20, 1 << 20));
    assert_eq!(context.total_mem().unwrap(), 1 << 20);
    let most = allocate(1 << 19).unwrap();
    let stream = context.default_stream();
    let small: CudaSlice<u8> = stream.alloc_zeros(1 << 18).unwrap();
    assert_eq!(allocate(1 << 19), Err(OUT_OF_MEMORY));
    let large: Result<CudaSlice<u8>, _> = stream.alloc_zeros(1 << 19);
    assert_eq!(large.err(), Some(DriverError(OUT_OF_MEMORY)));
    assert_eq!(context.mem_get_info().unwrap().0, 1 << 18);
    drop(small);
    stream.synchronize().unwrap();
    free(most).unwrap();
    assert_eq!(context.mem_get_info().unwrap().0, 1 << 20);
    assert_eq!(allocate(1 << 20).map(free), Ok(Ok(())));
}

#[test]
fn a_device_has_so_much_memory_and_no_more_emulated() {
    check("fills a device", &[("FAKE_CUDA_MEMORY", "1048576")]);
}

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

fn leave_nothing() {
    let context = context(0);
    let address = allocate(100).unwrap();
    let stream = context.new_stream().unwrap();
    let numbers = stream.clone_htod(&[1, 2, 3]).unwrap();
    assert_eq!(stream.clone_dtoh(&numbers).unwrap(), [1, 2, 3]);
    free(address).unwrap();
}

#[test]
fn a_process_that_frees_everything_leaves_nothing_emulated() {
    for pools in ["0", "1"] {
        let variables = [("FAKE_CUDA_LEAKS", "1"), ("FAKE_CUDA_POOLS", pools)];
        let Some(ended) = check("leaves nothing", &variables) else { return };
        let left = ended.lines.iter().find(|line| line.contains("left at exit"));
        assert_eq!(left, None);
    }
}

//! Memory of devices: its limit, its errors, and what is left of it.

use crate::raw::{allocate, context, free, result};
use crate::{Role, check};
use cudarc::driver::sys::{self, CUresult};
use cudarc::driver::{CudaSlice, DriverError};

pub(crate) const ROLES: &[(&str, Role)] = &[
    ("fills a device", fill),
    ("frees memory twice", free_twice),
    ("fails at the third allocation", fail_third),
    ("leaves memory", leave),
    ("leaves nothing", leave_nothing),
    ("asks about memory", ask),
    ("registers memory", register),
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

fn fail_third() {
    let _context = context(0);
    let first = allocate(100).unwrap();
    let second = allocate(100).unwrap();
    assert_eq!(allocate(100), Err(OUT_OF_MEMORY));
    let fourth = allocate(100).unwrap();
    [first, second, fourth].into_iter().for_each(|address| free(address).unwrap());
}

#[test]
fn a_call_fails_as_the_environment_says_emulated() {
    check("fails at the third allocation", &[("FAKE_CUDA_FAIL", "cuInit:9,cuMemAlloc_v2:3")]);
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

/// An attribute of an address.
fn attribute<T: Default>(address: u64, attribute: sys::CUpointer_attribute) -> Result<T, CUresult> {
    let mut value = T::default();
    // SAFETY: the pointer is valid for a value of the attribute's size.
    result(unsafe { sys::cuPointerGetAttribute((&raw mut value).cast(), attribute, address) })
        .map(|()| value)
}

fn ask() {
    use sys::CUpointer_attribute as Attribute;
    let context = context(1);
    let address = allocate(5000).unwrap();
    let kind = Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    let ordinal = Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
    let can_open = Attribute::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE;
    assert_eq!(attribute::<u32>(address + 4999, kind), Ok(2));
    assert_eq!(attribute::<u32>(address + 5000, kind), Err(CUresult::CUDA_ERROR_INVALID_VALUE));
    assert_eq!(attribute::<i32>(address, ordinal), Ok(1));
    assert_eq!(attribute::<u32>(address, can_open), Ok(1));
    let stream = context.default_stream();
    let slice: CudaSlice<u8> = stream.alloc_zeros(64).unwrap();
    let (pool, guard) = cudarc::driver::DevicePtr::device_ptr(&slice, &stream);
    assert_eq!(attribute::<u32>(pool, can_open), Ok(0));
    drop(guard);
    let (mut start, mut bytes) = (0, 0);
    // SAFETY: the pointers are valid.
    result(unsafe { sys::cuMemGetAddressRange_v2(&mut start, &mut bytes, address + 77) }).unwrap();
    assert_eq!((start, bytes), (address, 5000));
    free(address).unwrap();
}

#[test]
fn the_driver_says_whose_memory_an_address_is_emulated() {
    check("asks about memory", &[]);
}

fn register() {
    let _context = context(0);
    let mut memory = vec![0u8; 8192];
    let start = memory.as_mut_ptr().cast();
    // SAFETY: the memory lives until it is no longer registered.
    let register = |bytes| result(unsafe { sys::cuMemHostRegister_v2(start, bytes, 2) });
    // SAFETY: no device uses the memory.
    let unregister = || result(unsafe { sys::cuMemHostUnregister(start) });
    register(8192).unwrap();
    assert_eq!(register(1), Err(CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED));
    let mut address = 0;
    // SAFETY: the pointer is valid.
    result(unsafe { sys::cuMemHostGetDevicePointer_v2(&mut address, start, 0) }).unwrap();
    assert_eq!(address, start as u64);
    unregister().unwrap();
    assert_eq!(unregister(), Err(CUresult::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED));
}

#[test]
fn memory_of_the_program_is_registered_once_emulated() {
    check("registers memory", &[]);
}

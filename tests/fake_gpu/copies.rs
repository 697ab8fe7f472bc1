//! Events that order streams, and errors of kernels.

use crate::raw::{context, hold};
use crate::{Role, check};
use cudarc::driver::DriverError;
use cudarc::driver::sys::{self, CUresult};
use std::sync::mpsc;

pub(crate) const ROLES: &[(&str, Role)] = &[
    ("orders streams", order),
    ("orders the null stream", order_null),
    ("loses its context", lose),
];

fn order() {
    let context = context(0);
    let (slow, quick) = (context.new_stream().unwrap(), context.new_stream().unwrap());
    let flags = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
    let before = slow.record_event(flags).unwrap();
    let (open, gate) = mpsc::channel();
    hold(&slow, gate);
    let held = slow.record_event(flags).unwrap();
    quick.wait(&held).unwrap();
    let after = quick.record_event(flags).unwrap();
    assert_eq!(held.try_is_complete(), Ok(false));
    assert_eq!(after.try_is_complete(), Ok(false));
    before.synchronize().unwrap();
    // The wait is for the record before it, not for the current one.
    held.record(&quick).unwrap();
    open.send(()).unwrap();
    after.synchronize().unwrap();
    slow.synchronize().unwrap();
    quick.synchronize().unwrap();
    assert_eq!(held.try_is_complete(), Ok(true));
    assert!(before.elapsed_ms(&after).unwrap() >= 0.0);
    let untimed = slow.record_event(None).unwrap();
    let elapsed = before.elapsed_ms(&untimed);
    assert_eq!(elapsed, Err(DriverError(CUresult::CUDA_ERROR_INVALID_HANDLE)));
}

#[test]
fn an_event_orders_two_streams_emulated() {
    check("orders streams", &[]);
}

/// A stream that is not `NON_BLOCKING` and the null stream wait for each other.
fn order_null() {
    let context = context(0);
    let null = context.default_stream();
    let mut raw = std::ptr::null_mut();
    // SAFETY: the pointer is valid.
    crate::raw::result(unsafe { sys::cuStreamCreate(&mut raw, 0) }).unwrap();
    // SAFETY: the stream is of this context, and is destroyed at the end.
    let blocking = unsafe { context.wrap_borrowed_stream(raw) };
    let free = context.new_stream().unwrap();
    let (open, gate) = mpsc::channel();
    hold(&blocking, gate);
    let in_null = null.record_event(None).unwrap();
    let in_free = free.record_event(None).unwrap();
    in_free.synchronize().unwrap();
    assert_eq!(in_null.try_is_complete(), Ok(false));
    open.send(()).unwrap();
    in_null.synchronize().unwrap();
    let (open, gate) = mpsc::channel();
    hold(&null, gate);
    let in_blocking = blocking.record_event(None).unwrap();
    assert_eq!(in_blocking.try_is_complete(), Ok(false));
    open.send(()).unwrap();
    blocking.synchronize().unwrap();
    assert_eq!(in_blocking.try_is_complete(), Ok(true));
    // SAFETY: nothing uses the stream any more.
    crate::raw::result(unsafe { sys::cuStreamDestroy_v2(raw) }).unwrap();
}

#[test]
fn the_null_stream_waits_for_blocking_streams_emulated() {
    check("orders the null stream", &[]);
}

/// After the error of a kernel, all calls of the context return it.
fn lose() {
    let context = context(0);
    let stream = context.new_stream().unwrap();
    let kernels =
        maypole_kernels::cuda::MapKernels::load(&context, maypole_kernels::DataType::F32).unwrap();
    let mut numbers = stream.clone_htod(&[1.0f32; 64]).unwrap();
    let (start, guard) = cudarc::driver::DevicePtrMut::device_ptr_mut(&mut numbers, &stream);
    // SAFETY: the memory has so many elements.
    unsafe { kernels.divide(&stream, start, start, 64, 2) }.unwrap();
    drop(guard);
    let lost = Err(DriverError(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS));
    assert_eq!(stream.synchronize(), lost);
    assert_eq!(context.new_stream().map(drop), lost);
    std::mem::forget((numbers, kernels, stream, context));
}

#[test]
fn an_error_of_a_kernel_ends_the_context_emulated() {
    check("loses its context", &[("FAKE_CUDA_FAIL", "kernel:1:700")]);
}

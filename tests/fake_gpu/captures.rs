//! Preconditions of the other tests: like a real driver, the fake driver refuses calls that captures forbid and
//! allocations that exceed its memory, and it reports leaks at exit.

use crate::raw::{allocate, context, free, result};
use crate::{Role, check};
use cudarc::driver::sys::{self, CUgraphInstantiate_flags, CUresult, CUstreamCaptureMode};
use cudarc::driver::{CudaStream, DriverError};
use std::sync::Arc;

pub(crate) const ROLES: &[(&str, Role)] = &[
    ("changes its capture mode", change_mode),
    ("captures what it must not", refuse),
    ("fills a device", fill),
    ("leaves memory", leave),
    ("leaves nothing", leave_nothing),
];

const GLOBAL: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
const THREAD_LOCAL: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
const RELAXED: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
const UNSUPPORTED: CUresult = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
const INVALIDATED: CUresult = CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;

fn end(stream: &Arc<CudaStream>) -> Result<(), CUresult> {
    let ended = stream.end_capture(CUgraphInstantiate_flags(0));
    ended.map(drop).map_err(|error| error.0)
}

/// Sets the mode of the calling thread, and returns the one before.
fn exchange(mut mode: CUstreamCaptureMode) -> CUstreamCaptureMode {
    // SAFETY: the pointer is valid.
    result(unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut mode) }).unwrap();
    mode
}

/// Allocates while the calling thread is in this mode.
fn allocate_in(mode: CUstreamCaptureMode) -> Result<(), CUresult> {
    assert_eq!(exchange(mode), GLOBAL, "each thread begins with this mode");
    let tried = allocate(8).and_then(free);
    assert_eq!(exchange(GLOBAL), mode);
    tried
}

fn change_mode() {
    let stream = context(0).new_stream().unwrap();
    let elsewhere = |mode| {
        context(0);
        allocate_in(mode)
    };
    // The mode of the capture, that of the thread, and whether another thread and the capturing
    // one may allocate.
    let cases = [
        (GLOBAL, GLOBAL, false, false),
        (GLOBAL, THREAD_LOCAL, true, false),
        (GLOBAL, RELAXED, true, true),
        (THREAD_LOCAL, GLOBAL, true, false),
        (THREAD_LOCAL, THREAD_LOCAL, true, false),
        (THREAD_LOCAL, RELAXED, true, true),
        (RELAXED, GLOBAL, true, true),
        (RELAXED, THREAD_LOCAL, true, true),
        (RELAXED, RELAXED, true, true),
    ];
    for (of_capture, of_thread, others_may, own_may) in cases {
        for (is_own, may) in [(false, others_may), (true, own_may)] {
            stream.begin_capture(of_capture).unwrap();
            let tried = match is_own {
                true => allocate_in(of_thread),
                false => std::thread::scope(|it| it.spawn(|| elsewhere(of_thread)).join().unwrap()),
            };
            let right = if may { (Ok(()), Ok(())) } else { (Err(UNSUPPORTED), Err(INVALIDATED)) };
            assert_eq!((tried, end(&stream)), right, "{of_capture:?} {of_thread:?} {is_own}");
        }
    }
}

#[test]
fn a_thread_says_what_captures_forbid_it_emulated() {
    check("changes its capture mode", &[]);
}

fn refuse() {
    let context = context(0);
    let (stream, other) = (context.new_stream().unwrap(), context.new_stream().unwrap());
    let outside = other.record_event(None).unwrap();
    let refused = |code| Err(DriverError(code));
    let captured = CUresult::CUDA_ERROR_CAPTURED_EVENT;
    let begin = || stream.begin_capture(THREAD_LOCAL).unwrap();
    begin();
    assert_eq!(stream.synchronize(), refused(UNSUPPORTED));
    assert_eq!(end(&stream), Err(INVALIDATED));
    begin();
    assert_eq!(stream.wait(&outside), refused(CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION));
    assert_eq!(end(&stream), Err(INVALIDATED));
    begin();
    let inside = stream.record_event(None).unwrap();
    assert_eq!(inside.synchronize(), refused(captured));
    assert_eq!(end(&stream), Err(INVALIDATED));
    assert_eq!(other.wait(&inside), refused(captured));
    begin();
    other.join(&stream).unwrap();
    assert_eq!(end(&other), Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED));
    other.record_event(None).unwrap();
    assert_eq!(end(&stream), Ok(()), "an empty capture is a graph");
    let in_null = context.default_stream().begin_capture(THREAD_LOCAL);
    assert_eq!(in_null, refused(UNSUPPORTED));
}

#[test]
fn what_cannot_be_captured_ends_the_capture_emulated() {
    check("captures what it must not", &[]);
}

fn fill() {
    let context = context(0);
    let full = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
    let half = allocate(1 << 19).unwrap();
    assert_eq!(allocate(3 << 18), Err(full));
    let pooled = context.default_stream().alloc_zeros::<u8>(3 << 18);
    assert_eq!(pooled.err(), Some(DriverError(full)));
    free(half).unwrap();
    assert_eq!(context.mem_get_info(), Ok((1 << 20, 1 << 20)));
}

#[test]
fn a_device_has_so_much_memory_and_no_more_emulated() {
    check("fills a device", &[("FAKE_CUDA_MEMORY", "1048576")]);
}

fn leave() {
    let context = context(0);
    allocate(100).unwrap();
    std::mem::forget(context.new_stream().unwrap());
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
fn what_is_left_at_exit_is_noticed_emulated() {
    let left = "fake driver: left at exit: 1 device allocations, 1 streams, 1 contexts";
    for (role, pools, expected) in [
        ("leaves memory", "1", Some(left)),
        ("leaves nothing", "0", None),
        ("leaves nothing", "1", None),
    ] {
        let variables = [("FAKE_CUDA_LEAKS", "1"), ("FAKE_CUDA_POOLS", pools)];
        let Some(ended) = check(role, &variables) else { return };
        let found = ended.lines.iter().find(|line| line.contains("left at exit"));
        assert_eq!(found.map(|line| &**line), expected, "{role}");
    }
}

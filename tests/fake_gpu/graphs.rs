//! Work that streams capture together, and what cannot be captured.

use crate::raw::{allocate, context, read, write};
use crate::{Role, check};
use cudarc::driver::sys::{
    CUgraphInstantiate_flags, CUresult, CUstreamCaptureMode, CUstreamCaptureStatus,
};
use cudarc::driver::{CudaContext, CudaGraph, CudaStream, DriverError};
use maypole_kernels::cuda::{MapKernels, ScaleFactor};
use maypole_kernels::{DataType, Scalar};
use std::sync::Arc;

pub(crate) const ROLES: &[(&str, Role)] =
    &[("captures two streams", fork), ("captures what it must not", refuse)];

const THREAD_LOCAL: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;

fn end(stream: &Arc<CudaStream>) -> Result<CudaGraph, CUresult> {
    let graph = stream.end_capture(CUgraphInstantiate_flags(0)).map_err(|error| error.0)?;
    Ok(graph.expect("something was captured"))
}

/// Multiplies two numbers in place: on a device, or by a captured stream.
struct Doubler {
    kernels: MapKernels,
    address: u64,
}

impl Doubler {
    fn new(context: &Arc<CudaContext>) -> Self {
        let kernels = MapKernels::load(context, DataType::U64).unwrap();
        let address = allocate(16).unwrap();
        write(address, &[1u64, 3].map(u64::to_le_bytes).concat());
        Self { kernels, address }
    }

    fn multiply(&self, stream: &CudaStream, nth: u64, by: f64) {
        let factor = Scalar::from_f64(DataType::U64, by).unwrap();
        let at = self.address + 8 * nth;
        // SAFETY: the memory has two numbers.
        unsafe { self.kernels.scale(stream, at, at, 1, ScaleFactor::Value(factor)) }.unwrap();
    }

    fn numbers(&self) -> [u64; 2] {
        let bytes = read(self.address, 16);
        [0, 8].map(|at| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()))
    }
}

/// The second stream joins the capture by an event of the first one, and the first waits for it.
fn fork() {
    let context = context(0);
    let (first, second) = (context.new_stream().unwrap(), context.new_stream().unwrap());
    let doubler = Doubler::new(&context);
    first.begin_capture(THREAD_LOCAL).unwrap();
    doubler.multiply(&first, 0, 2.0);
    second.join(&first).unwrap();
    doubler.multiply(&first, 1, 5.0);
    doubler.multiply(&second, 0, 2.0);
    doubler.multiply(&second, 0, 2.0);
    assert_eq!(end(&second).err(), Some(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED));
    first.join(&second).unwrap();
    doubler.multiply(&first, 0, 3.0);
    let graph = end(&first).unwrap();
    for _ in 0..10 {
        graph.launch().unwrap();
    }
    first.synchronize().unwrap();
    assert_eq!(doubler.numbers(), [24u64.pow(10), 3 * 5u64.pow(10)]);
    // Work of the second stream that nothing waits for.
    first.begin_capture(THREAD_LOCAL).unwrap();
    second.join(&first).unwrap();
    doubler.multiply(&second, 0, 2.0);
    assert_eq!(end(&first).err(), Some(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED));
    second.synchronize().unwrap();
}

#[test]
fn a_second_stream_joins_a_capture_emulated() {
    check("captures two streams", &[]);
}

fn refuse() {
    let context = context(0);
    let (stream, other) = (context.new_stream().unwrap(), context.new_stream().unwrap());
    let outside = other.record_event(None).unwrap();
    let refused = |code| Err(DriverError(code));
    let unsupported = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    let begin = || stream.begin_capture(THREAD_LOCAL).unwrap();
    let invalidated = || {
        let status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_INVALIDATED;
        assert_eq!(stream.capture_status(), Ok(status));
        assert_eq!(end(&stream).err(), Some(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
    };
    begin();
    assert_eq!(stream.synchronize(), refused(unsupported));
    invalidated();
    begin();
    assert_eq!(allocate(8), Err(unsupported));
    invalidated();
    begin();
    assert_eq!(stream.wait(&outside), refused(CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION));
    invalidated();
    begin();
    let captured = stream.record_event(None).unwrap();
    assert_eq!(captured.synchronize(), refused(CUresult::CUDA_ERROR_CAPTURED_EVENT));
    invalidated();
    begin();
    assert_eq!(end(&stream).map(drop), Ok(()), "an empty capture is a graph");
    assert_eq!(other.wait(&captured), refused(CUresult::CUDA_ERROR_CAPTURED_EVENT));
    let in_null = context.default_stream().begin_capture(THREAD_LOCAL);
    assert_eq!(in_null, refused(unsupported));
}

#[test]
fn what_cannot_be_captured_ends_the_capture_emulated() {
    check("captures what it must not", &[]);
}

//! Operations on a rank's buffers outside calls: copies, quotients and products.

use super::Result;
use super::launch::Lent;
use super::order::CallStream;
use cudarc::driver::{CudaStream, result};
use maypole_kernels::cuda::{CudaError, MapKernels, MapOp};

/// Copies `from` to `to`, when all earlier work of the stream is done.
///
/// # Errors
/// [`CudaError`] if the driver refuses it.
///
/// # Panics
/// If the lengths differ.
pub fn copy(on: &CallStream<'_>, to: Lent<'_>, from: Lent<'_>) -> Result<()> {
    assert_eq!(to.bytes(), from.bytes(), "as many bytes are copied as there are");
    if to.bytes() == 0 || to.address() == from.address() {
        return Ok(());
    }
    // SAFETY: both are lent memory of the same length.
    let copied = unsafe {
        result::memcpy_dtod_async(
            to.address(),
            from.address(),
            to.bytes() as usize,
            on.stream().cu_stream(),
        )
    };
    copied.map_err(CudaError::of("copying on a GPU"))
}

/// Copies `from` to the host, when all earlier work of the stream is done. Waits for that.
///
/// # Errors
/// [`CudaError`] if the driver refuses it.
pub fn read(stream: &CudaStream, from: Lent<'_>) -> Result<Vec<u8>> {
    let mut bytes = vec![0; from.bytes() as usize];
    if bytes.is_empty() {
        return Ok(bytes);
    }
    // SAFETY: the memory is lent and as long; the copy is done when the stream is.
    let copied =
        unsafe { result::memcpy_dtoh_async(&mut bytes, from.address(), stream.cu_stream()) };
    let done = copied.and_then(|()| stream.synchronize());
    done.map_err(CudaError::of("copying from a GPU"))?;
    Ok(bytes)
}

/// Copies `bytes` to `to`, when all earlier work of the stream is done. Waits for that.
///
/// # Errors
/// [`CudaError`] if the driver refuses it.
///
/// # Panics
/// If the lengths differ.
pub fn write(stream: &CudaStream, to: Lent<'_>, bytes: &[u8]) -> Result<()> {
    write_later(stream, to, bytes)?;
    stream.synchronize().map_err(CudaError::of("copying to a GPU"))
}

/// As [`write`], and does not wait.
pub(super) fn write_later(stream: &CudaStream, to: Lent<'_>, bytes: &[u8]) -> Result<()> {
    assert_eq!(to.bytes(), bytes.len() as u64, "as many bytes are copied as there are");
    if bytes.is_empty() {
        return Ok(());
    }
    // SAFETY: the memory is lent and as long. The driver has read the source when the call returns,
    // because it is memory of the host that is not pinned.
    let copied = unsafe { result::memcpy_htod_async(to.address(), bytes, stream.cu_stream()) };
    copied.map_err(CudaError::of("copying to a GPU"))
}

/// Writes to `into` what `op` makes of each element of `from`, when all earlier work of the stream is done.
///
/// # Errors
/// [`CudaError`] if the driver refuses it.
///
/// # Panics
/// If the lengths differ, if a factor has another type than the kernels, or if a divisor is zero.
pub fn map(
    on: &CallStream<'_>,
    kernels: &MapKernels,
    into: Lent<'_>,
    from: Lent<'_>,
    op: MapOp<Lent<'_>>,
) -> Result<()> {
    assert_eq!(into.bytes(), from.bytes(), "as many elements are written as there are");
    let size = kernels.kind().size() as u64;
    let op = match op {
        MapOp::Times(value) => MapOp::Times(value),
        MapOp::TimesAt(memory) => {
            assert_eq!(memory.bytes(), size, "a factor is an element");
            MapOp::TimesAt(memory.address())
        }
        MapOp::Over(by) => MapOp::Over(by),
    };
    let (count, into, from) = (from.bytes() / size, into.address(), from.address());
    // SAFETY: both are lent memory of the same length, and a lent factor is one element.
    unsafe { kernels.apply(on.stream(), into, from, count, op) }
}

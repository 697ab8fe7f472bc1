//! Operations on a rank's buffers outside calls: copies, quotients and products.

use super::error::Result;
use super::launch::Lent;
use super::order::CallStream;
use cudarc::driver::{CudaStream, result};
use maypole_kernels::Scalar;
use maypole_kernels::cuda::{CudaError, MapKernels, ScaleFactor};

/// The factor of the elements of an input.
#[derive(Clone, Copy, Debug)]
pub enum LentFactor<'a> {
    /// This number.
    Value(Scalar),
    /// The element in memory when the kernel runs.
    At(Lent<'a>),
}

/// Copies `from` to `to`, when all earlier work of the stream is done.
///
/// # Errors
/// [`DeviceError::Driver`](super::DeviceError::Driver) if the driver refuses it.
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
    Ok(copied.map_err(CudaError::of("copying on a GPU"))?)
}

/// Copies `from` to the host, when all earlier work of the stream is done. Waits for that.
///
/// # Errors
/// [`DeviceError::Driver`](super::DeviceError::Driver) if the driver refuses it.
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
/// [`DeviceError::Driver`](super::DeviceError::Driver) if the driver refuses it.
///
/// # Panics
/// If the lengths differ.
pub fn write(stream: &CudaStream, to: Lent<'_>, bytes: &[u8]) -> Result<()> {
    write_later(stream, to, bytes)?;
    Ok(stream.synchronize().map_err(CudaError::of("copying to a GPU"))?)
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
    Ok(copied.map_err(CudaError::of("copying to a GPU"))?)
}

/// Divides the elements of `from` by `by` into `into`, when all earlier work of the stream is
/// done.
///
/// # Errors
/// [`DeviceError::Driver`](super::DeviceError::Driver) if the driver refuses it.
///
/// # Panics
/// If `by` is zero, or if the lengths differ.
pub fn divide(
    on: &CallStream<'_>,
    kernels: &MapKernels,
    into: Lent<'_>,
    from: Lent<'_>,
    by: u64,
) -> Result<()> {
    assert_eq!(into.bytes(), from.bytes(), "as many elements are divided as there are");
    let count = from.bytes() / kernels.kind().size() as u64;
    let (into, from) = (into.address(), from.address());
    // SAFETY: both are lent memory of the same length.
    Ok(unsafe { kernels.divide(on.stream(), into, from, count, by) }?)
}

/// Multiplies the elements of `from` by `factor` into `into`, when all earlier work of the
/// stream is done.
///
/// # Errors
/// [`DeviceError::Driver`](super::DeviceError::Driver) if the driver refuses it.
///
/// # Panics
/// If the lengths differ, or if the factor has another type than the kernels.
pub fn scale(
    on: &CallStream<'_>,
    kernels: &MapKernels,
    into: Lent<'_>,
    from: Lent<'_>,
    factor: LentFactor<'_>,
) -> Result<()> {
    assert_eq!(into.bytes(), from.bytes(), "as many elements are scaled as there are");
    let count = from.bytes() / kernels.kind().size() as u64;
    let (into, from) = (into.address(), from.address());
    let factor = match factor {
        LentFactor::Value(value) => ScaleFactor::Value(value),
        LentFactor::At(memory) => {
            assert_eq!(memory.bytes(), kernels.kind().size() as u64, "a factor is an element");
            ScaleFactor::At(memory.address())
        }
    };
    // SAFETY: both are lent memory of the same length, and a lent factor is one element.
    Ok(unsafe { kernels.scale(on.stream(), into, from, count, factor) }?)
}

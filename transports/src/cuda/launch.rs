//! The arguments of the kernel that walks programs: the structs of `kernels/cuda/program.h`.

use bytemuck::{Pod, Zeroable};
use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{
    CudaFunction, CudaStream, CudaView, CudaViewMut, DevicePtr, DevicePtrMut, DeviceRepr,
    DeviceSlice, LaunchConfig, PushKernelArg, SyncOnDrop,
};
use maypole_kernels::cuda::CudaError;
use maypole_kernels::packed::{MOST_SHORT_RANKS, ShortProgram};
use std::marker::PhantomData;
use std::ops::Range;

use super::Result;
use super::order::CallStream;

/// How a publication signals its arrival. Kernels have the same numbers.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u32)]
pub enum Protocol {
    /// Data first, then a counter. Every byte is moved once.
    Simple = 0,
    /// Lines of 16 bytes, half of which are flags, so a line needs no separate signal. For short
    /// publications.
    LowLatency = 1,
}

/// Bytes of a GPU that a call may use until it is done.
#[derive(Clone, Copy, Debug)]
pub struct Lent<'a> {
    address: CUdeviceptr,
    bytes: u64,
    buffer: PhantomData<&'a ()>,
}

impl<'a> Lent<'a> {
    /// Lends a view to be read, for as long as its buffer is borrowed: as [`lend`].
    ///
    /// # Errors
    /// A sentence, if it is in the memory of another GPU.
    pub fn of_view<T>(
        view: CudaView<'a, T>,
        stream: &'a CudaStream,
    ) -> Result<(Self, SyncOnDrop<'a>), String> {
        let bytes = bytes_at(&view, stream)?;
        let (address, guard) = view.view_ptr(stream);
        Ok((Self { address, bytes, buffer: PhantomData }, guard))
    }

    /// Lends a view to be written: as [`lend_mut`].
    ///
    /// # Errors
    /// A sentence, if it is in the memory of another GPU.
    pub fn of_view_mut<T>(
        view: CudaViewMut<'a, T>,
        stream: &'a CudaStream,
    ) -> Result<(Self, SyncOnDrop<'a>), String> {
        let bytes = bytes_at(&view, stream)?;
        let (address, guard) = view.view_ptr_mut(stream);
        Ok((Self { address, bytes, buffer: PhantomData }, guard))
    }
}

/// The bytes of a buffer that work on `stream` uses. Kernels would fault on memory of another
/// context, which ends the context for the whole process.
fn bytes_at<T>(buffer: &impl DeviceSlice<T>, stream: &CudaStream) -> Result<u64, String> {
    let (there, here) = (buffer.stream().context(), stream.context());
    match there.cu_ctx() == here.cu_ctx() {
        true => Ok((buffer.len() * size_of::<T>()) as u64),
        false => Err(format!(
            "the buffer is on GPU {}, and the group uses GPU {}: copy it there",
            there.ordinal(),
            here.ordinal()
        )),
    }
}

impl Lent<'_> {
    /// No bytes.
    pub const EMPTY: Self = Self { address: 0, bytes: 0, buffer: PhantomData };

    /// Bytes at an address of a GPU's memory, as a foreign program names them.
    ///
    /// # Safety
    /// The range is memory that the GPU of the call reaches, and stays so until the work that uses it is
    /// done. Nothing else writes it meanwhile, and nothing else reads the call's output, except
    /// work that is ordered before or after the call on the stream of the call.
    pub unsafe fn from_raw<'b>(address: u64, bytes: u64) -> Lent<'b> {
        Lent::of_owner(address, bytes)
    }

    /// The same bytes, whose lifetime the owner guarantees.
    pub(super) fn of_owner<'b>(address: CUdeviceptr, bytes: u64) -> Lent<'b> {
        Lent { address, bytes, buffer: PhantomData }
    }

    /// How many bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn address(&self) -> CUdeviceptr {
        self.address
    }

    /// The bytes `range` of these.
    ///
    /// # Panics
    /// If they are not among these.
    #[must_use]
    pub fn slice(self, range: Range<u64>) -> Self {
        assert!(range.start <= range.end && range.end <= self.bytes, "the bytes are lent");
        Self { address: self.address + range.start, bytes: range.end - range.start, ..self }
    }

    /// True if some byte is among both.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.bytes > 0
            && other.bytes > 0
            && self.address < other.address + other.bytes
            && other.address < self.address + self.bytes
    }
}

/// Lends a buffer to be read, after everything on any stream that writes it. The caller drops the
/// returned guard once the reading work is on `stream`.
///
/// # Errors
/// A sentence, if it is in the memory of another GPU.
pub fn lend<'a, T, S: DevicePtr<T>>(
    buffer: &'a S,
    stream: &'a CudaStream,
) -> Result<(Lent<'a>, SyncOnDrop<'a>), String> {
    let bytes = bytes_at(buffer, stream)?;
    let (address, guard) = buffer.device_ptr(stream);
    Ok((Lent { address, bytes, buffer: PhantomData }, guard))
}

/// Lends a buffer to be written: as [`lend`], after everything that reads it, too.
///
/// # Errors
/// A sentence, if it is in the memory of another GPU.
pub fn lend_mut<'a, T, R: DevicePtrMut<T>>(
    buffer: &'a mut R,
    stream: &'a CudaStream,
) -> Result<(Lent<'a>, SyncOnDrop<'a>), String> {
    let bytes = bytes_at(buffer, stream)?;
    let (address, guard) = buffer.device_ptr_mut(stream);
    Ok((Lent { address, bytes, buffer: PhantomData }, guard))
}

/// One call of one rank.
#[derive(Clone, Copy, Debug)]
pub struct DeviceCall<'a> {
    /// The input.
    pub input: Lent<'a>,
    /// The output.
    pub output: Lent<'a>,
    /// A hash of all values that the ranks must agree on.
    pub fingerprint: u32,
    /// Timeout of a wait, in nanoseconds.
    pub patience: u64,
    /// Identifies the call to the host when a kernel [reports](super::Report) on it.
    pub number: u32,
}

/// `Launch` of `program.h`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct KernelLaunch {
    pub(super) program: CUdeviceptr,
    pub(super) mailboxes: CUdeviceptr,
    pub(super) ours: Mailbox,
    pub(super) published: CUdeviceptr,
    pub(super) audiences: CUdeviceptr,
    pub(super) input: CUdeviceptr,
    pub(super) output: CUdeviceptr,
    pub(super) scratch: CUdeviceptr,
    pub(super) abort: CUdeviceptr,
    pub(super) report: CUdeviceptr,
    pub(super) gone: CUdeviceptr,
    pub(super) failed: CUdeviceptr,
    pub(super) patience: u64,
    pub(super) slot_bytes: u64,
    pub(super) slots: u32,
    pub(super) protocol: u32,
    pub(super) fingerprint: u32,
    pub(super) bytes: u32,
    pub(super) ranks: u32,
    pub(super) me: u32,
    pub(super) lanes: u32,
    pub(super) room: u32,
    pub(super) first: u32,
    pub(super) other: u32,
    pub(super) tells_late: u32,
    pub(super) number: u32,
}

/// `Mailbox` of `program.h`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Mailbox {
    pub(super) slots: CUdeviceptr,
    pub(super) arrived: CUdeviceptr,
    pub(super) consumed: CUdeviceptr,
    pub(super) announced: CUdeviceptr,
}

/// `EACH` of `program.h`.
pub(super) const EACH: u32 = u32::MAX;

/// Most calls of one launch.
pub(super) const MOST_LAUNCHES: usize = 16;

/// `Launches` of `program.h`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Launches {
    pub(super) count: u32,
    pub(super) unused: u32,
    pub(super) of: [KernelLaunch; MOST_LAUNCHES],
}

// SAFETY: plain numbers, in the order of the struct that the kernel takes by value.
unsafe impl DeviceRepr for Launches {}

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

/// Starts `blocks` blocks of `kernel`, of `threads` threads each.
///
/// # Safety
/// The kernel takes a `T` by value, and all memory that `launch` names has the stated length until
/// the kernel has ended.
pub(super) unsafe fn start<T: DeviceRepr>(
    on: &CallStream<'_>,
    kernel: &CudaFunction,
    (blocks, threads): (u32, u32),
    launch: &T,
) -> Result<()> {
    let (grid_dim, block_dim) = ((blocks, 1, 1), (threads, 1, 1));
    let config = LaunchConfig { grid_dim, block_dim, shared_mem_bytes: 0 };
    // SAFETY: the caller vouches for the kernel's arguments.
    let started = unsafe { on.stream().launch_builder(kernel).arg(launch).launch(config) };
    started.map_err(CudaError::of("starting a kernel on a GPU"))?;
    Ok(())
}

//! Programs in the memory of a GPU.

use super::Result;
use super::copies;
use super::launch::{DeviceCall, Lent};
use super::layout::Room;
use super::memory::DeviceMemory;
use super::order::stream_aside;
use crate::lock;
use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{CudaSlice, CudaStream, DevicePtr};
use maypole_kernels::cuda::CudaError;
use maypole_kernels::packed::{self, BufferNeeds, PackedProgram};
use std::sync::{Arc, Mutex};

/// A program in the memory of a GPU, checked: it stays within its needs.
#[derive(Debug)]
pub struct DeviceCode {
    /// Keeps the memory.
    _place: CodePlace,
    pub(super) address: CUdeviceptr,
    pub(super) needs: BufferNeeds,
    pub(super) header: PackedProgram,
}

/// A call that runs a program.
#[derive(Clone, Copy, Debug)]
pub struct ProgramCall<'a> {
    /// The mailboxes that it uses.
    pub room: Room,
    /// The program.
    pub code: &'a DeviceCode,
    /// Bytes of the longest publication of all ranks, equal on all of them: the call has as many
    /// [lanes](super::Shape::lanes_of) as that pays for.
    pub longest: u64,
    /// Its working memory.
    pub scratch: Lent<'a>,
    /// The rest.
    pub call: DeviceCall<'a>,
}

#[derive(Debug)]
enum CodePlace {
    Own { _bytes: CudaSlice<u8> },
    OfShelf { shelf: CodeShelf, at: usize },
}

impl Drop for CodePlace {
    fn drop(&mut self) {
        if let Self::OfShelf { shelf, at } = self {
            lock(&shelf.0.free).push(*at);
        }
    }
}

/// Memory of a GPU for short programs, allocated once. Allocating and freeing may wait until no kernel
/// runs on the GPU, also for kernels that wait for the calling rank. Copying a program to the shelf
/// does not block. The launches of its programs and the copies to it are in one order.
#[derive(Clone, Debug)]
pub struct CodeShelf(Arc<Shelf>);

#[derive(Debug)]
struct Shelf {
    stream: Arc<CudaStream>,
    memory: DeviceMemory,
    /// Free places. The launches of a place's former program are on the stream already.
    free: Mutex<Vec<usize>>,
}

impl CodeShelf {
    /// Bytes of the longest program.
    const LONGEST: usize = 1024;

    /// A shelf for `programs` programs on the GPU of `stream`.
    ///
    /// # Errors
    /// [`CudaError`] if there is no memory.
    pub fn new(stream: &Arc<CudaStream>, programs: usize) -> Result<Self> {
        // The rank's own stream may wait for calls of other groups.
        let memory = DeviceMemory::new(&*stream_aside(stream)?, programs * Self::LONGEST)?;
        let free = (0..programs).rev().map(|at| at * Self::LONGEST).collect();
        Ok(Self(Arc::new(Shelf { stream: Arc::clone(stream), memory, free: Mutex::new(free) })))
    }

    /// Copies a program to the shelf, or to memory of its own if it is too long, or if the shelf is
    /// full.
    ///
    /// # Errors
    /// As [`DeviceCode::load`].
    pub fn load(&self, bytes: &[u8]) -> Result<DeviceCode> {
        let room = if bytes.len() <= Self::LONGEST { lock(&self.0.free).pop() } else { None };
        let Some(at) = room else { return DeviceCode::load(&self.0.stream, bytes) };
        // From here on every error frees the place.
        let place = CodePlace::OfShelf { shelf: self.clone(), at };
        let memory = &self.0.memory;
        DeviceCode::placed(bytes, || {
            let to = at as u64..(at + bytes.len()) as u64;
            copies::write_later(&self.0.stream, memory.lend().slice(to), bytes)?;
            Ok((place, memory.address() + at as u64))
        })
    }
}

/// The error of a program that would touch memory that is none of its buffers.
pub(super) fn refused(why: impl Into<String>) -> CudaError {
    CudaError::described("the program cannot run", why)
}

impl DeviceCode {
    /// Copies a program to the GPU of `stream`.
    ///
    /// # Errors
    /// [`CudaError`] if a kernel that walks it could touch other memory than its buffers, or if there is no
    /// memory.
    pub fn load(stream: &Arc<CudaStream>, bytes: &[u8]) -> Result<Self> {
        Self::placed(bytes, || {
            let copied = stream.clone_htod(bytes);
            let copied = copied.map_err(CudaError::of("copying a program to a GPU"))?;
            // Every launch follows the copy on the same stream, so no event is needed.
            let address = copied.device_ptr(stream).0;
            Ok((CodePlace::Own { _bytes: copied }, address))
        })
    }

    /// Bytes of the program.
    pub fn bytes(&self) -> usize {
        self.header.bytes as usize
    }

    fn placed(
        bytes: &[u8],
        copy: impl FnOnce() -> Result<(CodePlace, CUdeviceptr)>,
    ) -> Result<Self> {
        let needs = packed::check(bytes).map_err(refused)?;
        let header = PackedProgram::of(bytes).map_err(refused)?;
        let (place, address) = copy()?;
        Ok(Self { _place: place, address, needs, header })
    }
}

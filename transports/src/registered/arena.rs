//! One rank's part of a shared segment, divided into buffers.

use super::buffer::RegisteredBuffer;
use super::ranges::{FreeRanges, TakenRange};
use crate::fork::OwnerProcess;
use crate::lock;
use crate::shm::map_part;
use bytemuck::{NoUninit, Zeroable};
use maypole_kernels::View;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::mm::{MapFlags, munmap};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Buffers begin at a multiple of this, and no two of them share a page.
pub(super) const PAGE: usize = 4096;

/// Registered memory of one rank, divided into buffers without communication.
///
/// Clones are handles of the same memory. The memory is given back to the system once all handles
/// and all buffers are dropped.
#[derive(Clone, Debug)]
pub struct Arena {
    memory: Arc<ArenaMemory>,
}

impl Arena {
    pub(super) fn new(memory: Arc<ArenaMemory>) -> Self {
        Self { memory }
    }

    /// Returns an arena without memory: all of its buffers are private.
    pub fn empty() -> Self {
        Self::new(Arc::new(ArenaMemory::empty()))
    }

    /// Returns a buffer of `count` zeroed elements. If no free range of the arena is long enough,
    /// the buffer is [private](RegisteredBuffer::is_registered): calls take it like any other
    /// memory, only slower.
    ///
    /// # Panics
    /// If `count` elements are more than an allocation can have.
    pub fn alloc<T: NoUninit + Zeroable>(&self, count: usize) -> RegisteredBuffer<T> {
        RegisteredBuffer::new(&self.memory, count)
    }

    /// Returns the bytes of the arena.
    pub fn bytes(&self) -> usize {
        self.memory.len
    }

    /// Returns the bytes that no buffer has, and those of the longest buffer that can be made now.
    pub fn left(&self) -> (usize, usize) {
        lock(&self.memory.free).left()
    }
}

/// The mapping of a rank's own part.
#[derive(Debug)]
pub(super) struct ArenaMemory {
    /// `None` if there are no bytes.
    file: Option<OwnedFd>,
    /// Where the part begins in the file.
    offset: usize,
    start: NonNull<u8>,
    len: usize,
    owner: OwnerProcess,
    free: Mutex<FreeRanges>,
    /// True once some bytes are no longer those that peers reach.
    severed: AtomicBool,
}

// SAFETY: owns its mapping and makes no reference to the bytes; each range of them belongs to one
// buffer, which `free` ensures.
unsafe impl Send for ArenaMemory {}
// SAFETY: as above; the list of ranges has a lock.
unsafe impl Sync for ArenaMemory {}

impl ArenaMemory {
    /// Maps `len` bytes from `offset` on of a segment's memory. Both are multiples of a page.
    pub(super) fn map(file: BorrowedFd<'_>, offset: usize, len: usize) -> io::Result<Self> {
        if len == 0 {
            return Ok(Self::empty());
        }
        let file = file.try_clone_to_owned()?;
        // SAFETY: a fresh mapping replaces nothing.
        let start = unsafe { map_part(&file, null_mut(), offset, len, MapFlags::SHARED)? };
        Ok(Self::of(Some(file), offset, start, len))
    }

    fn empty() -> Self {
        Self::of(None, 0, NonNull::dangling(), 0)
    }

    fn of(file: Option<OwnedFd>, offset: usize, start: NonNull<u8>, len: usize) -> Self {
        Self {
            file,
            offset,
            start,
            len,
            owner: OwnerProcess::current(),
            free: Mutex::new(FreeRanges::new(len)),
            severed: AtomicBool::new(false),
        }
    }

    /// Takes `bytes` zeroed bytes, more than zero; returns their offset.
    pub(super) fn take(&self, bytes: usize) -> Option<usize> {
        let bytes = bytes.checked_next_multiple_of(PAGE)?;
        if !self.owner.is_current() {
            return None;
        }
        let TakenRange { offset, used } = lock(&self.free).take(bytes)?;
        // SAFETY: the range was free, so no buffer has these bytes.
        unsafe { self.start.add(offset).write_bytes(0, used) };
        Some(offset)
    }

    /// Gives the range of `bytes` bytes back that [`take`](Self::take) returned.
    pub(super) fn give_back(&self, offset: usize, bytes: usize) {
        lock(&self.free).give_back(offset, bytes.next_multiple_of(PAGE));
    }

    /// The address of the byte at `offset`.
    ///
    /// # Panics
    /// In a forked child, which has no such memory, and beyond the end.
    #[inline(always)]
    pub(super) fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(self.owner.is_current(), "the registered memory was mapped before fork");
        assert!(offset <= self.len, "byte {offset} is beyond an arena of {} bytes", self.len);
        // SAFETY: within the mapping.
        unsafe { self.start.add(offset) }
    }

    pub(super) fn offset_of(&self, view: View<'_>) -> Option<u64> {
        if self.severed.load(Ordering::Relaxed) || !self.owner.is_current() {
            return None;
        }
        self.range_of(view).map(|offset| offset as u64)
    }

    fn range_of(&self, view: View<'_>) -> Option<usize> {
        let offset = view.as_ptr().addr().checked_sub(self.start.as_ptr().addr())?;
        let end = offset.checked_add(view.len())?;
        (end <= self.len && !view.is_empty()).then_some(offset)
    }

    /// Replaces the pages of `view` by private copies, at the same address.
    ///
    /// The copies are made by the kernel, page by page, when a page is first written. So no write of
    /// another thread to the same page is lost, at any moment. One byte of each page is written
    /// here, and it belongs to `view`.
    pub(super) fn sever(&self, view: View<'_>) -> io::Result<()> {
        let (Some(file), Some(offset), true) =
            (&self.file, self.range_of(view), self.owner.is_current())
        else {
            return Ok(());
        };
        self.severed.store(true, Ordering::Relaxed);
        let first = offset / PAGE * PAGE;
        let len = (offset + view.len()).next_multiple_of(PAGE) - first;
        // SAFETY: within this mapping.
        let start = unsafe { self.start.add(first) }.as_ptr();
        let flags = MapFlags::PRIVATE.union(MapFlags::FIXED);
        // SAFETY: pages of this mapping are replaced by pages of the same content.
        unsafe { map_part(file, start.cast(), self.offset + first, len, flags)? };
        for page in (first..first + len).step_by(PAGE) {
            let own = page.max(offset);
            // SAFETY: a byte of `view`, which the caller's call has for itself.
            unsafe {
                let byte = self.start.add(own).as_ptr();
                byte.write_volatile(byte.read_volatile());
            }
        }
        Ok(())
    }
}

impl Drop for ArenaMemory {
    fn drop(&mut self) {
        let Some(file) = self.file.as_ref().filter(|_| self.owner.is_current()) else { return };
        // Peers keep their mappings until the next registration; the memory is freed now. After a
        // failure, a late peer may still read an announced buffer.
        if !self.severed.load(Ordering::Relaxed) {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let _ = fallocate(file, flags, self.offset as u64, self.len as u64);
        }
        // SAFETY: exactly the mapping of `map`, and no buffer is left.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

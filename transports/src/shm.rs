//! Shared memory between processes of one host: anonymous, sealed, passed by descriptor.
//!
//! A segment is a memfd. It has no name, so nothing remains after the process and other users
//! cannot open it. It does not count against the size of `/dev/shm`. It is sealed, so no process
//! can shrink it while another process uses it: a process that touches a missing page is killed. A
//! receiver checks the seals and the length before it maps a segment.

mod offer;

use crate::descriptor;
use crate::fork::OwnerProcess;
use crate::limits::with_limit;
use maypole_kernels::ViewMut;
pub use offer::SegmentOffer;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use rustix::process::{Resource, getrlimit};
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{NonNull, null_mut};

const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Zeroed memory that processes of one host share. Safe code can make it, pass it on and put a
/// [`Board`](crate::Board) or a [`Pipe`](crate::Pipe) into it, but cannot touch its bytes: only such
/// a protocol determines which rank may touch which bytes when.
///
/// A forked child does not inherit the mapping.
///
/// ```
/// use maypole_transports::shm::Segment;
/// let mine = Segment::create(10_000)?;
/// let theirs = Segment::from_fd(mine.fd().try_clone_to_owned()?, 10_000)?;
/// // SAFETY: no other thread or process has these segments.
/// unsafe {
///     mine.view().slice(9_000, 3).fill_from(b"abc");
///     assert_eq!(theirs.view().slice(9_000, 3).as_view().to_vec(), b"abc");
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// A view needs `unsafe`, because other processes may touch the bytes:
///
/// ```compile_fail,E0133
/// maypole_transports::shm::Segment::create(8).unwrap().view();
/// ```
#[derive(Debug)]
pub struct Segment {
    memory: OwnedFd,
    start: NonNull<u8>,
    len: usize,
    /// The process that has the mapping.
    owner: OwnerProcess,
}

// SAFETY: a `Segment` owns its mapping and makes no reference to the bytes; views are bounded by a
// borrow of it.
unsafe impl Send for Segment {}
// SAFETY: safe methods read its address, its length and its descriptor alone, which do not change.
// The caller of `view` guarantees that there is no race.
unsafe impl Sync for Segment {}

impl Segment {
    /// Makes a segment of `len` zeroed bytes. The kernel allocates each page when it is first
    /// touched, near the core that touches it.
    ///
    /// # Errors
    /// If `len` is zero, or the system has no memory or no descriptor left.
    pub fn create(len: usize) -> io::Result<Self> {
        check_file_limit(len as u64)?;
        let memory = create_memfd()?;
        ftruncate(&memory, len as u64)?;
        fcntl_add_seals(&memory, SEALS)?;
        Self::map(memory, len)
    }

    /// Maps a segment that another process made.
    ///
    /// # Errors
    /// If it is not sealed against shrinking and growing, or not of `len` bytes, or cannot be
    /// mapped.
    pub fn from_fd(memory: OwnedFd, len: usize) -> io::Result<Self> {
        if !fcntl_get_seals(&memory)?.contains(SEALS) {
            return Err(invalid("the segment is not sealed"));
        }
        let size = fstat(&memory)?.st_size;
        if u64::try_from(size).ok() != Some(len as u64) {
            return Err(invalid(&format!("the segment has {size} bytes instead of {len}")));
        }
        Self::map(memory, len)
    }

    fn map(memory: OwnedFd, len: usize) -> io::Result<Self> {
        if len == 0 {
            return Err(invalid("a segment has at least one byte"));
        }
        // SAFETY: a fresh mapping replaces nothing.
        let start = unsafe { map_part(&memory, null_mut(), 0, len, MapFlags::SHARED)? };
        Ok(Self { memory, start, len, owner: OwnerProcess::current() })
    }

    /// Returns true in the process that mapped the segment, and false in its forked children,
    /// which do not inherit the mapping.
    #[inline]
    pub fn is_mapped(&self) -> bool {
        self.owner.is_current()
    }

    /// Returns the address of the first byte. Dereferencing it is the caller's responsibility.
    ///
    /// # Panics
    /// In a forked child.
    #[inline]
    pub fn start(&self) -> NonNull<u8> {
        assert!(self.is_mapped(), "the shared memory was mapped before fork");
        self.start
    }

    /// Returns a view of all bytes.
    ///
    /// # Panics
    /// In a forked child.
    ///
    /// # Safety
    /// While the view or a copy of it is used, no other thread or process touches the same bytes,
    /// except that several may read bytes that none of them writes. The caller's protocol ensures
    /// that among its processes, with the required memory ordering.
    #[inline]
    pub unsafe fn view(&self) -> ViewMut<'_> {
        // SAFETY: the mapping lives as long as the borrow, its pages cannot go away, and no
        // reference to its bytes is ever made. The caller excludes races.
        unsafe { ViewMut::from_raw(self.start(), self.len) }
    }

    /// Returns the number of bytes; never zero.
    #[expect(clippy::len_without_is_empty, reason = "a segment is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the descriptor of the memory.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        if !self.is_mapped() {
            // Something else of this child may lie at the address.
            return;
        }
        // SAFETY: exactly the mapping made in `map`, and no view of it outlives `self`.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Maps a part of a segment's memory, at `at` with `MAP_FIXED`.
///
/// # Safety
/// With `MAP_FIXED`, `at` is in a mapping of the caller's, which may be replaced.
pub(crate) unsafe fn map_part(
    file: &OwnedFd,
    at: *mut c_void,
    offset: usize,
    len: usize,
    flags: MapFlags,
) -> io::Result<NonNull<u8>> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh mapping at a place of the kernel's choosing touches nothing that exists, and the
    // caller is responsible for any other; the memory is sealed against shrinking, so its pages
    // cannot go away.
    let start = unsafe { mmap(at, len, access, flags, file, offset as u64) };
    let start = start.map_err(|error| with_limit(error.into()))?;
    // SAFETY: the range was just mapped; the advice changes nothing in this process.
    unsafe { madvise(start, len, Advice::LinuxDontFork)? };
    Ok(NonNull::new(start.cast()).expect("mmap does not map page zero"))
}

fn create_memfd() -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    descriptor::create_memfd("maypole", flags).map_err(|error| {
        let error = io::Error::from(error);
        match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported => {
                io::Error::new(error.kind(), format!("the system refuses memfd_create: {error}"))
            }
            _ => with_limit(error),
        }
    })
}

/// Refuses a segment beyond the process's limit of file sizes: the kernel counts a segment as a file,
/// and would end the process with a signal.
fn check_file_limit(len: u64) -> io::Result<()> {
    match getrlimit(Resource::Fsize).current {
        Some(limit) if limit < len => Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!(
                "a segment of {len} bytes is more than the limit of file sizes, {limit} bytes; raise \
                 it with `ulimit -f`"
            ),
        )),
        _ => Ok(()),
    }
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::memfd_create;

    #[test]
    fn a_segment_is_not_executable_where_the_kernel_can_say_so() {
        let segment = Segment::create(4096).unwrap();
        let known = memfd_create("test", MemfdFlags::NOEXEC_SEAL);
        let seals = fcntl_get_seals(segment.fd()).unwrap();
        assert_eq!(seals.contains(SealFlags::from_bits_retain(0x20)), known.is_ok());
    }

    #[test]
    fn a_segment_without_seals_or_of_another_length_is_not_mapped() {
        let unsealed =
            memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&unsealed, 4096).unwrap();
        Segment::from_fd(unsealed, 4096).unwrap_err();
        let segment = Segment::create(4096).unwrap();
        Segment::from_fd(segment.fd().try_clone_to_owned().unwrap(), 4097).unwrap_err();
        ftruncate(segment.fd(), 1).unwrap_err();
        Segment::create(0).unwrap_err();
        Segment::create(usize::MAX).unwrap_err();
    }
}

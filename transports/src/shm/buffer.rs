//! Shared memory that safe code may copy to and from at any time.

use super::{Segment, invalid};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a word.
const WORD: usize = size_of::<u64>();
/// The name of its memory, which distinguishes it from segments that have a protocol of their own.
const NAME: &str = "maypole-buffer";

/// Memory that processes of one host share, and that any thread of any of them may load from and
/// store to at any time. A load during a store may find some words of 8 bytes stored and others not.
///
/// For measurements and similar uses: it has no views, because each word is moved by one atomic
/// operation.
///
/// ```
/// use maypole_transports::shm::SharedBuffer;
/// let mine = SharedBuffer::create(10_000)?;
/// let theirs = SharedBuffer::from_fd(mine.fd().try_clone_to_owned()?, 10_000)?;
/// mine.store(b"abc");
/// let mut three = [0; 3];
/// theirs.load(&mut three);
/// assert_eq!(&three, b"abc");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct SharedBuffer(Segment);

impl SharedBuffer {
    /// Makes `len` zeroed bytes.
    ///
    /// # Errors
    /// If `len` is zero, or the system has no memory or no descriptor left.
    pub fn create(len: usize) -> io::Result<Self> {
        Segment::create_named(NAME, len).map(Self)
    }

    /// Maps a buffer that this or another process made.
    ///
    /// # Errors
    /// If it is not sealed against shrinking and growing, not of `len` bytes, or not the memory of
    /// a [`SharedBuffer`], or cannot be mapped.
    pub fn from_fd(memory: OwnedFd, len: usize) -> io::Result<Self> {
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&memory));
        let name = std::fs::read_link(path)?;
        if name.as_os_str() != format!("/memfd:{NAME} (deleted)").as_str() {
            return Err(invalid(&format!("{} is not a shared buffer", name.display())));
        }
        Segment::from_fd(memory, len).map(Self)
    }

    /// Returns the number of bytes; never zero.
    #[expect(clippy::len_without_is_empty, reason = "a buffer is never empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the descriptor of the memory.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.fd()
    }

    /// Copies the first bytes to `into`.
    ///
    /// # Panics
    /// If `into` is longer than the buffer, and in a forked child.
    pub fn load(&self, into: &mut [u8]) {
        let (whole, rest) = into.as_chunks_mut::<WORD>();
        let words = self.words(whole.len(), rest.len());
        for (bytes, word) in whole.iter_mut().zip(words) {
            *bytes = word.load(Ordering::Relaxed).to_ne_bytes();
        }
        if !rest.is_empty() {
            let last = words[whole.len()].load(Ordering::Relaxed).to_ne_bytes();
            rest.copy_from_slice(&last[..rest.len()]);
        }
    }

    /// Copies `from` to the first bytes. The following bytes, up to the end of their word of 8
    /// bytes, do not change unless another thread changes them meanwhile.
    ///
    /// # Panics
    /// If `from` is longer than the buffer, and in a forked child.
    pub fn store(&self, from: &[u8]) {
        let (whole, rest) = from.as_chunks::<WORD>();
        let words = self.words(whole.len(), rest.len());
        for (bytes, word) in whole.iter().zip(words) {
            word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
        }
        if !rest.is_empty() {
            let last = &words[whole.len()];
            let mut bytes = last.load(Ordering::Relaxed).to_ne_bytes();
            bytes[..rest.len()].copy_from_slice(rest);
            last.store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
        }
    }

    /// The words of `whole` words and `rest` more bytes.
    fn words(&self, whole: usize, rest: usize) -> &[AtomicU64] {
        let bytes = whole * WORD + rest;
        assert!(bytes <= self.len(), "{bytes} bytes are not within a buffer of {}", self.len());
        let start = self.0.start().cast::<AtomicU64>();
        // SAFETY: the mapping starts at a page, has whole pages and lives as long as `self`. All
        // that touches this memory are these methods, of this handle and of others, because only
        // a `SharedBuffer` maps memory of its name: so all accesses are atomic and of whole words.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), whole + usize::from(rest > 0)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_every_length_are_read_back_and_no_other_changes() {
        let mine = SharedBuffer::create(5000).unwrap();
        let theirs = SharedBuffer::from_fd(mine.fd().try_clone_to_owned().unwrap(), 5000).unwrap();
        for len in [0, 1, 7, 8, 9, 16, 31, 4096, 5000] {
            mine.store(&[0xee; 5000]);
            let bytes: Vec<u8> = (0..len).map(|at| (at * 7 % 251) as u8).collect();
            theirs.store(&bytes);
            let mut all = [0; 5000];
            mine.load(&mut all);
            assert_eq!(all[..len], bytes);
            assert!(all[len..].iter().all(|byte| *byte == 0xee));
            let mut some = vec![0; len];
            mine.load(&mut some);
            assert_eq!(some, bytes);
        }
    }

    #[test]
    fn threads_may_load_and_store_at_the_same_time() {
        let buffer = SharedBuffer::create(800).unwrap();
        std::thread::scope(|threads| {
            for byte in 1..=3u8 {
                let buffer = &buffer;
                threads.spawn(move || (0..200).for_each(|_| buffer.store(&[byte; 800])));
            }
            let mut seen = [0; 800];
            for _ in 0..200 {
                buffer.load(&mut seen);
                let (words, _) = seen.as_chunks::<8>();
                let is_whole = |word: &&[u8; 8]| word.iter().all(|byte| *byte == word[0]);
                assert!(words.iter().all(|word| is_whole(&word)));
            }
        });
    }

    #[test]
    #[should_panic(expected = "9 bytes are not within a buffer of 8")]
    fn more_bytes_than_there_are_is_a_panic() {
        SharedBuffer::create(8).unwrap().store(&[0; 9]);
    }

    /// A segment has a protocol, which these copies would break.
    #[test]
    fn a_segment_is_not_a_buffer() {
        let segment = Segment::create(100).unwrap();
        SharedBuffer::from_fd(segment.fd().try_clone_to_owned().unwrap(), 100).unwrap_err();
        let buffer = SharedBuffer::create(100).unwrap();
        Segment::from_fd(buffer.fd().try_clone_to_owned().unwrap(), 99).unwrap_err();
    }
}

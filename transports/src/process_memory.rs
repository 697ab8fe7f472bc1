//! Reading the memory of another process of this host, in one copy.
//!
//! The owner sends the address of its bytes to the reader; the kernel copies them
//! (`process_vm_readv(2)`). Nothing is ever written into another process. The reader splits its
//! request into chunks, because the kernel pins the pages of a whole request before it copies them,
//! and short requests leave the copied bytes in the cache.
//!
//! # Permission and guarantees
//!
//! The kernel lets a process read the memory of another one that it may trace: of the same user,
//! unless the owner or the system forbids it. So each owner has a [`MemoryBeacon`], a random word at
//! an address that it sends along. A reader that finds this word has the right process and may read
//! it ([`ProcessMemory::check`]).
//!
//! The owner keeps the bytes unchanged until its readers are done. An owner that aborts
//! [closes](MemoryBeacon::close) its beacon first. A reader looks at the beacon *after* it has
//! read: as long as the beacon stands, the owner had neither aborted nor died, and the number of
//! its process was not reused. So bytes that were read before the beacon are the announced ones.
//! One request reads both, first the bytes: the kernel reads the parts of a request in their order.

use crate::random;
use maypole_kernels::{View, ViewMut, string_copies_crawl};
use std::io;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Bytes of one request.
const PIECE: usize = 256 << 10;
/// Bytes that go through a buffer at a time where the kernel would copy them slowly.
const DETOUR: usize = 64 << 10;
const PAGE: usize = 4096;
/// Bytes of a beacon's word.
const WORD: usize = size_of::<u64>();

/// A random word that stands as long as this process holds the announced bytes.
#[derive(Debug)]
pub struct MemoryBeacon {
    /// Zero once closed.
    word: Box<AtomicU64>,
    /// The initial value of the word. Not zero.
    mark: u64,
}

impl MemoryBeacon {
    /// Makes a beacon with a new random word.
    ///
    /// # Errors
    /// If the system has no random source.
    pub fn new() -> io::Result<Self> {
        let mark = u64::from_le_bytes(random::bytes()?) | 1;
        Ok(Self { word: Box::new(AtomicU64::new(mark)), mark })
    }

    /// Returns the address that other processes need to read this process's memory.
    pub fn memory(&self) -> ProcessMemory {
        let pid = std::process::id();
        ProcessMemory { pid, beacon: self.word.as_ptr().addr() as u64, mark: self.mark }
    }

    /// Makes every later [check](ProcessMemory::check) fail. Bytes that the owner writes after this
    /// call are never mistaken for the announced ones.
    pub fn close(&self) {
        self.word.store(0, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }
}

impl Drop for MemoryBeacon {
    fn drop(&mut self) {
        self.close();
    }
}

/// The memory of a process of this host, for reading. Plain data: it may be sent to any process.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ProcessMemory {
    /// The number of the process.
    pub pid: u32,
    /// The address of its [`MemoryBeacon`]'s word.
    pub beacon: u64,
    /// The word.
    pub mark: u64,
}

impl ProcessMemory {
    /// Fills `into` with the bytes from `address` on, which are the announced ones.
    ///
    /// ```
    /// use maypole_kernels::ViewMut;
    /// use maypole_transports::process_memory::MemoryBeacon;
    /// let bytes = [1u8, 2, 3];
    /// let mut copy = [0u8; 2];
    /// let beacon = MemoryBeacon::new()?;
    /// let memory = beacon.memory();
    /// memory.read(bytes.as_ptr().addr() as u64 + 1, ViewMut::of(&mut copy))?;
    /// assert_eq!(copy, [2, 3]);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the process has ended, has no such bytes, must not be read, or its beacon is closed.
    pub fn read(&self, address: u64, into: ViewMut<'_>) -> io::Result<()> {
        match may_crawl(address, into) && string_copies_crawl() {
            true => self.read_by_detour(address, into),
            false => self.read_into(address, into),
        }
    }

    /// As [`read`](Self::read), through a buffer that begins where the bytes do in their page.
    #[inline(never)]
    fn read_by_detour(&self, address: u64, into: ViewMut<'_>) -> io::Result<()> {
        let mut buffer = [MaybeUninit::<u8>::uninit(); DETOUR + PAGE];
        let ahead = (address as usize).wrapping_sub(buffer.as_ptr().addr()) % PAGE;
        let start = NonNull::from(&mut buffer[ahead..]).cast();
        for at in (0..into.len()).step_by(DETOUR) {
            let len = DETOUR.min(into.len() - at);
            // SAFETY: `ahead` is less than a page, so the buffer has so many bytes from there on. Nothing else
            // touches them, and they are read only once the kernel has filled them.
            let (part, filled) =
                unsafe { (ViewMut::from_raw(start, len), View::from_raw(start, len)) };
            self.read_into(address + at as u64, part)?;
            into.slice(at, len).copy_from(filled);
        }
        Ok(())
    }

    fn read_into(&self, address: u64, into: ViewMut<'_>) -> io::Result<()> {
        let mut done = 0;
        loop {
            let len = PIECE.min(into.len() - done);
            let (read, word) = self.read_some(address + done as u64, into.slice(done, len))?;
            done += read.min(len);
            match read.checked_sub(len) {
                Some(WORD) if word != self.mark => {
                    return Err(io::Error::other("the process does not hold its memory any more"));
                }
                Some(WORD) if done == into.len() => return Ok(()),
                _ if len > 0 && read > 0 => {}
                _ => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
    }

    /// Succeeds if the beacon stands: the process is the announced one, and has not aborted.
    ///
    /// # Errors
    /// If the beacon is closed, or cannot be read.
    pub fn check(&self) -> io::Result<()> {
        self.read(self.beacon, ViewMut::of::<u8>(&mut []))
    }

    /// Reads bytes, and after them the beacon's word. Returns how many bytes of both were read.
    fn read_some(&self, address: u64, into: ViewMut<'_>) -> io::Result<(usize, u64)> {
        let mut word = 0u64;
        let part = |start, iov_len| libc::iovec { iov_base: start, iov_len };
        let at = |address: u64| std::ptr::without_provenance_mut(address as usize);
        let to = [part(into.as_mut_ptr().cast(), into.len()), part((&raw mut word).cast(), WORD)];
        let from = [part(at(address), into.len()), part(at(self.beacon), WORD)];
        let pid = self.pid as libc::pid_t;
        // SAFETY: the kernel writes only to `to`, which are a view's memory and a word here, and outlive the
        // call. It reads `from` in the other process, or fails if there is no such memory.
        let read = unsafe { libc::process_vm_readv(pid, to.as_ptr(), 2, from.as_ptr(), 2, 0) };
        let read = usize::try_from(read).map_err(|_| io::Error::last_os_error())?;
        Ok((read, word))
    }
}

/// True if the kernel copies these bytes at 2 GB/s in place of 10 where [string copies
/// crawl](string_copies_crawl): the destination begins up to 31 bytes later in its page than the source in its
/// own (<https://sourceware.org/bugzilla/show_bug.cgi?id=30994>).
fn may_crawl(address: u64, into: ViewMut<'_>) -> bool {
    let ahead = into.as_mut_ptr().addr().wrapping_sub(address as usize) % PAGE;
    into.len() >= PAGE && (1..32).contains(&ahead)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_offset_of_the_destination_gets_the_bytes() {
        let bytes: Vec<u8> = (0..2 * DETOUR + 99).map(|at| (at % 251) as u8).collect();
        let beacon = MemoryBeacon::new().unwrap();
        let start = bytes.as_ptr().addr();
        for ahead in [0, 1, 16, 31, 32, 33, 4095] {
            let mut copy = vec![7u8; bytes.len() + 2 * PAGE];
            let first = (start + ahead).wrapping_sub(copy.as_ptr().addr()) % PAGE;
            let into = ViewMut::of(&mut copy).slice(first, bytes.len());
            assert_eq!(may_crawl(start as u64, into), (1..32).contains(&ahead));
            for read in [ProcessMemory::read, ProcessMemory::read_by_detour] {
                into.fill_from(&vec![0; bytes.len()]);
                read(&beacon.memory(), start as u64, into).unwrap();
                assert!(into.as_view().to_vec() == bytes, "{ahead}");
            }
            let rest = copy[..first].iter().chain(&copy[first + bytes.len()..]);
            assert!(rest.copied().all(|byte| byte == 7), "{ahead}");
        }
    }

    #[test]
    fn a_closed_beacon_ends_the_trust() {
        let beacon = MemoryBeacon::new().unwrap();
        let memory = beacon.memory();
        memory.check().unwrap();
        let (bytes, mut copy) = ([7u8; 3], [0u8; 3]);
        let mut read = || memory.read(bytes.as_ptr().addr() as u64, ViewMut::of(&mut copy));
        read().unwrap();
        beacon.close();
        read().unwrap_err();
        memory.check().unwrap_err();
    }

    #[test]
    fn another_process_at_the_same_number_is_noticed() {
        let beacon = MemoryBeacon::new().unwrap();
        let other = ProcessMemory { mark: beacon.memory().mark ^ 2, ..beacon.memory() };
        other.check().unwrap_err();
    }

    #[test]
    fn what_lies_beyond_pages_and_pieces_is_read() {
        let bytes: Vec<u8> = (0..3 * PIECE + 77).map(|at| (at % 251) as u8).collect();
        let mut copy = vec![0; bytes.len() - 5];
        let memory = MemoryBeacon::new().unwrap();
        memory.memory().read(bytes.as_ptr().addr() as u64 + 5, ViewMut::of(&mut copy)).unwrap();
        assert!(copy == bytes[5..]);
    }

    #[test]
    fn memory_that_does_not_exist_is_an_error_and_no_crash() {
        let beacon = MemoryBeacon::new().unwrap();
        let mut copy = [0; 8];
        beacon.memory().read(16, ViewMut::of(&mut copy)).unwrap_err();
        let gone = ProcessMemory { pid: u32::MAX >> 2, ..beacon.memory() };
        gone.check().unwrap_err();
    }
}

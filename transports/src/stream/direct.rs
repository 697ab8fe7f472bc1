//! Writes from memory of this process to memory of a peer, past the stream between them.
//!
//! An adapter for RDMA reads registered memory of one process and writes it to that of another, and no
//! processor copies a byte. The writer needs the address and the key of the peer's memory, which the peer
//! sends over the stream. The peer's process receives no word of the write itself: bytes that the writer
//! sends over the stream afterwards arrive behind the written ones, and say so.

use crate::shm::Segment;
use crate::stream::Result;
use std::any::Any;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Memory of a peer to which this process may write. Its holder can overwrite all of it, so it travels over
/// streams of the job alone.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RemoteMemory {
    /// The address of its first byte in the peer's process.
    pub address: u64,
    /// The key by which the peer's adapter allows writes.
    pub key: u32,
}

impl RemoteMemory {
    /// The same memory from byte `at` on.
    ///
    /// ```
    /// use maypole_transports::stream::direct::RemoteMemory;
    /// let memory = RemoteMemory { address: 0x1000, key: 7 };
    /// assert_eq!(memory.from(16).address, 0x1010);
    /// ```
    #[must_use]
    pub fn from(self, at: usize) -> Self {
        Self { address: self.address + at as u64, ..self }
    }
}

/// Memory of a device that adapters access past the processor, as its driver exports it to the kernel.
#[derive(Debug)]
pub struct DmaBuf {
    /// The dma-buf, from the first byte of the memory on.
    pub file: OwnedFd,
    /// The address of the first byte for the device, by which requests name it, too.
    pub address: u64,
    /// Bytes.
    pub len: usize,
    /// Bytes may reach the device after their writer's message has arrived, until a
    /// [flush](DirectWrites::flush).
    pub lands_late: bool,
    /// Keeps the memory allocated.
    pub memory: Arc<dyn Any + Send + Sync>,
}

/// Writes past a stream; see [`Stream::direct`](crate::Stream::direct). No method waits.
///
/// ```no_run
/// use maypole_transports::stream::direct::RemoteMemory;
/// use maypole_transports::shm::Segment;
/// use maypole_transports::{AnyStream, Stream};
/// # fn example(stream: &mut AnyStream, theirs: RemoteMemory) -> Result<(), Box<dyn std::error::Error>> {
/// let memory = std::sync::Arc::new(Segment::create(4096)?);
/// let direct = stream.direct().ok_or("only RDMA has direct writes")?;
/// let mine = direct.register(&memory)?; // for the peer, which answers with `theirs`
/// // SAFETY: no byte of the segment changes, and the peer reads none of its own yet.
/// let write = unsafe { direct.write((0, 4096), theirs) }?.ok_or("too many are under way")?;
/// while !direct.is_complete(write)? {}
/// # let _ = mine; Ok(()) }
/// ```
pub trait DirectWrites {
    /// Registers `memory`, once for all streams of the same port, until all of them are dropped. Returns its
    /// address for the peer, which may write to it from then on.
    ///
    /// # Errors
    /// If the system refuses, for example because of the limit of locked memory. The stream is as before.
    fn register(&mut self, memory: &Arc<Segment>) -> io::Result<RemoteMemory>;

    /// The same for memory of a device. No processor reads or writes it, also not for short writes.
    ///
    /// # Errors
    /// As [`register`](Self::register), and if the library or the driver of the adapter cannot.
    fn register_device(&mut self, memory: &Arc<DmaBuf>) -> io::Result<RemoteMemory>;

    /// The port of the writes in words: `port 1 of mlx5_0`.
    fn port(&self) -> String;

    /// Writes bytes of the registered memory, from the first number on and so many, to the first bytes of the
    /// peer's memory `to`. Everything that is sent over the stream afterwards arrives behind
    /// them. Returns the number of the write, or `None` if there is no room for it now.
    ///
    /// # Errors
    /// [`Fault`](crate::Fault) if the link is lost.
    ///
    /// # Panics
    /// If no memory was registered, or the bytes are not all in it.
    ///
    /// # Safety
    /// The bytes do not change before the write is complete. The peer and its other peers do not access the
    /// place `to` before the peer knows, by bytes of the stream, that it was written to.
    unsafe fn write(&mut self, range: (usize, usize), to: RemoteMemory) -> Result<Option<u64>>;

    /// Makes the registered memory's device see all that the peer wrote before what was received from the stream
    /// so far. Some devices see the bytes late; a read of byte `at`, one of those bytes, makes them arrive first.
    /// False while that is under way: to be called again, and nothing is received from the stream meanwhile.
    ///
    /// # Errors
    /// [`Fault`](crate::Fault) if the link is lost.
    fn flush(&mut self, at: usize) -> Result<bool>;

    /// True once the adapter reads no byte of this write and of earlier ones again. Number 0 is none.
    ///
    /// # Errors
    /// [`Fault`](crate::Fault) if the link is lost.
    fn is_complete(&mut self, write: u64) -> Result<bool>;
}

//! A stream between processes of one host: two rings of bytes in a segment that both have mapped.
//!
//! One end mostly writes and the other mostly reads; the way back is narrow. The kernel has no part
//! in it, so nothing wakes who waits, and a process that dies says nothing: its peers learn of that
//! on another way.

use crate::parts::{unfilled, unsent};
use crate::ring::{Ring, Words};
use crate::shm::Segment;
use crate::stream::{Fault, HEAD, Stream};
use maypole_kernels::{View, ViewMut};
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

/// Bytes that are under way at most: small enough to stay in a core's cache.
const FORTH: usize = 128 << 10;
/// The same on the way back.
const BACK: usize = 4 << 10;

/// Where a ring lies in the segment: its words, its bytes, and how many these are.
#[derive(Clone, Copy, Debug)]
struct Place(usize, usize, usize);

const FORWARD: Place = Place(0, 2 * size_of::<Words>(), FORTH);
const BACKWARD: Place = Place(size_of::<Words>(), 2 * size_of::<Words>() + FORTH, BACK);

/// One end of a stream in shared memory.
///
/// Dropping it leaves as a process that has died does, except that the peer sees it: it takes what
/// was sent, and then [`Fault::Closed`].
///
/// ```
/// use maypole_kernels::{View, ViewMut};
/// use maypole_transports::{HEAD, Pipe, Stream, shm::Segment};
///
/// let segment = Segment::create(Pipe::BYTES)?;
/// let same = Segment::from_fd(segment.fd().try_clone_to_owned()?, Pipe::BYTES)?;
/// let (mut here, mut there) = (Pipe::writer(segment), Pipe::reader(same));
/// assert_eq!(here.send(&[7; HEAD], View::of(b"ribbon"), 0)?, HEAD + 6);
///
/// let (mut head, mut body) = ([0; HEAD], [0; 6]);
/// assert_eq!(there.receive(&mut head, ViewMut::of(&mut body), 0)?, HEAD + 6);
/// assert_eq!((head, &body), ([7; HEAD], b"ribbon"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Pipe {
    segment: Segment,
    outgoing: Place,
    incoming: Place,
}

impl Pipe {
    /// Bytes of the segment, which must be fresh when the first end is made.
    pub const BYTES: usize = 2 * size_of::<Words>() + FORTH + BACK;

    /// The end with the wide way out.
    ///
    /// # Panics
    /// If the segment has not [`Pipe::BYTES`].
    pub fn writer(segment: Segment) -> Self {
        Self::new(segment, FORWARD, BACKWARD)
    }

    /// The other end.
    ///
    /// # Panics
    /// If the segment has not [`Pipe::BYTES`].
    pub fn reader(segment: Segment) -> Self {
        Self::new(segment, BACKWARD, FORWARD)
    }

    fn new(segment: Segment, outgoing: Place, incoming: Place) -> Self {
        assert_eq!(segment.len(), Self::BYTES, "a pipe needs a segment of its size");
        Self { segment, outgoing, incoming }
    }

    #[inline]
    fn ring(&self, Place(words, bytes, len): Place) -> Ring<'_> {
        let all = self.segment.view();
        let words: NonNull<u8> =
            NonNull::new(all.slice(words, size_of::<Words>()).as_mut_ptr()).expect("a mapping");
        // SAFETY: the slice above lies in the mapping, which starts at a page and lives as long as
        // `self`; the places are multiples of 128 bytes. `Words` are atomic integers alone, for
        // which every content is a value, and nothing but them is ever made of these bytes.
        let words = unsafe { words.cast::<Words>().as_ref() };
        Ring { words, bytes: all.slice(bytes, len) }
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.ring(self.outgoing).end();
        self.ring(self.incoming).abandon();
    }
}

impl Stream for Pipe {
    #[inline]
    fn send(&mut self, head: &[u8; HEAD], body: View<'_>, skip: usize) -> Result<usize, Fault> {
        self.ring(self.outgoing).put(unsent(head, body, skip))
    }

    #[inline]
    fn receive(
        &mut self,
        head: &mut [u8; HEAD],
        body: ViewMut<'_>,
        skip: usize,
    ) -> Result<usize, Fault> {
        self.ring(self.incoming).take(unfilled(head, body, skip))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn finish(&mut self) {
        self.ring(self.outgoing).end();
    }
}

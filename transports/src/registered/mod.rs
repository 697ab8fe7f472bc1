//! Registered memory: bytes of one rank that other ranks read and write in place during a call.
//!
//! A [`Registration`] is a shared segment, which all ranks have mapped, with a part of each rank. A
//! call names a place by a [`Ticket`]: registration and offset. After a failed call, the owner maps
//! private copies of the pages ([`sever`](Registration::sever)).
//!
//! # Obligations of the ranks
//!
//! A peer touches a rank's registered bytes only between that rank's announcement of the call and
//! the completion that both see. Callers prove by a trial run that no byte is written while another
//! rank may read it. No check at run time could replace that proof: as with a
//! [board](crate::board), safe methods return views of peers' bytes, and the caller keeps this
//! protocol. After a call that failed, the owner [severs](Registration::sever) the bytes before it
//! uses them again, so a late peer reaches memory that is otherwise unused.

mod arena;
mod buffer;
mod ranges;

use crate::shm::Segment;
pub use arena::Arena;
use arena::ArenaMemory;
pub use buffer::RegisteredBuffer;
use maypole_kernels::{View, ViewMut};
use std::io::{self, Write};
use std::sync::{Arc, Weak};

/// A place in the registered memory of a rank, as a call announces it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Ticket {
    /// The number of the registration, equal on all ranks.
    pub registration: u32,
    /// Bytes from the start of the owner's part of it.
    pub offset: u64,
    /// Bytes of the place.
    pub len: u64,
}

/// Memory of several ranks that each of them may reach in a call, as one rank has it: a shared segment
/// in which each rank of a host has a part.
#[derive(Debug)]
pub struct Registration {
    /// The whole, by which this rank reaches the others.
    whole: Segment,
    /// Offset and bytes of the part of each rank.
    parts: Box<[(usize, usize)]>,
    /// This rank's own part. It is mapped once more, so that severing it leaves the memory that
    /// peers reach where it is.
    own: Weak<ArenaMemory>,
}

impl Registration {
    /// Returns the bytes of a segment with parts of at least these `lengths`.
    ///
    /// ```
    /// use maypole_transports::registered::Registration;
    /// assert_eq!(Registration::bytes(&[1, 4096, 5000]), Some(4 * 4096));
    /// assert_eq!(Registration::bytes(&[usize::MAX]), None);
    /// ```
    pub fn bytes(lengths: &[usize]) -> Option<usize> {
        lengths.iter().try_fold(0usize, |sum, len| {
            sum.checked_add(len.checked_next_multiple_of(arena::PAGE)?)
        })
    }

    /// Returns rank `me`'s part of the segment `whole`, which all ranks make this registration of,
    /// with the same `lengths`, and the rank's access to the others' parts.
    ///
    /// # Errors
    /// If the part cannot be mapped.
    ///
    /// # Panics
    /// If there is no length of `me`, or the segment is smaller than [`bytes`](Self::bytes).
    pub fn new(whole: Segment, lengths: &[usize], me: usize) -> io::Result<(Self, Arena)> {
        let bytes = Self::bytes(lengths);
        assert!(
            bytes.is_some_and(|bytes| bytes <= whole.len()),
            "parts of {lengths:?} bytes do not fit in a segment of {}",
            whole.len()
        );
        let mut start = 0;
        let part = |len: &usize| {
            let part = (start, len.next_multiple_of(arena::PAGE));
            start += part.1;
            part
        };
        let parts: Box<[_]> = lengths.iter().map(part).collect();
        let (offset, len) = parts[me];
        let own = Arc::new(ArenaMemory::map(whole.fd(), offset, len)?);
        Ok((Self { whole, parts, own: Arc::downgrade(&own) }, Arena::new(own)))
    }

    /// Returns the offset of `own` bytes in this rank's part; `None` if they do not lie within it,
    /// or peers must not reach them any more.
    pub fn offset_of(&self, own: View<'_>) -> Option<u64> {
        self.own.upgrade()?.offset_of(own)
    }

    /// Returns the bytes of rank `owner` that `ticket` names; `None` if the owner's part has no
    /// such bytes. See the page for when they may be touched.
    #[inline]
    pub fn reach(&self, owner: usize, ticket: Ticket) -> Option<ViewMut<'_>> {
        let (start, bytes) = *self.parts.get(owner)?;
        let offset = usize::try_from(ticket.offset).ok()?;
        let len = usize::try_from(ticket.len).ok()?;
        let fits = offset.checked_add(len).is_some_and(|end| end <= bytes);
        // SAFETY: ranks keep the protocol of this page, so none of them touches bytes that another
        // one writes at the same time; the mapping lives as long as the borrow.
        fits.then(|| unsafe { self.whole.view() }.slice(start + offset, len))
    }

    /// Cuts peers off from `own` bytes: they keep their content, and later writes of peers go
    /// elsewhere. Does nothing if the bytes are no part of the registration. Afterwards the
    /// registration has no place of this rank's any more.
    ///
    /// Ends the process if the system cannot do it, because late peers could otherwise change the
    /// caller's memory.
    pub fn sever(&self, own: View<'_>) {
        let severed = self.own.upgrade().map_or(Ok(()), |memory| memory.sever(own));
        if let Err(error) = severed {
            let len = own.len();
            let _ = writeln!(
                io::stderr(),
                "maypole: {len} bytes of registered memory cannot be cut off from other ranks, \
                 which may still write to them after a failed call: {error}; this process ends, \
                 so that it does not go on with wrong numbers"
            );
            std::process::abort();
        }
    }

    /// Returns false once this rank has dropped its part and all buffers in it.
    pub fn is_used(&self) -> bool {
        self.own.strong_count() > 0
    }
}

#[cfg(test)]
mod tests;

//! Buffers of elements in registered memory.

use super::arena::{Arena, ArenaMemory};
use bytemuck::{NoUninit, Zeroable};
use maypole_kernels::Region;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// Elements in memory that peers reach in place during a call. A slice in every other respect: it
/// can be sub-sliced, borrowed by requests, and passed to every call.
///
/// If the arena had no room, the elements are in private memory, and calls take them as they take a
/// `Vec`.
///
/// ```
/// use maypole_transports::registered::Registration;
/// use maypole_transports::shm::Segment;
/// let segment = Segment::create(Registration::bytes(&[8192]).unwrap())?;
/// let (_registration, arena) = Registration::new(segment, &[8192], 0)?;
/// let mut buffer = arena.alloc::<f32>(1000);
/// buffer[3..5].copy_from_slice(&[1.0, 2.0]);
/// assert!(buffer.is_registered() && buffer[4] == 2.0 && buffer[5] == 0.0);
/// let second = arena.alloc::<f32>(2000);
/// assert!(!second.is_registered() && second.len() == 2000);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct RegisteredBuffer<T> {
    memory: BufferMemory,
    count: usize,
    elements: PhantomData<T>,
}

enum BufferMemory {
    Registered { arena: Arc<ArenaMemory>, offset: usize, bytes: usize },
    Private(Region),
    Empty,
}

// SAFETY: the buffer owns its range of the arena, or its region, and hands out references only as a
// `Vec<T>` does.
unsafe impl<T: Send> Send for RegisteredBuffer<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for RegisteredBuffer<T> {}

impl<T: NoUninit + Zeroable> RegisteredBuffer<T> {
    pub(super) fn new(arena: &Arc<ArenaMemory>, count: usize) -> Self {
        let bytes = count.checked_mul(size_of::<T>());
        let bytes = bytes.filter(|bytes| isize::try_from(*bytes).is_ok());
        let bytes = bytes.unwrap_or_else(|| panic!("{count} elements are too many for a buffer"));
        let memory = match bytes {
            0 => BufferMemory::Empty,
            _ => arena.take(bytes).map_or_else(
                || BufferMemory::Private(Region::new(bytes)),
                |offset| BufferMemory::Registered { arena: Arc::clone(arena), offset, bytes },
            ),
        };
        Self { memory, count, elements: PhantomData }
    }
}

impl<T> Default for RegisteredBuffer<T> {
    /// A buffer without elements.
    fn default() -> Self {
        Self { memory: BufferMemory::Empty, count: 0, elements: PhantomData }
    }
}

impl<T> RegisteredBuffer<T> {
    /// Returns true if peers can reach the elements in place. False if the arena had no room for
    /// them, and if there are none.
    pub fn is_registered(&self) -> bool {
        matches!(self.memory, BufferMemory::Registered { .. })
    }

    /// Returns the arena that the elements lie in; `None` if they are private.
    pub fn arena(&self) -> Option<Arena> {
        match &self.memory {
            BufferMemory::Registered { arena, .. } => Some(Arena::new(Arc::clone(arena))),
            BufferMemory::Private(_) | BufferMemory::Empty => None,
        }
    }

    #[inline(always)]
    fn start(&self) -> *mut T {
        match &self.memory {
            BufferMemory::Registered { arena, offset, .. } => arena.at(*offset).as_ptr().cast(),
            BufferMemory::Private(region) => region.view().as_mut_ptr().cast(),
            BufferMemory::Empty => std::ptr::dangling_mut(),
        }
    }
}

impl<T> Deref for RegisteredBuffer<T> {
    type Target = [T];

    /// # Panics
    /// In a forked child, which has no registered memory.
    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `count` elements that belong to this buffer, at a page's start; they were zeroed,
        // which is a value of `T`, and have been written as elements since. Peers write them only
        // during a call that has borrowed them: see the page on registered memory.
        unsafe { std::slice::from_raw_parts(self.start(), self.count) }
    }
}

impl<T> DerefMut for RegisteredBuffer<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; the borrow of `self` is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.count) }
    }
}

impl<T> AsRef<[T]> for RegisteredBuffer<T> {
    #[inline]
    fn as_ref(&self) -> &[T] {
        self
    }
}

impl<T> AsMut<[T]> for RegisteredBuffer<T> {
    #[inline]
    fn as_mut(&mut self) -> &mut [T] {
        self
    }
}

impl<T> Drop for RegisteredBuffer<T> {
    fn drop(&mut self) {
        if let BufferMemory::Registered { arena, offset, bytes } = &self.memory {
            arena.give_back(*offset, *bytes);
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for RegisteredBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

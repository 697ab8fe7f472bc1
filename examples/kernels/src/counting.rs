//! An allocator that counts bytes, by thread and kind and by owner.
//!
//! A thread sets the kind of its allocations ([`with_kind`]) and, where several owners share a process,
//! their owner ([`count_for`]). Every block of memory has a tag in front of it with its owner and its
//! kind. So a block is subtracted from the owner that it was added to, whichever thread frees it. A
//! program enables counting by one line, which needs no `unsafe`:
//!
//! ```
//! use maypole_trainer_kernels::counting::{self, CountingAllocator};
//!
//! #[global_allocator]
//! static ALLOCATOR: CountingAllocator = CountingAllocator;
//!
//! counting::count_for(1);
//! let before = counting::of_thread(2).live;
//! let block = counting::with_kind(2, || vec![0u8; 1000]);
//! assert_eq!(counting::of_thread(2).live - before, 1000);
//! assert!(counting::of_owner(1).peak >= 1000);
//! drop(block);
//! assert_eq!(counting::of_thread(2).live, before);
//! ```
//!
//! Cost: 16 bytes a block, or as many as its alignment if that is more, and a few additions for
//! each block that is made or freed.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};

/// The number of separate owners. Bytes of owners from this number on count for owner 0.
pub const OWNERS: usize = 65;
/// The number of separate kinds.
pub const KINDS: usize = 8;

/// The allocated bytes that are not freed, and their peak.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LiveBytes {
    /// Bytes now.
    pub live: i64,
    /// The most bytes at one time; of a thread, since its peaks were [reset](reset_peaks).
    pub peak: i64,
}

struct Counter {
    live: AtomicI64,
    peak: AtomicI64,
}

impl Counter {
    const fn new() -> Self {
        Self { live: AtomicI64::new(0), peak: AtomicI64::new(0) }
    }

    fn add(&self, bytes: i64) {
        let live = self.live.fetch_add(bytes, Relaxed) + bytes;
        if bytes > 0 && live > self.peak.load(Relaxed) {
            self.peak.fetch_max(live, Relaxed);
        }
    }
}

/// A counter on a cache line of its own.
#[repr(align(64))]
struct Owner(Counter);

static TABLE: [Owner; OWNERS] = [const { Owner(Counter::new()) }; OWNERS];
static COUNTS: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// What this thread allocates now.
    static TAG: Cell<Tag> = const { Cell::new(Tag { owner: 0, kind: 0 }) };
    /// Bytes that this thread allocated minus those that it freed, by the kind of the block.
    static KIND: [Cell<LiveBytes>; KINDS] =
        const { [const { Cell::new(LiveBytes { live: 0, peak: 0 }) }; KINDS] };
}

/// Whose a block is, and of which kind.
#[derive(Clone, Copy)]
struct Tag {
    owner: u16,
    kind: u16,
}

/// True if the allocator of this program is a [`CountingAllocator`].
pub fn counts() -> bool {
    COUNTS.load(Relaxed)
}

/// From now on this thread allocates for `owner`.
pub fn count_for(owner: usize) {
    let owner = if owner < OWNERS { owner as u16 } else { 0 };
    TAG.set(Tag { owner, ..TAG.get() });
}

/// The owner for whom this thread allocates.
pub fn owner() -> usize {
    TAG.get().owner.into()
}

/// Does `work`. What it allocates on this thread is of kind `kind`.
///
/// # Panics
/// If `kind` is not below [`KINDS`].
pub fn with_kind<R>(kind: usize, work: impl FnOnce() -> R) -> R {
    assert!(kind < KINDS, "kind {kind} of {KINDS}");
    let before = TAG.get();
    TAG.set(Tag { kind: kind as u16, ..before });
    let result = work();
    TAG.set(Tag { kind: before.kind, ..TAG.get() });
    result
}

/// The bytes of `owner`, of all kinds.
///
/// # Panics
/// If `owner` is not below [`OWNERS`].
pub fn of_owner(owner: usize) -> LiveBytes {
    let Counter { live, peak } = &TABLE[owner].0;
    LiveBytes { live: live.load(Relaxed), peak: peak.load(Relaxed) }
}

/// The bytes of a kind that this thread has allocated, minus those that it has freed. Only
/// differences mean something: a thread may free what another one has allocated.
///
/// # Panics
/// If `kind` is not below [`KINDS`].
pub fn of_thread(kind: usize) -> LiveBytes {
    KIND.with(|kinds| kinds[kind].get())
}

/// Resets the peaks of this thread to the live bytes.
pub fn reset_peaks() {
    KIND.with(|kinds| {
        kinds.iter().for_each(|kind| kind.set(LiveBytes { peak: kind.get().live, ..kind.get() }))
    });
}

/// Adds `bytes`, which may be negative, to the counters of `tag`.
fn count(tag: Tag, bytes: i64) {
    TABLE[usize::from(tag.owner)].0.add(bytes);
    // A thread that ends may free memory after its counters are gone.
    let _ = KIND.try_with(|kinds| {
        let kind = &kinds[usize::from(tag.kind)];
        let LiveBytes { live, peak } = kind.get();
        let live = live + bytes;
        kind.set(LiveBytes { live, peak: peak.max(live) });
    });
}

/// The system's allocator, counted.
#[derive(Clone, Copy, Debug)]
pub struct CountingAllocator;

/// Bytes in front of a block of this alignment: room for a tag, and a multiple of the alignment.
fn room(align: usize) -> usize {
    align.max(16)
}

/// The layout of the system's allocation for a block of `layout`; `None` on overflow.
fn with_room(layout: Layout) -> Option<Layout> {
    let size = layout.size().checked_add(room(layout.align()))?;
    Layout::from_size_align(size, layout.align()).ok()
}

impl CountingAllocator {
    /// Tags the block whose room begins at `whole`, and returns where the block begins.
    ///
    /// # Safety
    /// `whole` is null, or points to memory with the size and alignment of [`with_room`] of `layout`.
    unsafe fn tagged(whole: *mut u8, layout: Layout) -> *mut u8 {
        if whole.is_null() {
            return whole;
        }
        let tag = TAG.try_with(Cell::get).unwrap_or(Tag { owner: 0, kind: 0 });
        if !COUNTS.load(Relaxed) {
            COUNTS.store(true, Relaxed);
        }
        count(tag, layout.size() as i64);
        // SAFETY: the room in front of the block is at least 16 bytes of this allocation. The
        // tag takes its first 4. The write needs no alignment.
        unsafe {
            whole.cast::<Tag>().write_unaligned(tag);
            whole.add(room(layout.align()))
        }
    }

    /// Where the room of `block` begins, and its tag.
    ///
    /// # Safety
    /// `block` came from this allocator, with an alignment of `align`.
    unsafe fn opened(block: *mut u8, align: usize) -> (*mut u8, Tag) {
        // SAFETY: `tagged` has put the room and the tag in front of each block.
        unsafe {
            let whole = block.sub(room(align));
            (whole, whole.cast::<Tag>().read_unaligned())
        }
    }
}

// SAFETY: each request goes to the system's allocator with room for a tag in front, a multiple of
// the alignment; so blocks are aligned and have the requested length. Counting does not allocate and
// cannot panic: tags are made here, of numbers below the tables' lengths.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(whole) = with_room(layout) else { return std::ptr::null_mut() };
        // SAFETY: `whole` is not empty, because room is not; the memory is as `tagged` requires.
        unsafe { Self::tagged(System.alloc(whole), layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let Some(whole) = with_room(layout) else { return std::ptr::null_mut() };
        // SAFETY: as in `alloc`; the tag is outside of the block, whose bytes stay zero.
        unsafe { Self::tagged(System.alloc_zeroed(whole), layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let Some(room) = with_room(layout).map(|whole| whole.size() - layout.size()) else {
            return std::ptr::null_mut();
        };
        let Some(new) = size.checked_add(room) else { return std::ptr::null_mut() };
        // SAFETY: our caller's block came from this allocator with this layout; the system moves
        // the tag along with it.
        unsafe {
            let (whole, tag) = Self::opened(block, layout.align());
            let old = Layout::from_size_align_unchecked(layout.size() + room, layout.align());
            let moved = System.realloc(whole, old, new);
            if moved.is_null() {
                return moved;
            }
            count(tag, size as i64 - layout.size() as i64);
            moved.add(room)
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: our caller's block came from this allocator with this layout, whose size with
        // room was possible.
        unsafe {
            let (whole, tag) = Self::opened(block, layout.align());
            let size = layout.size() + room(layout.align());
            count(tag, -(layout.size() as i64));
            System.dealloc(whole, Layout::from_size_align_unchecked(size, layout.align()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A separate instance of the allocator, which is not that of this program.
    #[test]
    fn blocks_of_any_alignment_keep_their_bytes_and_are_subtracted_where_they_were_added() {
        count_for(7);
        for align in [1, 8, 16, 64, 4096] {
            for size in [1, 24, 5000] {
                let layout = Layout::from_size_align(size, align).unwrap();
                let before = of_owner(7).live;
                // SAFETY: the layout is not empty, and each block is used within its size and
                // freed once with its layout.
                unsafe {
                    let block = with_kind(3, || CountingAllocator.alloc(layout));
                    assert!(block.is_aligned_to_bytes(align));
                    block.write_bytes(7, size);
                    let block = CountingAllocator.realloc(block, layout, 2 * size);
                    assert!(block.is_aligned_to_bytes(align));
                    assert!((0..size).all(|at| *block.add(at) == 7));
                    assert_eq!(of_owner(7).live - before, 2 * size as i64);
                    let twice = Layout::from_size_align(2 * size, align).unwrap();
                    let address = block as usize;
                    // Another thread, of another owner and kind, frees it.
                    std::thread::spawn(move || {
                        count_for(8);
                        CountingAllocator.dealloc(address as *mut u8, twice);
                        assert_eq!(of_thread(3).live, -2 * size as i64);
                        assert_eq!(of_owner(8).live, 0);
                    })
                    .join()
                    .unwrap();
                    assert_eq!(of_owner(7).live, before);
                    let zeroed = CountingAllocator.alloc_zeroed(layout);
                    assert!((0..size).all(|at| *zeroed.add(at) == 0));
                    CountingAllocator.dealloc(zeroed, layout);
                }
            }
        }
        assert!(of_thread(3).peak >= 10_000 && of_owner(7).peak >= 10_000);
        reset_peaks();
        assert_eq!(of_thread(3).peak, of_thread(3).live);
    }

    #[test]
    fn a_request_that_is_too_large_is_refused() {
        let most = Layout::from_size_align(isize::MAX as usize, 1).unwrap();
        // SAFETY: the layout is not empty; nothing is made of it.
        assert!(unsafe { CountingAllocator.alloc(most) }.is_null());
    }

    trait Aligned {
        fn is_aligned_to_bytes(&self, align: usize) -> bool;
    }

    impl Aligned for *mut u8 {
        fn is_aligned_to_bytes(&self, align: usize) -> bool {
            (*self as usize).is_multiple_of(align)
        }
    }
}

//! Handles to bytes that may overlap.
//!
//! A buffer that the user lent, a slot of a peer's board and a part of a peer's registered memory
//! are all *views* to an executor. A [`View`] may be read, a [`ViewMut`] may be read and written.
//! Both may be copied freely and may overlap one another, like cells, and no Rust reference to their
//! bytes is ever made.
//!
//! Views stay in their thread, and so does their lender in safe code: a [`Region`] may be sent to
//! another thread, but not shared. So safe code cannot race on bytes. Memory that threads or
//! processes do share, a [`SharedRegion`] or a segment of the transports, lends no view in safe
//! code: the board and the streams, whose protocols determine which thread may touch which bytes
//! when, take theirs in unsafe code.

mod copy;
mod past_caches;
mod shared;

use bytemuck::{NoUninit, Pod};
use copy::copy;
pub use copy::string_copies_crawl;
pub use shared::SharedRegion;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr::NonNull;

/// Bytes that may be read during `'a`. Cheap to copy; neither `Send` nor `Sync`:
///
/// ```compile_fail,E0277
/// fn is_send<T: Send>() {}
/// is_send::<maypole_kernels::View<'static>>();
/// ```
///
/// ```compile_fail,E0277
/// fn is_sync<T: Sync>() {}
/// is_sync::<maypole_kernels::View<'static>>();
/// ```
///
/// ```
/// use maypole_kernels::View;
///
/// let numbers = [1u16, 2, 3];
/// let last = View::of(&numbers).slice(4, 2);
/// assert_eq!(last.to_vec(), 3u16.to_ne_bytes());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    start: NonNull<u8>,
    len: usize,
    lives: PhantomData<&'a Cell<u8>>,
}

/// Bytes that may be read and written during `'a`. Like a slice of [`Cell`]s, several may overlap,
/// and none leaves its thread:
///
/// ```compile_fail,E0277
/// fn is_send<T: Send>() {}
/// is_send::<maypole_kernels::ViewMut<'static>>();
/// ```
///
/// ```
/// use maypole_kernels::ViewMut;
///
/// let mut bytes = *b"abcdef";
/// let all = ViewMut::of(&mut bytes);
/// all.slice(2, 4).copy_from(all.as_view().slice(0, 4));
/// assert_eq!(&bytes, b"ababcd");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ViewMut<'a>(View<'a>);

impl<'a> View<'a> {
    /// No bytes.
    pub const EMPTY: View<'static> =
        View { start: NonNull::dangling(), len: 0, lives: PhantomData };

    /// Returns a view of the bytes of `slice`.
    #[inline]
    pub fn of<T: NoUninit>(slice: &'a [T]) -> Self {
        Self { start: NonNull::from(slice).cast(), len: size_of_val(slice), lives: PhantomData }
    }

    /// Wraps raw memory.
    ///
    /// # Safety
    /// `start..start + len` stays mapped and readable during `'a`, and no Rust reference that
    /// forbids shared access to it is alive meanwhile.
    #[inline]
    pub const unsafe fn from_raw(start: NonNull<u8>, len: usize) -> Self {
        Self { start, len, lives: PhantomData }
    }

    /// Returns the number of bytes.
    #[inline]
    pub const fn len(self) -> usize {
        self.len
    }

    /// Returns true if there are no bytes.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Returns the address of the first byte. Dereferencing it is the caller's responsibility.
    #[inline]
    pub const fn as_ptr(self) -> *const u8 {
        self.start.as_ptr()
    }

    /// Returns a view of the `len` bytes from `offset` on.
    ///
    /// # Panics
    /// If these bytes do not lie within the view.
    #[inline]
    pub fn slice(self, offset: usize, len: usize) -> Self {
        let end = offset.checked_add(len);
        assert!(
            end.is_some_and(|end| end <= self.len),
            "{len} bytes from byte {offset} on are not within a view of {} bytes",
            self.len
        );
        // SAFETY: the assertion keeps the result within the allocation that `self` covers.
        Self { start: unsafe { self.start.add(offset) }, len, lives: PhantomData }
    }

    /// Copies all bytes to `into`.
    ///
    /// # Panics
    /// If `into` has another length.
    #[inline]
    pub fn copy_to(self, into: &mut [u8]) {
        assert_eq!(self.len, into.len(), "copying a view out needs equal lengths");
        // SAFETY: both cover `len` bytes that live now.
        unsafe { copy(self.as_ptr(), into.as_mut_ptr(), self.len) }
    }

    /// Copies all bytes to a vector.
    pub fn to_vec(self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        self.copy_to(&mut bytes);
        bytes
    }
}

impl<'a> ViewMut<'a> {
    /// No bytes.
    pub const EMPTY: ViewMut<'static> = ViewMut(View::EMPTY);

    /// Returns a view of the bytes of `slice`.
    #[inline]
    pub fn of<T: Pod>(slice: &'a mut [T]) -> Self {
        let len = size_of_val(slice);
        Self(View { start: NonNull::from(slice).cast(), len, lives: PhantomData })
    }

    /// Wraps raw memory.
    ///
    /// # Safety
    /// As [`View::from_raw`], and the bytes are writable.
    #[inline]
    pub const unsafe fn from_raw(start: NonNull<u8>, len: usize) -> Self {
        // SAFETY: passed on to our caller.
        Self(unsafe { View::from_raw(start, len) })
    }

    /// Returns a view of the same bytes for reading.
    #[inline]
    pub const fn as_view(self) -> View<'a> {
        self.0
    }

    /// Returns the number of bytes.
    #[inline]
    pub const fn len(self) -> usize {
        self.0.len
    }

    /// Returns true if there are no bytes.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0.len == 0
    }

    /// Returns the address of the first byte. Dereferencing it is the caller's responsibility.
    #[inline]
    pub const fn as_mut_ptr(self) -> *mut u8 {
        self.0.start.as_ptr()
    }

    /// Returns a view of the `len` bytes from `offset` on.
    ///
    /// # Panics
    /// If these bytes do not lie within the view.
    #[inline]
    pub fn slice(self, offset: usize, len: usize) -> Self {
        Self(self.0.slice(offset, len))
    }

    /// Copies `from` here. The two may overlap or be the same memory.
    ///
    /// # Panics
    /// If the lengths differ.
    #[inline]
    pub fn copy_from(self, from: View<'_>) {
        assert_eq!(self.len(), from.len, "copying between views needs equal lengths");
        if self.as_mut_ptr().cast_const() != from.as_ptr() {
            // SAFETY: both cover `len` bytes that live now.
            unsafe { copy(from.as_ptr(), self.as_mut_ptr(), from.len) }
        }
    }

    /// Copies `bytes` here.
    ///
    /// # Panics
    /// If `bytes` has another length.
    pub fn fill_from(self, bytes: &[u8]) {
        self.copy_from(View::of(bytes));
    }
}

/// Zeroed heap memory that lends views, aligned to [`Region::ALIGN`]. Used for scratch space.
/// Threads share a [`SharedRegion`] instead: this one is not `Sync`, because every view of it may
/// write.
///
/// ```compile_fail,E0277
/// fn is_sync<T: Sync>() {}
/// is_sync::<maypole_kernels::Region>();
/// ```
///
/// ```
/// use maypole_kernels::Region;
///
/// let scratch = Region::new(8);
/// scratch.view().slice(4, 4).fill_from(&[1, 2, 3, 4]);
/// assert_eq!(scratch.view().as_view().to_vec(), [0, 0, 0, 0, 1, 2, 3, 4]);
/// ```
#[derive(Debug)]
pub struct Region {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a `Region` owns its bytes and makes no reference to them; views are bounded by a borrow
// of it, so none remains in its former thread.
unsafe impl Send for Region {}

impl Region {
    /// Alignment of every region: a page.
    pub const ALIGN: usize = 4096;

    /// Allocates `len` zeroed bytes.
    ///
    /// # Panics
    /// If `len` is more than an allocation can have (about half of the address space).
    pub fn new(len: usize) -> Self {
        Self::try_new(len).unwrap_or_else(|| handle_alloc_error(Self::layout(len)))
    }

    /// Allocates `len` zeroed bytes; `None` if there is no memory for them.
    ///
    /// ```
    /// use maypole_kernels::Region;
    /// assert!(Region::try_new(usize::MAX).is_none());
    /// assert_eq!(Region::try_new(8).map(|region| region.len()), Some(8));
    /// ```
    pub fn try_new(len: usize) -> Option<Self> {
        if len == 0 {
            return Some(Self { start: NonNull::dangling(), len });
        }
        let layout = Layout::from_size_align(len, Self::ALIGN).ok()?;
        // SAFETY: the layout has a size above zero.
        let start = unsafe { alloc_zeroed(layout) };
        Some(Self { start: NonNull::new(start)?, len })
    }

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, Self::ALIGN).expect("a region's length fits in isize")
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns a view of all bytes.
    #[inline]
    pub fn view(&self) -> ViewMut<'_> {
        // SAFETY: the allocation lives as long as the borrow; nothing ever makes a reference to
        // its bytes.
        unsafe { ViewMut::from_raw(self.start, self.len) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: allocated in `new` with the same layout.
            unsafe { dealloc(self.start.as_ptr(), Self::layout(self.len)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_reach_to_both_ends() {
        let bytes = [1u8, 2, 3, 4];
        let view = View::of(&bytes);
        assert_eq!(view.slice(0, 4).to_vec(), bytes);
        assert_eq!(view.slice(1, 2).to_vec(), [2, 3]);
        assert!(view.slice(4, 0).is_empty());
        assert!(View::EMPTY.slice(0, 0).to_vec().is_empty());
    }

    #[test]
    #[should_panic(expected = "3 bytes from byte 2 on are not within a view of 4 bytes")]
    fn a_slice_beyond_the_end_is_refused() {
        View::of(&[0u8; 4]).slice(2, 3);
    }

    #[test]
    #[should_panic(expected = "not within a view of 4 bytes")]
    fn a_slice_whose_end_overflows_is_refused() {
        ViewMut::of(&mut [0u8; 4]).slice(1, usize::MAX);
    }

    #[test]
    fn overlapping_copies_move_the_bytes_as_they_were() {
        let mut bytes = [1u8, 2, 3, 4, 5];
        let all = ViewMut::of(&mut bytes);
        all.slice(1, 4).copy_from(all.as_view().slice(0, 4));
        all.copy_from(all.as_view());
        assert_eq!(bytes, [1, 1, 2, 3, 4]);
    }

    #[test]
    #[should_panic(expected = "equal lengths")]
    fn a_copy_of_another_length_is_refused() {
        ViewMut::of(&mut [0u8; 4]).fill_from(&[1, 2, 3]);
    }

    #[test]
    #[should_panic(expected = "equal lengths")]
    fn a_copy_out_of_another_length_is_refused() {
        View::of(&[0u8; 4]).copy_to(&mut [0; 5]);
    }

    #[test]
    fn a_region_is_zeroed_and_aligned() {
        for len in [0, 1, 4095, 4096, 100_000] {
            let region = Region::new(len);
            assert_eq!(region.len(), len);
            assert_eq!(region.is_empty(), len == 0);
            assert!(region.view().as_view().to_vec().iter().all(|byte| *byte == 0));
            assert!(len == 0 || region.view().as_mut_ptr().addr().is_multiple_of(Region::ALIGN));
        }
    }

    #[test]
    #[should_panic(expected = "fits in isize")]
    fn a_region_beyond_the_address_space_is_refused() {
        Region::new(usize::MAX);
    }

    #[test]
    fn one_view_of_a_region_reads_what_another_writes() {
        let region = Region::new(16);
        let writer = region.view();
        let reader = region.view().as_view().slice(8, 4);
        writer.slice(6, 4).fill_from(&[1, 2, 3, 4]);
        assert_eq!(reader.to_vec(), [3, 4, 0, 0]);
    }
}

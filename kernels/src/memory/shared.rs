//! Memory that several threads touch at the same time.

use crate::memory::{Region, ViewMut};

/// Zeroed heap memory that threads share, aligned to [`Region::ALIGN`].
///
/// Safe code can keep it, pass it on and read its address, but cannot touch its bytes: concurrent
/// writes of two threads would race. Code with a protocol of access takes [views](Self::view).
///
/// ```
/// use maypole_kernels::SharedRegion;
/// use std::sync::Arc;
///
/// let shared = Arc::new(SharedRegion::new(8));
/// let same = Arc::clone(&shared);
/// std::thread::spawn(move || {
///     // SAFETY: the other thread touches the bytes only after this thread has ended.
///     unsafe { same.view() }.slice(4, 4).fill_from(&[1, 2, 3, 4]);
/// })
/// .join()
/// .unwrap();
/// // SAFETY: as above.
/// assert_eq!(unsafe { shared.view() }.as_view().to_vec(), [0, 0, 0, 0, 1, 2, 3, 4]);
/// ```
///
/// Without a word about which thread touches which bytes, there is no view:
///
/// ```compile_fail,E0133
/// maypole_kernels::SharedRegion::new(8).view();
/// ```
#[derive(Debug)]
pub struct SharedRegion(Region);

// SAFETY: safe methods read its address and its length alone, which do not change. The caller of
// `view` guarantees that there is no race.
unsafe impl Sync for SharedRegion {}

impl SharedRegion {
    /// Allocates `len` zeroed bytes.
    ///
    /// # Panics
    /// If `len` is more than an allocation can have (about half of the address space).
    pub fn new(len: usize) -> Self {
        Self(Region::new(len))
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the address of the first byte. Dereferencing it is the caller's responsibility.
    pub fn as_ptr(&self) -> *mut u8 {
        self.0.view().as_mut_ptr()
    }

    /// Returns a view of all bytes.
    ///
    /// # Safety
    /// While the view or a copy of it is used, no other thread touches the same bytes, except that
    /// several threads may read bytes that none of them writes. The caller's protocol ensures that,
    /// with the required memory ordering.
    #[inline]
    pub unsafe fn view(&self) -> ViewMut<'_> {
        self.0.view()
    }
}

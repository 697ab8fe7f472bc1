//! Copies that bypass the caches.
//!
//! An ordinary store first brings the line that it writes to into the cache. If the destination is
//! so large that no cache holds any of it, now or when it is read, one transfer in three is wasted.
//! Stores with a non-temporal hint write whole lines to memory instead (Intel 64 and IA-32
//! Architectures Software Developer's Manual, volume 1, section 10.4.6.2).

use super::{View, ViewMut};

impl ViewMut<'_> {
    /// Copies `from` here, and leaves the destination out of the caches where the machine can do so.
    /// Faster than [`copy_from`](Self::copy_from) only if the destination is much larger than the
    /// caches; slower by half if it fits.
    ///
    /// The bytes may be read by any thread that synchronises with this one afterwards. A destination
    /// may be the same memory as the source. If the two overlap in any other way, the destination
    /// holds unspecified bytes afterwards.
    ///
    /// ```
    /// use maypole_kernels::{View, ViewMut};
    /// let from: Vec<u8> = (0..=255).cycle().take(1000).collect();
    /// let mut into = vec![0; 1000];
    /// ViewMut::of(&mut into).copy_past_caches(View::of(&from));
    /// assert_eq!(into, from);
    /// ```
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn copy_past_caches(self, from: View<'_>) {
        assert_eq!(self.len(), from.len(), "copying between views needs equal lengths");
        // Miri does not support such stores.
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if self.as_mut_ptr().cast_const() != from.as_ptr() {
            // SAFETY: both have `len` bytes that live now; every such machine has SSE2.
            unsafe { stream(from.as_ptr(), self.as_mut_ptr(), from.len()) }
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        self.copy_from(from);
    }
}

/// # Safety
/// `from` has `len` readable bytes, `to` as many writable ones.
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn stream(mut from: *const u8, mut to: *mut u8, len: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    const LINE: usize = 64;
    const PART: usize = size_of::<__m128i>();
    let head = to.align_offset(LINE).min(len);
    // SAFETY: `head`, the lines and the tail together are the `len` bytes. Lines begin at multiples
    // of 64, as the stores need.
    unsafe {
        std::ptr::copy(from, to, head);
        (from, to) = (from.add(head), to.add(head));
        let mut left = len - head;
        while left >= LINE {
            let mut parts = [_mm_loadu_si128(from.cast()); LINE / PART];
            let mut at = 1;
            while at < parts.len() {
                parts[at] = _mm_loadu_si128(from.add(at * PART).cast());
                at += 1;
            }
            at = 0;
            while at < parts.len() {
                _mm_stream_si128(to.add(at * PART).cast(), parts[at]);
                at += 1;
            }
            (from, to) = (from.add(LINE), to.add(LINE));
            left -= LINE;
        }
        std::ptr::copy(from, to, left);
        // Such stores are not in order with those by which another thread learns of the bytes.
        _mm_sfence();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_bytes_arrive_and_their_neighbours_stay(
            bytes in proptest::collection::vec(any::<u8>(), 0..700),
            offset in 0usize..130,
        ) {
            let mut into = vec![7u8; offset + bytes.len() + 130];
            let end = offset + bytes.len();
            ViewMut::of(&mut into[offset..end]).copy_past_caches(View::of(&bytes));
            prop_assert_eq!(&into[offset..end], &bytes[..]);
            prop_assert!(into[..offset].iter().chain(&into[end..]).all(|byte| *byte == 7));
        }
    }

    #[test]
    fn a_copy_to_itself_changes_nothing() {
        let mut bytes: Vec<u8> = (0..200).collect();
        let own = ViewMut::of(&mut bytes);
        own.copy_past_caches(own.as_view());
        assert!(bytes.iter().copied().eq(0..200));
    }

    #[test]
    #[should_panic(expected = "equal lengths")]
    fn lengths_must_be_equal() {
        ViewMut::of(&mut [0u8; 2]).copy_past_caches(View::of(&[0u8; 3]));
    }
}

//! Loads and stores of the first 1 to 15 bytes of a 128-bit register.
//!
//! Each is two accesses of half the length or more, which overlap if the length is no power of
//! two. So there is no mask and no loop, no byte outside of the buffer is touched, and the CPU can
//! forward a store to a later load of the same width. No element is cut in two: the length of an
//! access and its offset are multiples of the element size.

/// Loads `len` bytes as the two 64-bit lanes of a register.
///
/// # Safety
/// `from` has `len` readable bytes, `0 < len < 16`.
#[inline(always)]
pub(super) unsafe fn load(from: *const u8, len: usize) -> [u64; 2] {
    /// The first and the last `T` of the bytes.
    ///
    /// # Safety
    /// `from` has `len >= size_of::<T>()` bytes.
    #[inline(always)]
    unsafe fn ends<T: Copy>(from: *const u8, len: usize) -> [T; 2] {
        // SAFETY: the caller is responsible for the bytes.
        unsafe {
            [
                from.cast::<T>().read_unaligned(),
                from.add(len - size_of::<T>()).cast::<T>().read_unaligned(),
            ]
        }
    }
    // SAFETY: each width is at most `len`.
    unsafe {
        match len {
            8.. => ends::<u64>(from, len),
            4.. => {
                let [low, high] = ends::<u32>(from, len);
                [u64::from(low) | u64::from(high) << 32, 0]
            }
            2.. => {
                let [low, high] = ends::<u16>(from, len);
                [u64::from(low) | u64::from(high) << 16, 0]
            }
            _ => [u64::from(*from), 0],
        }
    }
}

/// Stores what [`load`] of the same length loaded, after any operation on its lanes.
///
/// # Safety
/// `to` has `len` writable bytes, `0 < len < 16`.
#[inline(always)]
pub(super) unsafe fn store([low, high]: [u64; 2], to: *mut u8, len: usize) {
    // SAFETY: each width is at most `len`.
    unsafe {
        match len {
            8.. => {
                to.add(len - 8).cast::<u64>().write_unaligned(high);
                to.cast::<u64>().write_unaligned(low);
            }
            4.. => {
                to.add(len - 4).cast::<u32>().write_unaligned((low >> 32) as u32);
                to.cast::<u32>().write_unaligned(low as u32);
            }
            2.. => {
                to.add(len - 2).cast::<u16>().write_unaligned((low >> 16) as u16);
                to.cast::<u16>().write_unaligned(low as u16);
            }
            _ => to.write(low as u8),
        }
    }
}

//! The first 1 to 15 bytes of a 128-bit register.
//!
//! Two accesses of half the length or more, which overlap where they must: no mask, no loop, no byte touched that is not
//! there, and what is stored can be forwarded to a load of the same width. Elements are never cut: every access is a
//! multiple of the element size long and starts at a multiple of it.

use crate::cpu::passes::Partial;
use std::arch::x86_64::*;

impl Partial for __m128i {
    #[inline(always)]
    unsafe fn load_part(from: *const u8, len: usize) -> Self {
        /// Both ends of the bytes as `T`.
        ///
        /// # Safety
        /// `from` has `len >= size_of::<T>()` bytes.
        #[inline(always)]
        unsafe fn ends<T: Copy>(from: *const u8, len: usize) -> (T, T) {
            // SAFETY: the caller answers for the bytes.
            unsafe { (from.cast::<T>().read_unaligned(), from.add(len - size_of::<T>()).cast::<T>().read_unaligned()) }
        }
        // SAFETY: each width is at most `len`.
        unsafe {
            let (low, high) = match len {
                8.. => ends::<i64>(from, len),
                4.. => {
                    let (low, high) = ends::<u32>(from, len);
                    ((u64::from(low) | u64::from(high) << 32).cast_signed(), 0)
                }
                2.. => {
                    let (low, high) = ends::<u16>(from, len);
                    (i64::from(low) | i64::from(high) << 16, 0)
                }
                _ => (i64::from(*from), 0),
            };
            _mm_set_epi64x(high, low)
        }
    }

    #[inline(always)]
    unsafe fn store_part(self, to: *mut u8, len: usize) {
        // SAFETY: each width is at most `len`.
        unsafe {
            let low = _mm_cvtsi128_si64(self).cast_unsigned();
            match len {
                8.. => {
                    let high = _mm_cvtsi128_si64(_mm_unpackhi_epi64(self, self)).cast_unsigned();
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
}

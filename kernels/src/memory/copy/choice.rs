//! Which copies are fast on this machine: measured by the first long copy of a process.

use super::copy_by_avx;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Bytes of a measured copy: C libraries copy so many by `rep movsb`, and a first-level cache holds them.
const LEN: usize = 12 << 10;
const PAGE: usize = 4096;
/// Offsets that are slow on some processors, by how many bytes the destination lies later in its page.
const OFFSETS: [usize; 3] = [0, 16, 2048];
/// An interruption lengthens a copy, so the least of several counts.
const ROUNDS: usize = 5;

/// An offset at which a copy takes more than this many times as long as at another is a slow one.
const CRAWLS: u32 = 4;

type Copy = unsafe fn(*const u8, *mut u8, usize);

/// True if the loop over wide registers takes less time than the C library, at the offset where that loses most.
#[inline]
pub(super) fn lines_are_faster() -> bool {
    static FASTER: OnceLock<bool> = OnceLock::new();
    *FASTER.get_or_init(|| {
        std::arch::is_x86_feature_detected!("avx") && {
            let lost = |(library, lines): (Duration, Duration)| library * 2 > lines * 3;
            let (library, lines) = (times(std::ptr::copy::<u8>), times(copy_by_avx));
            library.into_iter().zip(lines).any(lost)
        }
    })
}

pub(super) fn string_copies_crawl() -> bool {
    static CRAWL: OnceLock<bool> = OnceLock::new();
    *CRAWL.get_or_init(|| {
        let times = times(copy_string);
        times.iter().any(|slow| times.iter().any(|fast| *slow > *fast * CRAWLS))
    })
}

/// The least time of `copy` at each of the [`OFFSETS`].
fn times(copy: Copy) -> [Duration; OFFSETS.len()] {
    let mut bytes = vec![1u8; 2 * (LEN + 2 * PAGE)];
    let start = bytes.as_mut_ptr();
    let from = start.wrapping_add(start.align_offset(PAGE));
    let to = from.wrapping_add((LEN + PAGE).next_multiple_of(PAGE));
    OFFSETS.map(|offset| {
        let once = |_| {
            let begin = Instant::now();
            // SAFETY: both ranges lie within `bytes`, do not overlap, and nothing else uses them.
            unsafe { copy(from, to.wrapping_add(offset), LEN) }
            begin.elapsed()
        };
        (0..ROUNDS).map(once).min().unwrap_or_default()
    })
}

/// # Safety
/// `from` has `len` readable bytes, `to` as many writable ones, and they do not overlap.
unsafe fn copy_string(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the instruction moves `len` bytes upwards, which our caller guarantees to be
    // accessible. The direction flag is clear at the entry of every block.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") len => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_measured_copy_moves_the_bytes() {
        let from: Vec<u8> = (0..LEN).map(|at| at as u8).collect();
        for copy in [std::ptr::copy::<u8> as Copy, copy_string] {
            let mut to = vec![0; LEN];
            // SAFETY: both vectors have `LEN` bytes.
            unsafe { copy(from.as_ptr(), to.as_mut_ptr(), LEN) }
            assert!(from == to);
            assert!(times(copy).iter().all(|time| *time < Duration::from_millis(100)));
        }
    }
}

//! Copies that are fast at every offset.
//!
//! From 2 to 8 KiB on, C libraries copy by one instruction, `rep movsb`. Zen 3 and Zen 4 execute it at 2 GB/s
//! instead of 50 where the destination begins 1 to 31 bytes later in its page than the source in its own
//! (glibc bug 30994, <https://sourceware.org/bugzilla/show_bug.cgi?id=30994>). A large `Vec` begins 16 bytes
//! after the start of a page, and a slot of a board at its start. A loop over wide registers has no
//! such offsets, but on Zen 5 the C library is up to twice as fast. So the first long copy of a
//! process measures the two. `cargo bench --bench copies` compares the choice
//! with the C library.

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod choice;

/// A wide register: four words, aligned as its loads and stores.
#[derive(Clone, Copy)]
#[repr(C, align(32))]
struct Wide([u64; 4]);

/// The registers of one iteration.
type Stride = [Wide; 4];
const STRIDE: usize = size_of::<Stride>();

/// Fewer bytes than this are left to the C library, which copies them by registers, too.
const LONG: usize = 2 << 10;

/// Copies `len` bytes, which may overlap.
///
/// # Safety
/// `from` has `len` readable bytes, `to` as many writable ones.
#[inline(always)]
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: passed on to our caller; each piece is at most `len` long, and two of them at least.
    unsafe {
        match len {
            8..=16 => ends::<u64>(from, to, len),
            17..=32 => ends::<[u64; 2]>(from, to, len),
            4..=7 => ends::<u32>(from, to, len),
            2..=3 => ends::<u16>(from, to, len),
            1 => to.write(from.read()),
            0 => {}
            33..LONG => std::ptr::copy(from, to, len),
            _ => copy_long(from, to, len),
        }
    }
}

/// Copies the first and the last `T` of the bytes, and reads both before it writes either. As fast as the C
/// library at its best.
///
/// # Safety
/// As [`copy`], and `len >= size_of::<T>()`.
#[inline(always)]
unsafe fn ends<T: bytemuck::Pod>(from: *const u8, to: *mut u8, len: usize) {
    let last = len - size_of::<T>();
    // SAFETY: both pieces lie within the `len` bytes.
    unsafe {
        let low = from.cast::<T>().read_unaligned();
        let high = from.add(last).cast::<T>().read_unaligned();
        to.cast::<T>().write_unaligned(low);
        to.add(last).cast::<T>().write_unaligned(high);
    }
}

/// # Safety
/// As [`copy`], and `len >= LONG`.
#[inline(never)]
unsafe fn copy_long(from: *const u8, to: *mut u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let ahead = to.addr().wrapping_sub(from.addr());
        let is_apart = ahead >= len && ahead.wrapping_neg() >= len;
        if is_apart && choice::lines_are_faster() {
            // SAFETY: only a processor that has the instructions is given them; our caller
            // guarantees the rest.
            return unsafe { copy_by_avx(from, to, len) };
        }
    }
    // SAFETY: our caller guarantees it.
    unsafe { std::ptr::copy(from, to, len) }
}

/// Whether this machine executes `rep movsb`, by which kernels and C libraries copy, many times more slowly at
/// some offsets than at others. Measured once a process, in less than 0.1 ms.
pub fn string_copies_crawl() -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    return choice::string_copies_crawl();
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    false
}

/// # Safety
/// As [`copy_lines`], and the processor has AVX.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "avx")]
unsafe fn copy_by_avx(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: passed on to our caller.
    unsafe { copy_lines(from, to, len) }
}

/// Copies `len` bytes that do not overlap: the first stride, strides whose destination is aligned, and the
/// last stride, which overlap.
///
/// # Safety
/// As [`copy`], `len >= STRIDE`, and the two do not overlap.
#[cfg(any(target_arch = "x86_64", test))]
#[inline(always)]
unsafe fn copy_lines(mut from: *const u8, mut to: *mut u8, len: usize) {
    // SAFETY: the head, the aligned strides and the last stride lie within the `len` bytes, and cover them.
    unsafe {
        let (last_from, last_to) = (from.add(len - STRIDE), to.add(len - STRIDE));
        to.cast::<Stride>().write_unaligned(from.cast::<Stride>().read_unaligned());
        let head = STRIDE - to.addr() % STRIDE;
        (from, to) = (from.add(head), to.add(head));
        for _ in 0..(len - head) / STRIDE {
            to.cast::<Stride>().write(from.cast::<Stride>().read_unaligned());
            (from, to) = (from.add(STRIDE), to.add(STRIDE));
        }
        last_to.cast::<Stride>().write_unaligned(last_from.cast::<Stride>().read_unaligned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Copies `len` bytes within one allocation from `from` to `to`, and compares all bytes of it.
    fn check(copy: unsafe fn(*const u8, *mut u8, usize), (from, to): (usize, usize), len: usize) {
        let before: Vec<u8> =
            (0..from.max(to) + len + 200).map(|at| (at * 7 % 251) as u8).collect();
        let mut expected = before.clone();
        expected.copy_within(from..from + len, to);
        let mut bytes = before;
        let start = bytes.as_mut_ptr();
        // SAFETY: both ranges lie within `bytes`, to which there is no other reference meanwhile.
        unsafe { copy(start.add(from), start.add(to), len) }
        assert!(bytes == expected, "{len} bytes from {from} to {to}");
    }

    unsafe fn any(from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: passed on to our caller.
        unsafe { copy(from, to, len) }
    }

    unsafe fn by_lines(from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: passed on to our caller.
        unsafe { copy_lines(from, to, len) }
    }

    /// An interpreter takes minutes for all of them.
    fn some(all: impl Iterator<Item = usize>, few: &[usize]) -> Vec<usize> {
        if cfg!(miri) { few.to_vec() } else { all.collect() }
    }

    #[test]
    fn copies_move_every_byte_and_no_other() {
        let short = some(0..=130, &[0, 1, 2, 3, 4, 7, 8, 15, 16, 17, 32, 33, 130]);
        let long = some(LONG - 2..LONG + 2 * STRIDE + 2, &[LONG - 1, LONG, LONG + STRIDE + 1]);
        for len in short.into_iter().chain(long).chain([32 << 10, 70_000]) {
            for ahead in [0, 1, 8, 31, 64, 100, len.max(1) - 1, len, len + 1, 4096, 8192 + 16] {
                check(any, (100, 100 + ahead), len);
                check(any, (100 + ahead, 100), len);
            }
        }
    }

    /// The bytes end at an inaccessible page: to read or write one byte too many ends the process.
    #[cfg(not(miri))]
    #[test]
    fn no_copy_touches_a_byte_behind_the_last() {
        const ROOM: usize = 4 * 4096;
        let map = |len, protection| {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            // SAFETY: a new mapping, at an address that the kernel chooses.
            let start = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
            assert_ne!(start, libc::MAP_FAILED);
            start.cast::<u8>()
        };
        let [from, to] = [(); 2].map(|()| {
            let start = map(ROOM + 4096, libc::PROT_NONE);
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: the pages are ours alone, and have just been mapped.
            assert_eq!(unsafe { libc::mprotect(start.cast(), ROOM, protection) }, 0);
            start
        });
        for len in (0..300).chain(LONG - 2..LONG + 2 * STRIDE).chain([8191, 8192, ROOM]) {
            // SAFETY: so many bytes lie before the guarded pages, of two mappings; `by_lines` has a stride of them.
            unsafe {
                any(from.add(ROOM - len), to.add(ROOM - len), len);
                if len >= STRIDE {
                    by_lines(from.add(ROOM - len), to.add(ROOM - len), len);
                }
            }
        }
        for start in [from, to] {
            // SAFETY: both were mapped above, and nothing refers to them any more.
            unsafe { libc::munmap(start.cast(), ROOM + 4096) };
        }
    }

    #[test]
    fn lines_cover_all_lengths_and_offsets() {
        let lengths = some(STRIDE..4 * STRIDE + 2, &[STRIDE, STRIDE + 1, 2 * STRIDE, 383]);
        for len in lengths {
            for offset in some(0..STRIDE + 1, &[0, 1, 31, 32, 127]) {
                check(by_lines, (3, 3 + len + offset), len);
                check(by_lines, (offset + len + 5, offset), len);
            }
        }
    }
}

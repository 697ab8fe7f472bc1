//! Where a loop over a buffer begins, so that the address of a buffer does not decide its speed.
//!
//! Buffers of users begin anywhere: a large `Vec` begins 16 bytes behind a page. A store of a whole
//! register that crosses into the next cache line takes two accesses, and a loop of such stores
//! runs at half the speed or less. So loops write one register at the start of the destination,
//! and then go on at the first multiple of the register ([`head_len`]).
//!
//! Two destinations whose addresses do not differ by a multiple of a cache line cannot both be
//! aligned. So the arithmetic writes the first destination only, and a copy to the second follows
//! it ([`is_copied_behind`]).
//!
//! Sources are read where they lie. A load that crosses a line takes two accesses, too. So a
//! reduction whose sources are not aligned with its destination is still slower than one on pages:
//! `cargo bench -p maypole-kernels -- offsets` prints by how much.

/// Bytes of a cache line.
const LINE: usize = 64;

/// Bytes from which on a loop aligns its destination. Shorter loops make few stores, and are not
/// worth one more register at the start. An estimate: other values were not measured.
const ALIGNED: usize = 512;

/// Bytes from which on the second of two destinations may be copied from the first: fewer leave no
/// room for the distance between arithmetic and copy. An estimate, too.
const COPIED: usize = 2 * LAG;

/// Bytes between the arithmetic and the copy that follows it: far enough that the stores of the
/// arithmetic are done, and near enough that they are still in the first-level cache. Of 1, 2 and
/// 3 KiB, the last one was the fastest.
pub(super) const LAG: usize = 3072;

/// Returns how many bytes a loop handles by one register at the start, so that the next register
/// begins at a multiple of its size: 1 to `register` bytes, and a multiple of `element`.
///
/// If the address is no multiple of the element, no register of whole elements can be aligned.
/// Then the length is rounded down to whole elements, and may be 0.
#[inline(always)]
pub(super) const fn head_len(address: usize, len: usize, register: usize, element: usize) -> usize {
    if len < ALIGNED {
        return register;
    }
    let to_multiple = register - address % register;
    to_multiple - to_multiple % element
}

/// Returns true if the result is copied from a destination at `into` to a second one at `also`,
/// instead of being stored to both. `also` is 0 if there is one destination only.
#[inline(always)]
pub(super) const fn is_copied_behind(into: usize, also: usize, len: usize) -> bool {
    also != 0 && len >= COPIED && !(into ^ also).is_multiple_of(LINE)
}

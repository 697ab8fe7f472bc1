//! Where a loop over a buffer begins, so that the address of a buffer does not decide its speed.
//!
//! Buffers of users begin anywhere: a large `Vec` begins 16 bytes behind a page. A store of a whole
//! register that crosses into the next cache line takes two accesses, and a loop of such stores
//! runs at half the speed or less. So loops write one register at the start of the destination,
//! and then go on at the first multiple of the register ([`head_len`]).
//!
//! Two destinations whose addresses differ by no multiple of a cache line cannot both be aligned.
//! Written together, their lines miss the first-level cache in turn, each line in two parts; for
//! 64 KiB this takes 1.35 times as long, even with stores that cross no line. So the arithmetic
//! writes the first destination only, and a copy to the second follows it ([`is_copied_behind`]).
//!
//! Sources are read where they lie. A load that crosses a line also takes two accesses, but a core
//! loads two lines or more in the time of a store.

/// Bytes of a cache line.
const LINE: usize = 64;

/// Bytes from which on a loop aligns its destination. For less, the stores that cross a line take
/// less time than one more register at the start.
const ALIGNED: usize = 512;

/// Bytes from which on the second of two destinations may be copied from the first.
const COPIED: usize = 2 * LAG;

/// Bytes between the arithmetic and the copy that follows it. The stores of the arithmetic have
/// reached the first-level cache by then, so that loads do not wait for them, and are still there.
/// No multiple of 4 KiB: a load waits for an earlier store whose address has the same low 12 bits.
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

//! The start of a loop over a buffer, so that speed does not depend on the buffer's address.
//!
//! Buffers of users begin anywhere: a large `Vec` begins 16 bytes after the start of a page. A
//! store of a whole register that crosses into the next cache line takes two accesses, and a loop
//! of such stores runs at half the speed or less. So loops write one register at the start of the
//! destination, and then continue at the first multiple of the register ([`head_len`]).
//!
//! Sources are read at their own alignment. A load that crosses a line takes two accesses, too. So
//! a reduction whose sources are not aligned with its destination is still slower than one on
//! pages: `cargo bench --bench folds -- offsets` prints by how much.

/// Bytes from which on a loop aligns its destination. Shorter loops make few stores, and are not
/// worth one more register at the start. An estimate: other values were not measured.
const ALIGNED: usize = 512;

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

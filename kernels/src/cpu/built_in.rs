//! Reduction by an operation of this crate, with the best instruction set of the machine.

use super::instruction_set::InstructionSet;
use super::operations::{LONG, ReduceFns};
use crate::{BinaryOp, DataType, Region, View, ViewMut};
use std::ptr::null_mut;

/// Bytes from which on a result is copied to memory that another core has read last. There,
/// `memmove` is faster than the stores of a loop: up to twice as fast where the two cores do not
/// share a cache.
const COPIED: usize = 2 << 10;
/// Bytes that are combined before they are copied. They are in the first-level cache then. Blocks of
/// 4 and 8 KiB were slower.
const BLOCK: usize = 16 << 10;
/// The most sources of a fold that is combined in blocks.
const SLICED: usize = 16;

thread_local! {
    /// Room for a block whose result is stored nowhere but in another core's memory.
    static ROOM: Region = Region::new(BLOCK);
}

/// Combines k sources, in order, into one or two destinations by a [`BinaryOp`].
///
/// A `BuiltInReducer` is two function pointers, chosen for the machine's instruction set when it
/// is made. Make it once, copy it freely, and apply it as often as needed.
///
/// ```
/// use maypole_kernels::{BinaryOp, BuiltInReducer, DataType, View, ViewMut};
///
/// let mut mine = [1.0f32, 2.0];
/// let theirs = [10.0f32, 20.0];
/// let into = ViewMut::of(&mut mine);
/// let sum = BuiltInReducer::new(DataType::F32, BinaryOp::Sum);
/// // A destination may be a source: this is `mine += theirs`.
/// sum.apply(into, None, &[into.as_view(), View::of(&theirs)]);
/// assert_eq!(mine, [11.0, 22.0]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct BuiltInReducer {
    functions: ReduceFns,
    /// The element size (a power of two) less one. A valid length has none of these bits.
    size_mask: usize,
}

impl BuiltInReducer {
    /// Selects the fastest functions of this machine that combine elements of `kind` by `op`.
    ///
    /// # Panics
    /// If `kind` has no such operation: see [`BinaryOp::supports`].
    pub fn new(kind: DataType, op: BinaryOp) -> Self {
        Self::with(InstructionSet::best(), kind, op)
    }

    /// As [`new`](Self::new), with `instructions`, which the machine must have.
    pub(super) fn with(instructions: InstructionSet, kind: DataType, op: BinaryOp) -> Self {
        assert!(op.supports(kind), "{op:?} is not defined for {} elements", kind.name());
        Self { functions: instructions.reduce(kind, op), size_mask: kind.size() - 1 }
    }

    /// Computes `into = (((s0 op s1) op s2) ...)`, element by element, and writes the same to
    /// `also`. A single source is copied unchanged.
    ///
    /// Buffers may start at any address. A destination may be the same memory as a source or as
    /// the other destination. If a destination overlaps a source in any other way, the
    /// destinations hold unspecified numbers afterwards.
    ///
    /// # Panics
    /// If there is no source, if the lengths are not all equal, or if they are no multiple of the
    /// element size.
    #[inline]
    pub fn apply(&self, into: ViewMut<'_>, also: Option<ViewMut<'_>>, sources: &[View<'_>]) {
        let len = check(into, also, sources, self.size_mask);
        if let [source] = *sources {
            into.copy_from(source);
            if let Some(also) = also {
                also.copy_from(source);
            }
        } else if let Some(also) = also.filter(|_| len >= COPIED && sources.len() <= SLICED) {
            self.copy_blocks(also, sources, |start, count| into.slice(start, count));
        } else if len > 0 {
            // SAFETY: by `check`.
            unsafe { self.reduce(into, also, sources) }
        }
    }

    /// Computes the same as [`apply`](Self::apply) with one destination, which is memory that another
    /// core has read last. It is written from a block that this core keeps in its cache.
    ///
    /// # Panics
    /// As [`apply`](Self::apply).
    #[inline]
    pub fn publish(&self, into: ViewMut<'_>, sources: &[View<'_>]) {
        if into.len() < COPIED || !(2..=SLICED).contains(&sources.len()) {
            return self.apply(into, None, sources);
        }
        ROOM.with(|room| self.copy_blocks(into, sources, |_, count| room.view().slice(0, count)));
    }

    /// Combines at most [`SLICED`] sources block by block, each in the `count` bytes that
    /// `block(start, count)` gives, and copies it to `into`.
    #[inline(never)]
    fn copy_blocks<'a>(
        &self,
        into: ViewMut<'_>,
        sources: &[View<'_>],
        block: impl Fn(usize, usize) -> ViewMut<'a>,
    ) {
        let len = check(into, None, sources, self.size_mask);
        let mut parts = [sources[0]; SLICED];
        for start in (0..len).step_by(BLOCK) {
            let count = BLOCK.min(len - start);
            for (part, source) in parts.iter_mut().zip(sources) {
                *part = source.slice(start, count);
            }
            let block = block(start, count);
            // SAFETY: by `check`. A block is a multiple of every element.
            unsafe { self.reduce(block, None, &parts[..sources.len()]) }
            into.slice(start, count).copy_from(block.as_view());
        }
    }

    /// # Safety
    /// There is a source, and all buffers have as many bytes: not none, and a multiple of the element
    /// size.
    #[inline(always)]
    unsafe fn reduce(&self, into: ViewMut<'_>, also: Option<ViewMut<'_>>, sources: &[View<'_>]) {
        let len = into.len();
        let reduce = if len < LONG { self.functions.short } else { self.functions.long };
        let also = also.map_or(null_mut(), ViewMut::as_mut_ptr);
        // SAFETY: the caller is responsible for the buffers; the caller of `with` gave instructions
        // that the machine has.
        unsafe { reduce(into.as_mut_ptr(), also, sources, len) }
    }
}

/// Returns the length that all buffers of a reduction share, a multiple of the element size.
/// `size_mask` is the element size less one.
#[inline(always)]
pub(super) fn check(
    into: ViewMut<'_>,
    also: Option<ViewMut<'_>>,
    sources: &[View<'_>],
    size_mask: usize,
) -> usize {
    let len = into.len();
    let equal = sources.iter().all(|source| source.len() == len)
        && also.is_none_or(|also| also.len() == len);
    if sources.is_empty() || !equal || len & size_mask != 0 {
        refuse(into, also, sources, size_mask + 1);
    }
    len
}

/// Panics with a message that names the wrong argument of a reduction.
#[cold]
#[inline(never)]
fn refuse(into: ViewMut<'_>, also: Option<ViewMut<'_>>, sources: &[View<'_>], size: usize) -> ! {
    assert!(!sources.is_empty(), "a reduction needs at least one source");
    let into = into.len();
    assert!(
        into.is_multiple_of(size),
        "cannot reduce into {into} bytes: that is no multiple of the element size {size}"
    );
    let also = also.map_or(String::new(), |also| format!(" and {}", also.len()));
    let sources: Vec<_> = sources.iter().map(|source| source.len()).collect();
    panic!(
        "a reduction needs equal lengths; the destination has {into}{also} bytes, \
         the sources {sources:?}"
    );
}

//! Reduction by a function of the user.
//!
//! The function takes slices, but others may write the memory of a view at any time. So the
//! function never sees that memory: blocks of elements are copied into private buffers, combined
//! there, and stored.

use super::built_in::check;
use crate::{View, ViewMut};
use bytemuck::Pod;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

/// Elements of a block.
const BLOCK: usize = 1024;
/// Elements of the only block of a short message, for which clearing the buffers of a full block
/// would take longer than combining; and of a block of long elements, for which the stack has room.
const SHORT_BLOCK: usize = 64;

type ReduceViews = dyn Fn(ViewMut<'_>, Option<ViewMut<'_>>, &[View<'_>]) + Send + Sync;

/// Combines k sources, in order, by a function of the user.
///
/// The function is given two slices of equal length, `left` and `right`, and computes `right[i] =
/// left[i] op right[i]`; `left` is from the earlier sources. It is called for parts of the buffers,
/// in no particular order of the parts, so it must treat every element alike. If the function
/// panics, the panic passes through [`apply`](Self::apply), and the destinations hold unspecified
/// elements.
///
/// ```
/// use maypole_kernels::{CustomReducer, View, ViewMut};
///
/// // Appends decimal digits, so the result shows the order of the sources.
/// let append = CustomReducer::new(|left: &[u32], right: &mut [u32]| {
///     left.iter().zip(right).for_each(|(left, right)| *right += 10 * left);
/// });
/// let mut mine = [1u32];
/// let theirs = [2u32];
/// let into = ViewMut::of(&mut mine);
/// append.apply(into, None, &[into.as_view(), View::of(&theirs)]);
/// assert_eq!(mine, [12]);
/// ```
#[derive(Clone)]
pub struct CustomReducer {
    apply: Arc<ReduceViews>,
    /// Bytes of an element.
    pub(super) element: usize,
}

impl CustomReducer {
    /// Wraps `combine`, which computes `right = left op right` element by element.
    pub fn new<T: Pod>(combine: impl Fn(&[T], &mut [T]) + Send + Sync + 'static) -> Self {
        Self {
            apply: Arc::new(move |into, also, sources: &[View<'_>]| {
                reduce(&combine, into, also, sources)
            }),
            element: size_of::<T>(),
        }
    }

    /// Computes `into = (((s0 op s1) op s2) ...)`, element by element, and writes the same to
    /// `also`. Lengths and overlaps are as for
    /// [`BuiltInReducer::apply`](super::BuiltInReducer::apply).
    ///
    /// # Panics
    /// As [`BuiltInReducer::apply`](super::BuiltInReducer::apply), and if the function panics.
    pub fn apply(&self, into: ViewMut<'_>, also: Option<ViewMut<'_>>, sources: &[View<'_>]) {
        (self.apply)(into, also, sources);
    }
}

/// A call whose function panics fails its communicator, so nothing that the panic left half done is used.
impl UnwindSafe for CustomReducer {}
impl RefUnwindSafe for CustomReducer {}

impl fmt::Debug for CustomReducer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CustomReducer").finish_non_exhaustive()
    }
}

fn reduce<T: Pod>(
    combine: &impl Fn(&[T], &mut [T]),
    into: ViewMut<'_>,
    also: Option<ViewMut<'_>>,
    sources: &[View<'_>],
) {
    let len = check(into, also, sources, 0);
    let size = size_of::<T>();
    assert!(len.is_multiple_of(size), "{len} bytes are no multiple of the element size {size}");
    if let [source] = *sources {
        into.copy_from(source);
        if let Some(also) = also {
            also.copy_from(source);
        }
    } else if len <= SHORT_BLOCK * size_of::<T>() || size_of::<T>() > SHORT_BLOCK {
        reduce_blocks::<T, SHORT_BLOCK>(combine, into, also, sources);
    } else {
        reduce_blocks::<T, BLOCK>(combine, into, also, sources);
    }
}

/// Reduces blocks of `N` elements. A destination may be a source, so a block is stored only after
/// all of its sources have been read.
fn reduce_blocks<T: Pod, const N: usize>(
    combine: &impl Fn(&[T], &mut [T]),
    into: ViewMut<'_>,
    also: Option<ViewMut<'_>>,
    sources: &[View<'_>],
) {
    let mut left = [T::zeroed(); N];
    let mut right = [T::zeroed(); N];
    for start in (0..into.len()).step_by(N * size_of::<T>()) {
        let len = (into.len() - start).min(N * size_of::<T>());
        let count = len / size_of::<T>();
        read(sources[0].slice(start, len), &mut left[..count]);
        for source in &sources[1..] {
            read(source.slice(start, len), &mut right[..count]);
            combine(&left[..count], &mut right[..count]);
            // The result is the left operand of the next source.
            left[..count].copy_from_slice(&right[..count]);
        }
        for to in [Some(into), also].into_iter().flatten() {
            to.slice(start, len).fill_from(bytemuck::cast_slice(&left[..count]));
        }
    }
}

fn read<T: Pod>(from: View<'_>, into: &mut [T]) {
    from.copy_to(bytemuck::cast_slice_mut(into));
}

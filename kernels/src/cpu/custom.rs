//! A fold by a function of the user's.
//!
//! The function wants slices, and what views cover may be written by others meanwhile. So it never
//! sees that memory: a block of elements is copied out, combined in buffers of our own, and stored.

use super::{BuiltInReducer, check};
use crate::{View, ViewMut};
use bytemuck::Pod;
use std::fmt;
use std::sync::Arc;

/// Elements that are combined at once, and fewer for short messages, which would pay for clearing
/// the buffers.
const BLOCK: usize = 1024;
const SHORT: usize = 64;

type Apply = dyn Fn(ViewMut<'_>, Option<ViewMut<'_>>, &[View<'_>]) + Send + Sync;

/// Combines k sources, in order, by a function of the user's.
///
/// The function is given `left` and `right`, equally long, and makes `right[i] = left[i] op
/// right[i]`, where `left` is what comes first in the order of the sources. It is called for parts
/// of the buffers, in any order of parts, so it must treat every element alike. If it panics, the
/// panic passes through [`apply`](Self::apply) and the destinations hold unspecified elements.
///
/// ```
/// use maypole_kernels::{CustomReducer, View, ViewMut};
///
/// // Decimal digits, one behind the other: the order shows.
/// let append = CustomReducer::new(|left: &[u32], right: &mut [u32]| {
///     left.iter().zip(right).for_each(|(left, right)| *right += 10 * left);
/// });
/// let (mut mine, b, c) = ([1u32], [2u32], [3u32]);
/// let into = ViewMut::of(&mut mine);
/// append.apply(into, None, &[into.as_view(), View::of(&b)]);
/// assert_eq!(mine, [12]);
/// ```
#[derive(Clone)]
pub struct CustomReducer {
    apply: Arc<Apply>,
}

impl CustomReducer {
    /// A fold by `combine`, which makes `right = left op right` element by element.
    pub fn new<T: Pod>(combine: impl Fn(&[T], &mut [T]) + Send + Sync + 'static) -> Self {
        Self {
            apply: Arc::new(move |into, also, sources: &[View<'_>]| {
                fold(&combine, into, also, sources)
            }),
        }
    }

    /// `into = (((s0 op s1) op s2) ...)`, element by element; the same to `also`. Places and
    /// lengths are as for [`BuiltInReducer::apply`].
    ///
    /// # Panics
    /// As [`BuiltInReducer::apply`], and if the function does.
    pub fn apply(&self, into: ViewMut<'_>, also: Option<ViewMut<'_>>, sources: &[View<'_>]) {
        (self.apply)(into, also, sources);
    }
}

impl fmt::Debug for CustomReducer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CustomReducer").finish_non_exhaustive()
    }
}

fn fold<T: Pod>(
    combine: &impl Fn(&[T], &mut [T]),
    into: ViewMut<'_>,
    also: Option<ViewMut<'_>>,
    sources: &[View<'_>],
) {
    let len = check(into, also, sources, size_of::<T>() - 1);
    if let [source] = *sources {
        into.copy_from(source);
        if let Some(also) = also {
            also.copy_from(source);
        }
    } else if len <= SHORT * size_of::<T>() {
        blocks::<T, SHORT>(combine, into, also, sources);
    } else {
        blocks::<T, BLOCK>(combine, into, also, sources);
    }
}

/// Block by block: a destination may be a source, so a block is stored when all of its sources are
/// read.
fn blocks<T: Pod, const N: usize>(
    combine: &impl Fn(&[T], &mut [T]),
    into: ViewMut<'_>,
    also: Option<ViewMut<'_>>,
    sources: &[View<'_>],
) {
    let (mut left, mut right) = ([T::zeroed(); N], [T::zeroed(); N]);
    for start in (0..into.len()).step_by(N * size_of::<T>()) {
        let len = (into.len() - start).min(N * size_of::<T>());
        let count = len / size_of::<T>();
        read(sources[0].slice(start, len), &mut left[..count]);
        for source in &sources[1..] {
            read(source.slice(start, len), &mut right[..count]);
            combine(&left[..count], &mut right[..count]);
            // What was combined is what stands on the left next.
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

/// How sources combine: by a fold of this crate, or by a function of the user's.
#[derive(Clone, Debug)]
pub enum Reducer {
    /// By vector instructions.
    BuiltIn(BuiltInReducer),
    /// By a function.
    Custom(CustomReducer),
}

impl Reducer {
    /// As [`BuiltInReducer::apply`] and [`CustomReducer::apply`].
    ///
    /// # Panics
    /// As these.
    #[inline(always)]
    pub fn apply(&self, into: ViewMut<'_>, also: Option<ViewMut<'_>>, sources: &[View<'_>]) {
        match self {
            Self::BuiltIn(fold) => fold.apply(into, also, sources),
            Self::Custom(custom) => custom.apply(into, also, sources),
        }
    }
}

impl From<BuiltInReducer> for Reducer {
    fn from(fold: BuiltInReducer) -> Self {
        Self::BuiltIn(fold)
    }
}

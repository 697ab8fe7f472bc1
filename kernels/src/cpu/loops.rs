//! Loops over whole buffers, written once for every register: load, combine, store.
//!
//! A destination may be one of the sources, so slices cannot carry the data, and a compiler cannot
//! be relied upon to vectorise a plain loop. Instead each instruction set defines its [`Register`]
//! and the combination of two of them ([`Combine`]). The loops here are inlined into functions that
//! enable the instruction set. They are `while` loops because iterators are inlined at full
//! optimisation only, and test builds use less.
//!
//! **Ends.** The first register begins where the buffer begins, and the second begins at a multiple
//! of the register (see `alignment`), so the two may overlap. The last register ends where the
//! buffer ends, and may overlap the register before it. Both are computed *before* anything is
//! written, because a destination may be one of their sources. They are stored last.

use super::alignment::head_len;
use super::operations::{Combine, OnEach, PartialRegister, Register};
use crate::View;

/// The addresses of the sources. An array of them stays in machine registers. A slice is read
/// again after every store, because the compiler must assume that the store changed it.
trait SourcePointers: Copy {
    fn count(self) -> usize;

    /// # Safety
    /// `index < self.count()`
    unsafe fn start(self, index: usize) -> *const u8;
}

impl<const K: usize> SourcePointers for [*const u8; K] {
    #[inline(always)]
    fn count(self) -> usize {
        K
    }

    #[inline(always)]
    unsafe fn start(self, index: usize) -> *const u8 {
        self[index]
    }
}

impl SourcePointers for &[View<'_>] {
    #[inline(always)]
    fn count(self) -> usize {
        self.len()
    }

    #[inline(always)]
    unsafe fn start(self, index: usize) -> *const u8 {
        // SAFETY: the caller keeps `index` in bounds.
        unsafe { self.get_unchecked(index) }.as_ptr()
    }
}

/// Reduces buffers of one register or more.
///
/// # Safety
/// As [`ReduceFn`], and `len >= R::BYTES`.
#[inline(always)]
pub(super) unsafe fn reduce_long<R: Register, T, O: Combine<R, T>>(
    into: *mut u8,
    also: *mut u8,
    sources: &[View<'_>],
    len: usize,
) {
    // SAFETY: passed on to our caller.
    unsafe {
        // Loops for three and four sources are a quarter faster where all lies in the first cache. Those
        // over bytes took as long to compile as all other code of this crate.
        match *sources {
            [a, b] => reduce_from::<R, T, O, _>(into, also, [a, b].map(View::as_ptr), len),
            [a, b, c] if const { size_of::<T>() > 1 } => {
                reduce_from::<R, T, O, _>(into, also, [a, b, c].map(View::as_ptr), len)
            }
            [a, b, c, d] if const { size_of::<T>() > 1 } => {
                reduce_from::<R, T, O, _>(into, also, [a, b, c, d].map(View::as_ptr), len)
            }
            _ => reduce_from::<R, T, O, _>(into, also, sources, len),
        }
    }
}

/// # Safety
/// As [`reduce_long`].
#[inline(always)]
unsafe fn reduce_from<R: Register, T, O: Combine<R, T>, S: SourcePointers>(
    into: *mut u8,
    also: *mut u8,
    sources: S,
    len: usize,
) {
    // SAFETY: every access is `R::BYTES` long and ends at `len` or before.
    unsafe {
        let last = len - R::BYTES;
        let [head] = combine_at::<R, T, O, S, 1>(sources, 0);
        let [tail] = combine_at::<R, T, O, S, 1>(sources, last);
        let mut at = head_len(into.addr(), len, R::BYTES, size_of::<T>());
        while at + 3 * R::BYTES < last {
            store_at(into, also, at, combine_at::<R, T, O, S, 4>(sources, at));
            at += 4 * R::BYTES;
        }
        while at < last {
            store_at(into, also, at, combine_at::<R, T, O, S, 1>(sources, at));
            at += R::BYTES;
        }
        store_at(into, also, 0, [head]);
        store_at(into, also, last, [tail]);
    }
}

/// Computes `N` registers of the result. With several registers, the CPU overlaps their chains of
/// dependent operations.
///
/// # Safety
/// Each source has `N` registers of bytes from `at` on.
#[inline(always)]
unsafe fn combine_at<R: Register, T, O: Combine<R, T>, S: SourcePointers, const N: usize>(
    sources: S,
    at: usize,
) -> [R; N] {
    // SAFETY: the caller is responsible for the bytes, and there is at least one source.
    unsafe {
        let mut result = load_all(sources.start(0).add(at));
        let mut index = 1;
        while index < sources.count() {
            let next: [R; N] = load_all(sources.start(index).add(at));
            let mut lane = 0;
            while lane < N {
                result[lane] = O::combine(result[lane], next[lane]);
                lane += 1;
            }
            index += 1;
        }
        result
    }
}

/// # Safety
/// `from` has `N` registers of bytes.
#[inline(always)]
unsafe fn load_all<R: Register, const N: usize>(from: *const u8) -> [R; N] {
    // SAFETY: the caller is responsible for the bytes.
    unsafe {
        let mut all = [R::load(from); N];
        let mut lane = 1;
        while lane < N {
            all[lane] = R::load(from.add(lane * R::BYTES));
            lane += 1;
        }
        all
    }
}

/// # Safety
/// `into`, and `also` unless it is null, have `N` registers of bytes from `at` on.
#[inline(always)]
unsafe fn store_at<R: Register, const N: usize>(
    into: *mut u8,
    also: *mut u8,
    at: usize,
    result: [R; N],
) {
    // SAFETY: the caller is responsible for the bytes.
    unsafe {
        store_all(into.add(at), result);
        if !also.is_null() {
            store_all(also.add(at), result);
        }
    }
}

/// # Safety
/// `to` has `N` registers of bytes.
#[inline(always)]
unsafe fn store_all<R: Register, const N: usize>(to: *mut u8, all: [R; N]) {
    // SAFETY: the caller is responsible for the bytes.
    unsafe {
        let mut lane = 0;
        while lane < N {
            all[lane].store(to.add(lane * R::BYTES));
            lane += 1;
        }
    }
}

/// Reduces buffers of any length. Fast for a cache line (64 bytes) or less: the loop is not
/// unrolled, and few instructions precede the first load.
///
/// # Safety
/// As [`ReduceFn`].
#[inline(always)]
pub(super) unsafe fn reduce_short<R: PartialRegister, T, O: Combine<R, T>>(
    into: *mut u8,
    also: *mut u8,
    sources: &[View<'_>],
    len: usize,
) {
    // SAFETY: passed on to our caller; `len > 0`.
    unsafe {
        if len < R::BYTES {
            let mut result = R::load_part(sources.start(0), len);
            let mut index = 1;
            while index < sources.count() {
                result = O::combine(result, R::load_part(sources.start(index), len));
                index += 1;
            }
            result.store_part(into, len);
            if !also.is_null() {
                result.store_part(also, len);
            }
            return;
        }
        let last = len - R::BYTES;
        let [tail] = combine_at::<R, T, O, _, 1>(sources, last);
        let mut at = 0;
        while at < last {
            store_at(into, also, at, combine_at::<R, T, O, _, 1>(sources, at));
            at += R::BYTES;
        }
        store_at(into, also, last, [tail]);
    }
}

/// Applies `F` to each element of buffers of any length.
///
/// # Safety
/// As [`MapFn`](super::operations::MapFn); `R::BYTES` is at most the length of a
/// [`RepeatedFactor`](super::operations::RepeatedFactor).
#[inline(always)]
pub(super) unsafe fn map<R: PartialRegister, F: OnEach<R>>(
    into: *mut u8,
    from: *const u8,
    len: usize,
    number: F::Number,
) {
    // SAFETY: passed on to our caller.
    unsafe {
        if len < R::BYTES {
            F::apply(R::load_part(from, len), F::operand(number)).store_part(into, len);
        } else {
            map_long::<R, F>(into, from, len, number);
        }
    }
}

/// Applies `F` to each element of buffers of one register or more.
///
/// # Safety
/// As [`map`], and `len >= R::BYTES`.
#[inline(always)]
pub(super) unsafe fn map_long<R: Register, F: OnEach<R>>(
    into: *mut u8,
    from: *const u8,
    len: usize,
    number: F::Number,
) {
    // SAFETY: every access is `R::BYTES` long and ends at `len` or before.
    unsafe {
        let operand = F::operand(number);
        let last = len - R::BYTES;
        let head = F::apply(R::load(from), operand);
        let tail = F::apply(R::load(from.add(last)), operand);
        let mut at = head_len(into.addr(), len, R::BYTES, F::ELEMENT);
        while at < last {
            F::apply(R::load(from.add(at)), operand).store(into.add(at));
            at += R::BYTES;
        }
        head.store(into);
        tail.store(into.add(last));
    }
}

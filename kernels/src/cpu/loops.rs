//! The shape of every fold, written once for all registers: load, combine, store.
//!
//! A destination may be one of the sources, so slices cannot carry the data and a compiler cannot
//! be relied upon to vectorise a plain loop. Instead each instruction set says what its
//! [`Register`] is and how two of them combine ([`Step`]); the loops here are inlined into
//! functions that enable the instruction set. They are `while` loops because iterators are inlined
//! only by an optimiser at full strength, and builds for tests run at less.
//!
//! **Tails.** A length that is no multiple of the register ends with one register that overlaps the
//! one before it. It is computed *before* anything is written and stored last: in place, a source
//! is read only while it is still a source.

use crate::View;

/// Bytes that one instruction works on.
pub(super) trait Register: Copy {
    const BYTES: usize;

    /// # Safety
    /// `from` has [`Self::BYTES`] readable bytes; the CPU has the register's instruction set.
    unsafe fn load(from: *const u8) -> Self;

    /// # Safety
    /// `to` has [`Self::BYTES`] writable bytes; the CPU has the register's instruction set.
    unsafe fn store(self, to: *mut u8);
}

/// A register whose first bytes alone can be loaded and stored.
pub(super) trait Partial: Register {
    /// # Safety
    /// `from` has `len` readable bytes, `0 < len < Self::BYTES`; the CPU has the register's
    /// instruction set.
    unsafe fn load_part(from: *const u8, len: usize) -> Self;

    /// # Safety
    /// `to` has `len` writable bytes, `0 < len < Self::BYTES`; the CPU has the register's
    /// instruction set.
    unsafe fn store_part(self, to: *mut u8, len: usize);
}

/// How the elements `T` of two registers combine.
pub(super) trait Step<R, T> {
    /// # Safety
    /// The CPU has the register's instruction set.
    unsafe fn step(left: R, right: R) -> R;
}

/// Division of elements `Self` in a register.
pub(super) trait Quotient<R> {
    /// # Safety
    /// The CPU has the register's instruction set; `by` is not zero.
    unsafe fn quotient(value: R, by: u64) -> R;
}

pub(super) struct Sum;
pub(super) struct Product;
pub(super) struct Min;
pub(super) struct Max;
pub(super) struct And;
pub(super) struct Or;
pub(super) struct Xor;

/// A fold whose pointers are known to be good: `into`, `also` (or null), the sources and the length
/// of each in bytes.
///
/// # Safety
/// At least one source; all buffers have `len > 0` bytes, a multiple of the element size; the CPU
/// has the instruction set that the function was chosen for.
pub(super) type Pass = unsafe fn(into: *mut u8, also: *mut u8, sources: &[View<'_>], len: usize);

/// A division in place whose arguments are known to be good: the values, their length in bytes, the
/// divisor.
///
/// # Safety
/// There are `len > 0` bytes, a multiple of the element size; `by` is not zero; the CPU has the
/// instruction set that the function was chosen for.
pub(super) type Divide = unsafe fn(values: *mut u8, len: usize, by: u64);

/// A multiplication whose arguments are known to be good: `into = from * factor`, `len` bytes;
/// `factor` is a register of equal elements. `from` may be `into`.
///
/// # Safety
/// There are `len > 0` bytes, a multiple of the element size; the CPU has the instruction set that
/// the function was chosen for.
pub(super) type Scale = unsafe fn(into: *mut u8, from: *const u8, len: usize, factor: &Lanes);

/// As many equal elements as the longest register of a [`Scale`] has.
pub(super) type Lanes = [u8; 32];

/// The starts of the sources. Arrays live in machine registers: a slice has to be read again after
/// every store, because for all the compiler knows, that changed it.
trait Sources: Copy {
    fn count(self) -> usize;

    /// # Safety
    /// `index < self.count()`
    unsafe fn start(self, index: usize) -> *const u8;
}

impl<const K: usize> Sources for [*const u8; K] {
    #[inline(always)]
    fn count(self) -> usize {
        K
    }

    #[inline(always)]
    unsafe fn start(self, index: usize) -> *const u8 {
        self[index]
    }
}

impl Sources for &[View<'_>] {
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

/// One pass over buffers of at least one register.
///
/// # Safety
/// As [`Pass`], and `len >= R::BYTES`.
#[inline(always)]
pub(super) unsafe fn long<R: Register, T, O: Step<R, T>>(
    into: *mut u8,
    also: *mut u8,
    sources: &[View<'_>],
    len: usize,
) {
    // SAFETY: passed on to our caller.
    unsafe {
        match *sources {
            [a, b] => sweep::<R, T, O, _>(into, also, [a, b].map(View::as_ptr), len),
            [a, b, c] => sweep::<R, T, O, _>(into, also, [a, b, c].map(View::as_ptr), len),
            [a, b, c, d] => sweep::<R, T, O, _>(into, also, [a, b, c, d].map(View::as_ptr), len),
            _ => sweep::<R, T, O, _>(into, also, sources, len),
        }
    }
}

/// # Safety
/// As [`long`].
#[inline(always)]
unsafe fn sweep<R: Register, T, O: Step<R, T>, S: Sources>(
    into: *mut u8,
    also: *mut u8,
    sources: S,
    len: usize,
) {
    // SAFETY: every access is `R::BYTES` long and ends at `len` or before.
    unsafe {
        let last = len - R::BYTES;
        let [tail] = gather::<R, T, O, S, 1>(sources, last);
        let mut at = 0;
        while at + 3 * R::BYTES < last {
            scatter(into, also, at, gather::<R, T, O, S, 4>(sources, at));
            at += 4 * R::BYTES;
        }
        while at < last {
            scatter(into, also, at, gather::<R, T, O, S, 1>(sources, at));
            at += R::BYTES;
        }
        scatter(into, also, last, [tail]);
    }
}

/// `N` registers of the result. Several at once, so that their chains of additions overlap.
///
/// # Safety
/// Each source has `N` registers of bytes from `at` on.
#[inline(always)]
unsafe fn gather<R: Register, T, O: Step<R, T>, S: Sources, const N: usize>(
    sources: S,
    at: usize,
) -> [R; N] {
    // SAFETY: the caller answers for the bytes, and there is at least one source.
    unsafe {
        let mut result = load_all(sources.start(0).add(at));
        let mut index = 1;
        while index < sources.count() {
            let next: [R; N] = load_all(sources.start(index).add(at));
            let mut lane = 0;
            while lane < N {
                result[lane] = O::step(result[lane], next[lane]);
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
    // SAFETY: the caller answers for the bytes.
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
unsafe fn scatter<R: Register, const N: usize>(
    into: *mut u8,
    also: *mut u8,
    at: usize,
    result: [R; N],
) {
    // SAFETY: the caller answers for the bytes.
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
    // SAFETY: the caller answers for the bytes.
    unsafe {
        let mut lane = 0;
        while lane < N {
            all[lane].store(to.add(lane * R::BYTES));
            lane += 1;
        }
    }
}

/// One pass over any length, best for a cache line or less: no unrolling, few instructions before
/// the first load.
///
/// # Safety
/// As [`Pass`].
#[inline(always)]
pub(super) unsafe fn line<R: Partial, T, O: Step<R, T>>(
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
                result = O::step(result, R::load_part(sources.start(index), len));
                index += 1;
            }
            result.store_part(into, len);
            if !also.is_null() {
                result.store_part(also, len);
            }
            return;
        }
        let last = len - R::BYTES;
        let [tail] = gather::<R, T, O, _, 1>(sources, last);
        let mut at = 0;
        while at < last {
            scatter(into, also, at, gather::<R, T, O, _, 1>(sources, at));
            at += R::BYTES;
        }
        scatter(into, also, last, [tail]);
    }
}

/// Multiplies, any length.
///
/// # Safety
/// As [`Scale`]; `R::BYTES` is at most the length of [`Lanes`].
#[inline(always)]
pub(super) unsafe fn scale<R: Partial, T>(
    into: *mut u8,
    from: *const u8,
    len: usize,
    factor: &Lanes,
) where
    Product: Step<R, T>,
{
    // SAFETY: passed on to our caller.
    unsafe {
        if len < R::BYTES {
            let factor = R::load(factor.as_ptr());
            <Product as Step<R, T>>::step(R::load_part(from, len), factor).store_part(into, len);
        } else {
            scale_long::<R, T>(into, from, len, factor);
        }
    }
}

/// Multiplies, one register of bytes or more.
///
/// # Safety
/// As [`scale`], and `len >= R::BYTES`.
#[inline(always)]
pub(super) unsafe fn scale_long<R: Register, T>(
    into: *mut u8,
    from: *const u8,
    len: usize,
    factor: &Lanes,
) where
    Product: Step<R, T>,
{
    // SAFETY: every access is `R::BYTES` long and ends at `len` or before.
    unsafe {
        let factor = R::load(factor.as_ptr());
        let last = len - R::BYTES;
        let tail = <Product as Step<R, T>>::step(R::load(from.add(last)), factor);
        let mut at = 0;
        while at < last {
            <Product as Step<R, T>>::step(R::load(from.add(at)), factor).store(into.add(at));
            at += R::BYTES;
        }
        tail.store(into.add(last));
    }
}

/// Divides in place, any length.
///
/// # Safety
/// As [`Divide`].
#[inline(always)]
pub(super) unsafe fn divide<R: Partial, T: Quotient<R>>(values: *mut u8, len: usize, by: u64) {
    // SAFETY: passed on to our caller.
    unsafe {
        if len < R::BYTES {
            T::quotient(R::load_part(values, len), by).store_part(values, len);
        } else {
            divide_long::<R, T>(values, len, by);
        }
    }
}

/// Divides in place, one register of bytes or more.
///
/// # Safety
/// As [`Divide`], and `len >= R::BYTES`.
#[inline(always)]
pub(super) unsafe fn divide_long<R: Register, T: Quotient<R>>(
    values: *mut u8,
    len: usize,
    by: u64,
) {
    // SAFETY: every access is `R::BYTES` long and ends at `len` or before.
    unsafe {
        let last = len - R::BYTES;
        let tail = T::quotient(R::load(values.add(last)), by);
        let mut at = 0;
        while at < last {
            T::quotient(R::load(values.add(at)), by).store(values.add(at));
            at += R::BYTES;
        }
        tail.store(values.add(last));
    }
}

//! Buffers of C as slices.

use crate::error::Failure;
use maypole::{AnyElement, AnySlice, AnySliceMut, CallBuffers, DataType, IntoBuffers};
use std::ffi::c_void;

/// A buffer of C: where it begins, and its bytes.
#[derive(Clone, Copy)]
pub(crate) struct RawBuffer {
    pub(crate) start: *mut c_void,
    pub(crate) len: usize,
}

impl RawBuffer {
    pub(crate) const EMPTY: Self = Self { start: std::ptr::null_mut(), len: 0 };

    /// The buffer of `count` elements of `size` bytes at `start`.
    pub(crate) fn new(start: *const c_void, count: usize, size: usize) -> Result<Self, Failure> {
        let len = count.checked_mul(size).filter(|len| isize::try_from(*len).is_ok());
        let len = len.ok_or_else(|| Failure::invalid(format!("{count} elements are too many")))?;
        if start.is_null() && len > 0 {
            return Err(Failure::invalid(format!("a buffer of {len} bytes is NULL")));
        }
        Ok(Self { start: start.cast_mut(), len })
    }

    fn is_same(self, other: Self) -> bool {
        self.start == other.start && self.len == other.len
    }

    /// True if the two have bytes in common. A buffer without bytes has none, wherever it begins.
    fn overlaps(self, other: Self) -> bool {
        if self.len == 0 || other.len == 0 {
            return false;
        }
        let [mine, theirs] = [self, other].map(|it| it.start.addr()..it.start.addr() + it.len);
        mine.start < theirs.end && theirs.start < mine.end
    }

    /// # Safety
    /// The buffer must be readable for `'a`, and nobody may write it.
    pub(crate) unsafe fn bytes<'a>(self) -> &'a [u8] {
        match self.len {
            0 => &[],
            // SAFETY: not null, as `new` has checked; readable, as the caller promises.
            len => unsafe { std::slice::from_raw_parts(self.start.cast(), len) },
        }
    }

    /// # Safety
    /// The buffer must be writable for `'a`, and nobody else may use it.
    pub(crate) unsafe fn bytes_mut<'a>(self) -> &'a mut [u8] {
        match self.len {
            0 => &mut [],
            // SAFETY: not null, as `new` has checked; exclusive, as the caller promises.
            len => unsafe { std::slice::from_raw_parts_mut(self.start.cast(), len) },
        }
    }
}

/// The buffers of a call on elements of C.
pub(crate) type AnyBuffers<'a> = CallBuffers<'a, AnyElement>;

/// The buffers of a call that works in place.
///
/// # Safety
/// As [`RawBuffer::bytes_mut`].
pub(crate) unsafe fn in_place<'a>(kind: DataType, data: RawBuffer) -> AnyBuffers<'a> {
    // SAFETY: the caller's promise.
    AnySliceMut::new(kind, unsafe { data.bytes_mut() }).into_buffers()
}

/// The buffers of a call that reads `input` and writes `output`. They may be the same buffer; other
/// overlaps are refused.
///
/// # Safety
/// As [`RawBuffer::bytes`] for `input` and [`RawBuffer::bytes_mut`] for `output`.
pub(crate) unsafe fn either<'a>(
    kind: DataType,
    input: RawBuffer,
    output: RawBuffer,
) -> Result<AnyBuffers<'a>, Failure> {
    // SAFETY: the caller's promise.
    unsafe {
        match input.is_same(output) {
            true => Ok(in_place(kind, output)),
            false => apart(kind, input, output),
        }
    }
}

/// The buffers of a call that works on `whole` if `part` is its block at `offset` bytes, and reads
/// `input` and writes `output` otherwise.
///
/// # Safety
/// As [`either`]; `whole` is one of the two buffers and must be writable if `part` lies in it.
pub(crate) unsafe fn block_of<'a>(
    kind: DataType,
    (whole, part, offset): (RawBuffer, RawBuffer, usize),
    (input, output): (RawBuffer, RawBuffer),
) -> Result<AnyBuffers<'a>, Failure> {
    let is_own_block = whole.len > 0 && part.start.addr() == whole.start.addr() + offset;
    // SAFETY: the caller's promise.
    unsafe {
        match is_own_block {
            true => Ok(in_place(kind, whole)),
            false => apart(kind, input, output),
        }
    }
}

/// # Safety
/// As [`either`], for buffers that are not the same.
pub(crate) unsafe fn apart<'a>(
    kind: DataType,
    input: RawBuffer,
    output: RawBuffer,
) -> Result<AnyBuffers<'a>, Failure> {
    if input.overlaps(output) {
        let why = "the buffers overlap: pass the same buffer, the own block of it, or other memory";
        return Err(Failure::invalid(why));
    }
    // SAFETY: the caller's promise; they do not overlap.
    let (input, output) = unsafe { (input.bytes(), output.bytes_mut()) };
    Ok((AnySlice::new(kind, input), AnySliceMut::new(kind, output)).into_buffers())
}

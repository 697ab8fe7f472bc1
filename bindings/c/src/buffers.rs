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
    /// The buffer of `count` elements of `size` bytes at `start`.
    pub(crate) fn new(start: *const c_void, count: usize, size: usize) -> Result<Self, Failure> {
        let len = count.checked_mul(size).filter(|len| isize::try_from(*len).is_ok());
        let len = len.ok_or_else(|| Failure::invalid(format!("{count} elements are too many")))?;
        if start.is_null() && len > 0 {
            return Err(Failure::invalid(format!("a buffer of {len} bytes is NULL")));
        }
        Ok(Self { start: start.cast_mut(), len })
    }

    /// True if the buffer begins `offset` bytes behind the start of `whole`.
    pub(crate) fn is_at(self, whole: Self, offset: usize) -> bool {
        self.start.addr() == whole.start.addr() + offset
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

/// The buffers of a call that reads `input` and writes `output`, which must not overlap.
///
/// # Safety
/// As [`RawBuffer::bytes`] for `input` and [`RawBuffer::bytes_mut`] for `output`.
pub(crate) unsafe fn apart<'a>(
    kind: DataType,
    input: RawBuffer,
    output: RawBuffer,
) -> Result<AnyBuffers<'a>, Failure> {
    if input.overlaps(output) {
        let why = "the buffers overlap: pass other memory, or, with equal counts, the same buffer \
                   or the own block of it";
        return Err(Failure::invalid(why));
    }
    // SAFETY: the caller's promise; they do not overlap.
    let (input, output) = unsafe { (input.bytes(), output.bytes_mut()) };
    Ok((AnySlice::new(kind, input), AnySliceMut::new(kind, output)).into_buffers())
}

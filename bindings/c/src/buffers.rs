//! Buffers of C as slices.

use crate::error::Failure;
use maypole::schedule::collective::Collective;
use maypole::{
    AnyElement, AnySlice, AnySliceMut, BufferPlacement, CallBuffers, DataType, IntoBuffers,
};
use std::ffi::c_void;
use std::ops::Range;

/// A buffer of C: its address and its length in bytes.
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

    /// The addresses of its bytes.
    fn addresses(self) -> Range<usize> {
        let start = self.start.addr();
        start..start.saturating_add(self.len)
    }

    /// # Safety
    /// The buffer must be readable for `'a`, without a writer.
    pub(crate) unsafe fn bytes<'a>(self) -> &'a [u8] {
        match self.len {
            0 => &[],
            // SAFETY: not null, as `new` has checked; readable, as the caller guarantees.
            len => unsafe { std::slice::from_raw_parts(self.start.cast(), len) },
        }
    }

    /// # Safety
    /// The buffer must be writable for `'a`, without another user.
    pub(crate) unsafe fn bytes_mut<'a>(self) -> &'a mut [u8] {
        match self.len {
            0 => &mut [],
            // SAFETY: not null, as `new` has checked; exclusive, as the caller guarantees.
            len => unsafe { std::slice::from_raw_parts_mut(self.start.cast(), len) },
        }
    }
}

/// The buffers of a call on elements of C.
pub(crate) type AnyBuffers<'a> = CallBuffers<'a, AnyElement>;

/// The buffers of `collective` on rank `rank` of `world`, which reads `input` and writes `output`.
/// They are in place if their addresses are those of a call in place, and must not overlap otherwise.
/// `is_even` is false if the blocks have counts.
///
/// # Safety
/// As [`RawBuffer::bytes`] for `input` and [`RawBuffer::bytes_mut`] for `output`.
pub(crate) unsafe fn placed<'a>(
    (collective, rank, world): (Collective, usize, usize),
    kind: DataType,
    (input, output): (RawBuffer, RawBuffer),
    is_even: bool,
) -> Result<AnyBuffers<'a>, Failure> {
    let (read, written) = (input.addresses(), output.addresses());
    let whole = match BufferPlacement::of(collective, (rank, world), read, written, is_even) {
        BufferPlacement::InInput => input,
        BufferPlacement::InOutput => output,
        BufferPlacement::Apart => {
            // SAFETY: the caller guarantees both buffers; they do not overlap.
            let (input, output) = unsafe { (input.bytes(), output.bytes_mut()) };
            let buffers = (AnySlice::new(kind, input), AnySliceMut::new(kind, output));
            return Ok(buffers.into_buffers());
        }
        BufferPlacement::Overlapping => {
            let why = "the buffers overlap: pass other memory, or, with equal counts, the same \
                       buffer or the own block of it";
            return Err(Failure::invalid(why));
        }
    };
    // SAFETY: the caller guarantees both buffers, which lie in this one.
    Ok(AnySliceMut::new(kind, unsafe { whole.bytes_mut() }).into_buffers())
}

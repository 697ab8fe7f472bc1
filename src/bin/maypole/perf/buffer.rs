//! Buffers that begin on a page of memory, or a few bytes behind one, as those of users do.

use crate::sizes;
use anyhow::anyhow;
use bytemuck::{Pod, Zeroable};

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(4096))]
struct AlignedPage([u8; 4096]);

/// Bytes that begin `offset` bytes behind a page. They are aligned for elements of every type whose
/// size divides the offset.
pub(crate) struct AlignedBuffer {
    buffer: Vec<AlignedPage>,
    offset: usize,
    len: usize,
}

impl AlignedBuffer {
    /// A small buffer of `len` zero bytes on a page, for the checks. Buffers whose length the user chooses
    /// come from [`try_new`](Self::try_new).
    pub(crate) fn new(len: usize) -> Self {
        let pages = len.div_ceil(size_of::<AlignedPage>());
        Self { buffer: vec![AlignedPage::zeroed(); pages], offset: 0, len }
    }

    /// A buffer of `len` zero bytes, `offset` bytes behind a page.
    ///
    /// # Errors
    ///
    /// If there is no memory for it.
    pub(crate) fn try_new(len: usize, offset: usize) -> anyhow::Result<Self> {
        let pages = (offset + len).div_ceil(size_of::<AlignedPage>());
        let mut buffer = Vec::new();
        buffer
            .try_reserve_exact(pages)
            .map_err(|_| anyhow!("no memory for a buffer of {}", sizes::name(len)))?;
        buffer.resize(pages, AlignedPage::zeroed());
        Ok(Self { buffer, offset, len })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.buffer)[self.offset..][..self.len]
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.buffer)[self.offset..][..self.len]
    }

    pub(crate) fn as_slice<T: Pod>(&self) -> &[T] {
        bytemuck::cast_slice(self.bytes())
    }

    pub(crate) fn as_mut_slice<T: Pod>(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(self.bytes_mut())
    }
}

/// The line above the table: where buffers begin.
pub(crate) fn describe(offset: usize) -> String {
    match offset {
        0 => "# every buffer begins on a page (--offset 0)".to_owned(),
        16 => "# every buffer begins 16 bytes behind a page, as a large Vec does (--offset)"
            .to_owned(),
        _ => format!("# every buffer begins {offset} bytes behind a page (--offset)"),
    }
}

impl From<&[u8]> for AlignedBuffer {
    fn from(bytes: &[u8]) -> Self {
        let mut buffer = Self::new(bytes.len());
        buffer.bytes_mut().copy_from_slice(bytes);
        buffer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_begins_behind_a_page() {
        for (len, offset) in [(8, 0), (8, 16), (4096, 4), (4080, 16)] {
            let mut buffer = AlignedBuffer::try_new(len, offset).unwrap();
            assert_eq!(buffer.bytes().as_ptr().addr() % 4096, offset);
            assert_eq!(buffer.bytes_mut().len(), len);
            assert_eq!(buffer.as_slice::<f32>().len(), len / 4);
        }
    }
}

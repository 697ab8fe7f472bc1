//! Buffers that begin on a page of memory, as in other benchmarks.

use bytemuck::{Pod, Zeroable};

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(4096))]
struct AlignedPage([u8; 4096]);

/// Bytes that begin on a page, so they are aligned for elements of every type.
pub(crate) struct AlignedBuffer {
    buffer: Vec<AlignedPage>,
    len: usize,
}

impl AlignedBuffer {
    /// A buffer of `len` zero bytes.
    pub(crate) fn new(len: usize) -> Self {
        Self { buffer: vec![AlignedPage::zeroed(); len.div_ceil(size_of::<AlignedPage>())], len }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.buffer)[..self.len]
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.buffer)[..self.len]
    }

    pub(crate) fn as_slice<T: Pod>(&self) -> &[T] {
        bytemuck::cast_slice(self.bytes())
    }

    pub(crate) fn as_mut_slice<T: Pod>(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(self.bytes_mut())
    }
}

impl From<&[u8]> for AlignedBuffer {
    fn from(bytes: &[u8]) -> Self {
        let mut buffer = Self::new(bytes.len());
        buffer.bytes_mut().copy_from_slice(bytes);
        buffer
    }
}

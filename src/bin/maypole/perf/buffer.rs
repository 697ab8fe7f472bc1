//! Buffers that begin on a page of memory, as in other benchmarks.

use crate::sizes;
use anyhow::anyhow;
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
    /// A small buffer of `len` zero bytes, for the checks. Buffers whose length the user chooses
    /// come from [`try_new`](Self::try_new).
    pub(crate) fn new(len: usize) -> Self {
        Self { buffer: vec![AlignedPage::zeroed(); len.div_ceil(size_of::<AlignedPage>())], len }
    }

    /// A buffer of `len` zero bytes.
    ///
    /// # Errors
    ///
    /// If there is no memory for it.
    pub(crate) fn try_new(len: usize) -> anyhow::Result<Self> {
        let pages = len.div_ceil(size_of::<AlignedPage>());
        let mut buffer = Vec::new();
        buffer
            .try_reserve_exact(pages)
            .map_err(|_| anyhow!("no memory for a buffer of {}", sizes::name(len)))?;
        buffer.resize(pages, AlignedPage::zeroed());
        Ok(Self { buffer, len })
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

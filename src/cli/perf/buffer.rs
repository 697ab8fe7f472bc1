//! Buffers that begin on a page of memory, or a few bytes past its start, as those of users do:
//! private or registered.

use crate::perf::measure::SamplingOptions;
use crate::sizes;
use anyhow::{anyhow, ensure};
use bytemuck::{Pod, Zeroable};
use maypole::{Arena, RegisteredBuffer};

/// Bytes of a page.
pub(crate) const PAGE: usize = size_of::<AlignedPage>();

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(4096))]
struct AlignedPage([u8; 4096]);

/// Bytes that begin `offset` bytes past a page boundary. They are aligned for elements of every
/// type whose size divides the offset.
pub(crate) struct AlignedBuffer {
    memory: PageMemory,
    offset: usize,
    len: usize,
}

enum PageMemory {
    Private(Vec<AlignedPage>),
    Registered(RegisteredBuffer<u8>),
}

impl AlignedBuffer {
    /// A buffer without bytes.
    fn empty() -> Self {
        Self { memory: PageMemory::Private(Vec::new()), offset: 0, len: 0 }
    }

    /// A buffer of `len` zero bytes, `offset` bytes past a page boundary: of `arena`, if there is one.
    ///
    /// # Errors
    ///
    /// If there is no memory for it, or the arena has no room.
    pub(crate) fn try_new(
        arena: Option<&Arena>,
        len: usize,
        offset: usize,
    ) -> anyhow::Result<Self> {
        let memory = match arena {
            Some(arena) if len > 0 => {
                let bytes = arena.alloc(offset + len);
                ensure!(
                    bytes.is_registered(),
                    "--registered: no shared memory for a buffer of {}; MAYPOLE_LOG=warn tells \
                     why. Measure smaller sizes (--sizes, --max), or start fewer ranks",
                    sizes::name(len)
                );
                PageMemory::Registered(bytes)
            }
            _ => PageMemory::Private(private_pages(len, offset)?),
        };
        Ok(Self { memory, offset, len })
    }

    /// Takes the bytes, and leaves a buffer without bytes.
    pub(crate) fn taken(&mut self) -> Self {
        std::mem::replace(self, Self::empty())
    }

    /// The bytes of an arena that a buffer of `len` bytes takes, `offset` bytes past a page
    /// boundary.
    pub(crate) fn arena_bytes(len: usize, offset: usize) -> usize {
        if len == 0 { 0 } else { (offset + len).next_multiple_of(PAGE) }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        let pages = match &self.memory {
            PageMemory::Private(pages) => bytemuck::cast_slice(pages),
            PageMemory::Registered(bytes) => &bytes[..],
        };
        pages.get(self.offset..).map_or(&[], |bytes| &bytes[..self.len])
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let (offset, len) = (self.offset, self.len);
        let pages = match &mut self.memory {
            PageMemory::Private(pages) => bytemuck::cast_slice_mut(pages),
            PageMemory::Registered(bytes) => &mut bytes[..],
        };
        pages.get_mut(offset..).map_or(&mut [], |bytes| &mut bytes[..len])
    }

    pub(crate) fn as_slice<T: Pod>(&self) -> &[T] {
        bytemuck::cast_slice(self.bytes())
    }

    pub(crate) fn as_mut_slice<T: Pod>(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(self.bytes_mut())
    }
}

impl<T: Pod> AsMut<[T]> for AlignedBuffer {
    fn as_mut(&mut self) -> &mut [T] {
        self.as_mut_slice()
    }
}

fn private_pages(len: usize, offset: usize) -> anyhow::Result<Vec<AlignedPage>> {
    let pages = (offset + len).div_ceil(PAGE);
    let mut buffer = Vec::new();
    buffer
        .try_reserve_exact(pages)
        .map_err(|_| anyhow!("no memory for a buffer of {}", sizes::name(len)))?;
    buffer.resize(pages, AlignedPage::zeroed());
    Ok(buffer)
}

/// The lines above the table: what memory buffers have, and where they begin.
pub(crate) fn describe(registered: bool, sampling: &SamplingOptions, offset: usize) -> String {
    let mut place = match offset {
        0 => "# every buffer begins on a page (--offset 0)".to_owned(),
        offset => format!("# every buffer begins {offset} bytes behind a page (--offset)"),
    };
    if let Some(region) = sampling.off_cache {
        place += &format!(
            "\n# each call is timed by itself, and finds caches full of other bytes, {} on each rank\n\
             # (--off-cache)",
            sizes::name(region)
        );
    }
    if sampling.reuse_buffers {
        place += "\n# inputs are written once (--reuse-buffers): they may lie in a cache";
    }
    match registered {
        true => format!(
            "# buffers are registered memory (--registered): /reg marks calls that reached it in \
             place\n{place}"
        ),
        false => place,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_begins_behind_a_page() {
        for (len, offset) in [(8, 0), (8, 16), (4096, 4), (4080, 16)] {
            let mut buffer = AlignedBuffer::try_new(None, len, offset).unwrap();
            assert_eq!(buffer.bytes().as_ptr().addr() % 4096, offset);
            assert_eq!(buffer.bytes_mut().len(), len);
            assert_eq!(buffer.as_slice::<f32>().len(), len / 4);
        }
    }

    #[test]
    fn an_arena_has_room_for_the_buffers_that_it_was_made_for() {
        maypole::Communicator::run_local(2, |mut comm| {
            let lengths = [4081, 0, 8];
            let bytes = lengths.map(|len| AlignedBuffer::arena_bytes(len, 16));
            let arena = comm.arena(bytes.iter().sum()).unwrap();
            let new = |len| AlignedBuffer::try_new(Some(&arena), len, 16);
            let buffers = lengths.map(|len| new(len).unwrap());
            assert_eq!(buffers[0].bytes().as_ptr().addr() % PAGE, 16);
            assert!(new(1).err().unwrap().to_string().contains("no shared memory"));
        });
    }
}

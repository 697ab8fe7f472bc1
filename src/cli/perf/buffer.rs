//! Buffers that begin on a page of memory, or a few bytes past its start, as those of users do:
//! private or registered.

use crate::perf::benchmark::CallParameters;
use crate::perf::off_cache::LINE;
use crate::perf::offset::BufferOffset;
use crate::sizes;
use anyhow::{anyhow, ensure};
use bytemuck::{Pod, Zeroable};
use maypole::{Arena, RegisteredBuffer};

const PAGE: usize = size_of::<AlignedPage>();

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(4096))]
struct AlignedPage([u8; 4096]);

/// Bytes that begin `offset` bytes past a page boundary. They are aligned for elements of every
/// type whose size divides the offset. A buffer may have several slots of the same length; most
/// functions are about the first one.
pub(crate) struct AlignedBuffer {
    memory: PageMemory,
    offset: usize,
    len: usize,
    /// Bytes from the beginning of a slot to that of the next one.
    stride: usize,
}

/// The slots of a buffer, as elements.
#[derive(Clone, Copy)]
pub(crate) struct Slots<'a, T> {
    all: &'a [T],
    len: usize,
    stride: usize,
}

/// The same, to be written.
pub(crate) struct SlotsMut<'a, T> {
    all: &'a mut [T],
    len: usize,
    stride: usize,
}

enum PageMemory {
    Private(Vec<AlignedPage>),
    Registered(RegisteredBuffer<u8>),
}

impl AlignedBuffer {
    /// A small buffer of `len` zero bytes on a page, for the checks. For buffers of a length that
    /// the user chooses: [`try_slots`](Self::try_slots).
    pub(crate) fn new(len: usize) -> Self {
        let pages = vec![AlignedPage::zeroed(); len.div_ceil(PAGE)];
        Self { memory: PageMemory::Private(pages), offset: 0, len, stride: 0 }
    }

    /// A buffer of `slots` slots, one or more, of `len` zero bytes each, `offset` bytes past a page boundary:
    /// of `arena`, if there is one. No two slots share a line of a cache.
    ///
    /// # Errors
    ///
    /// If there is no memory for it, or the arena has no room.
    pub(crate) fn try_slots(
        arena: Option<&Arena>,
        len: usize,
        offset: usize,
        slots: usize,
    ) -> anyhow::Result<Self> {
        let stride = Self::stride(len);
        let total = stride * (slots - 1) + len;
        let memory = match arena {
            Some(arena) if len > 0 => {
                let bytes = arena.alloc(offset + total);
                ensure!(
                    bytes.is_registered(),
                    "--registered: no shared memory for a buffer of {}; MAYPOLE_LOG=warn tells \
                     why. Measure smaller sizes (--sizes, --max), or start fewer ranks",
                    sizes::name(len)
                );
                PageMemory::Registered(bytes)
            }
            _ => PageMemory::Private(private_pages(total, offset)?),
        };
        Ok(Self { memory, offset, len, stride })
    }

    /// The bytes that a slot of `len` bytes takes in a buffer of several.
    pub(crate) fn stride(len: usize) -> usize {
        len.next_multiple_of(LINE)
    }

    /// Takes the bytes, and leaves a buffer without bytes.
    pub(crate) fn taken(&mut self) -> Self {
        std::mem::replace(self, Self::new(0))
    }

    /// The bytes of an arena that a buffer of `len` bytes takes, `offset` bytes past a page
    /// boundary.
    pub(crate) fn arena_bytes(len: usize, offset: usize) -> usize {
        if len == 0 { 0 } else { (offset + len).next_multiple_of(PAGE) }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.slot(0)
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.slot_mut(0)
    }

    pub(crate) fn slot(&self, slot: usize) -> &[u8] {
        &self.all()[slot * self.stride..][..self.len]
    }

    pub(crate) fn slot_mut(&mut self, slot: usize) -> &mut [u8] {
        let (from, len) = (slot * self.stride, self.len);
        &mut self.all_mut()[from..][..len]
    }

    pub(crate) fn slots<T: Pod>(&self) -> Slots<'_, T> {
        let size = size_of::<T>();
        let (len, stride) = (self.len / size, self.stride / size);
        let all = self.all();
        Slots { all: bytemuck::cast_slice(&all[..all.len() / size * size]), len, stride }
    }

    pub(crate) fn slots_mut<T: Pod>(&mut self) -> SlotsMut<'_, T> {
        let size = size_of::<T>();
        let (len, stride) = (self.len / size, self.stride / size);
        let all = self.all_mut();
        let whole = all.len() / size * size;
        SlotsMut { all: bytemuck::cast_slice_mut(&mut all[..whole]), len, stride }
    }

    /// All bytes after the offset.
    fn all(&self) -> &[u8] {
        let pages = match &self.memory {
            PageMemory::Private(pages) => bytemuck::cast_slice(pages),
            PageMemory::Registered(bytes) => &bytes[..],
        };
        &pages[self.offset.min(pages.len())..]
    }

    fn all_mut(&mut self) -> &mut [u8] {
        let offset = self.offset;
        let pages = match &mut self.memory {
            PageMemory::Private(pages) => bytemuck::cast_slice_mut(pages),
            PageMemory::Registered(bytes) => &mut bytes[..],
        };
        let from = offset.min(pages.len());
        &mut pages[from..]
    }

    pub(crate) fn as_slice<T: Pod>(&self) -> &[T] {
        bytemuck::cast_slice(self.bytes())
    }

    pub(crate) fn as_mut_slice<T: Pod>(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(self.bytes_mut())
    }
}

impl<'a, T> Slots<'a, T> {
    #[inline]
    pub(crate) fn get(self, slot: usize) -> &'a [T] {
        &self.all[slot * self.stride..][..self.len]
    }
}

impl<T> SlotsMut<'_, T> {
    #[inline]
    pub(crate) fn get(&mut self, slot: usize) -> &mut [T] {
        &mut self.all[slot * self.stride..][..self.len]
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
pub(crate) fn describe(registered: bool, reuse: bool, parameters: &CallParameters) -> String {
    let mut place = describe_offset(parameters.offset);
    if let Some(region) = parameters.off_cache {
        place += &format!(
            "\n# each call has other buffers, of a region of {} on each rank, and finds caches\n\
             # full of other bytes (--off-cache)",
            sizes::name(region)
        );
    }
    if reuse {
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

fn describe_offset(offset: BufferOffset) -> String {
    match offset {
        BufferOffset::Random => {
            "# each buffer of each rank begins somewhere in a page (--offset random)".to_owned()
        }
        BufferOffset::Fixed(0) => "# every buffer begins on a page (--offset 0)".to_owned(),
        BufferOffset::Fixed(16) => {
            "# every buffer begins 16 bytes behind a page, as a large Vec does (--offset)"
                .to_owned()
        }
        BufferOffset::Fixed(offset) => {
            format!("# every buffer begins {offset} bytes behind a page (--offset)")
        }
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
            let mut buffer = AlignedBuffer::try_slots(None, len, offset, 1).unwrap();
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
            let new = |len| AlignedBuffer::try_slots(Some(&arena), len, 16, 1);
            let buffers = lengths.map(|len| new(len).unwrap());
            assert_eq!(buffers[0].bytes().as_ptr().addr() % PAGE, 16);
            assert!(new(1).err().unwrap().to_string().contains("no shared memory"));
        });
    }
}

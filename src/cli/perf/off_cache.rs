//! Buffers that lie in memory and in no cache, as those of a program that has computed on other data
//! since.
//!
//! A batch finds caches full of other bytes ([`CacheSweep`]). Each of its calls has other buffers
//! ([`BufferRotation`]), of a region that is larger than the last cache.

use crate::sizes;
use anyhow::{Result, anyhow};
use std::fs;
use std::path::Path;

/// Bytes of a line of the caches, or of two where lines form pairs.
pub(crate) const LINE: usize = 128;
/// The region is so many times as large as the last cache: a cache may keep some lines longer.
const TIMES: usize = 2;
/// The assumed cache of a machine without a figure.
const USUAL_CACHE: usize = 64 << 20;
/// The region is at most as large as this.
const MOST: usize = 2 << 30;
/// The most buffers of a region: a batch has no more calls.
const MOST_SLOTS: usize = 20_000;

/// Bytes of the region: twice those of the largest cache of this machine.
pub(crate) fn region() -> usize {
    let cache = largest_cache(Path::new("/sys/devices/system/cpu/cpu0/cache"));
    (cache.unwrap_or(USUAL_CACHE) * TIMES).min(MOST)
}

/// The largest of the caches that `folder` lists.
fn largest_cache(folder: &Path) -> Option<usize> {
    let entries = fs::read_dir(folder).ok()?.flatten();
    let size = |entry: fs::DirEntry| {
        let text = fs::read_to_string(entry.path().join("size")).ok()?;
        sizes::parse(text.trim()).ok()
    };
    entries.filter_map(size).max().filter(|size| *size <= MOST)
}

/// Which of its buffers each call of a batch takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BufferRotation {
    pub(crate) slots: usize,
    /// The distance of two calls' buffers. It has no divisor in common with the number of buffers, so
    /// that every buffer has its turn; and it is large, so that no cache fetches the next one early.
    step: usize,
}

impl BufferRotation {
    /// All calls take the same buffers.
    pub(crate) const STILL: Self = Self { slots: 1, step: 0 };

    /// As many buffers as fill a region of `region` bytes, where a call takes `bytes`; one without a
    /// region.
    pub(crate) fn within(region: Option<usize>, bytes: usize) -> Self {
        let Some(region) = region.filter(|_| bytes > 0) else { return Self::STILL };
        let slots = region.div_ceil(bytes).clamp(1, MOST_SLOTS);
        let golden = (slots as f64 * 0.618) as usize;
        let step = (golden..slots).find(|step| divisor(*step, slots) == 1).unwrap_or(1);
        Self { slots, step: step % slots }
    }

    /// The buffer of call `index` of a batch.
    #[inline]
    pub(crate) fn slot(self, index: u64) -> usize {
        if self.slots == 1 { 0 } else { index as usize % self.slots * self.step % self.slots }
    }

    /// The buffers that a batch of `calls` calls takes, each once.
    pub(crate) fn taken(self, calls: u64) -> impl Iterator<Item = usize> {
        (0..calls.min(self.slots as u64)).map(move |index| self.slot(index))
    }

    /// The same without that of call `but`, unless another call takes it as well.
    pub(crate) fn taken_but(self, calls: u64, but: u64) -> impl Iterator<Item = usize> {
        let slots = self.slots as u64;
        let is_shared = but >= slots || but + slots < calls;
        let first = move |index: &u64| is_shared || *index != but;
        (0..calls.min(slots)).filter(first).map(move |index| self.slot(index))
    }
}

/// The greatest common divisor.
fn divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { divisor(b, a % b) }
}

/// Bytes that take the place of all others in the caches.
pub(crate) struct CacheSweep {
    bytes: Vec<u8>,
}

impl CacheSweep {
    /// # Errors
    ///
    /// If there is no memory for `bytes` bytes.
    pub(crate) fn new(bytes: usize) -> Result<Self> {
        let mut region = Vec::new();
        region
            .try_reserve_exact(bytes)
            .map_err(|_| anyhow!("no memory for --off-cache={}", sizes::name(bytes)))?;
        region.resize(bytes, 0);
        Ok(Self { bytes: region })
    }

    /// Writes to every line of the region.
    pub(crate) fn sweep(&mut self) {
        for line in self.bytes.chunks_mut(LINE / 2) {
            line[0] = line[0].wrapping_add(1);
        }
        std::hint::black_box(&mut self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_buffer_has_its_turn_before_one_comes_again() {
        for bytes in [128, 4096, 5000, 100_000, 1 << 20, 3 << 20] {
            let rotation = BufferRotation::within(Some(1 << 20), bytes);
            assert!(rotation.slots * bytes >= 1 << 20, "{bytes}: {rotation:?}");
            let calls = rotation.slots as u64;
            let taken: BTreeSet<_> = (0..calls).map(|call| rotation.slot(call)).collect();
            assert_eq!(taken.len(), rotation.slots, "{bytes}: {rotation:?}");
            assert_eq!(rotation.slot(calls), rotation.slot(0));
            assert!(taken.iter().all(|slot| *slot < rotation.slots));
        }
        assert_eq!(BufferRotation::within(None, 8).slots, 1);
        assert_eq!(BufferRotation::within(Some(1 << 20), 0).slots, 1);
        assert_eq!(BufferRotation::within(Some(1 << 30), 128).slots, MOST_SLOTS);
    }

    #[test]
    fn the_buffer_of_the_checked_call_is_left_alone_unless_others_take_it() {
        let rotation = BufferRotation::within(Some(1000), 100);
        assert_eq!(rotation.slots, 10);
        assert_eq!(rotation.taken(3).count(), 3);
        let others = |calls, but| rotation.taken_but(calls, but).collect::<BTreeSet<_>>();
        assert_eq!(others(3, 1), BTreeSet::from([rotation.slot(0), rotation.slot(2)]));
        assert_eq!(others(1, 0), BTreeSet::new());
        assert_eq!(others(12, 5).len(), 9, "one buffer is that of the checked call alone");
        assert_eq!(others(12, 1).len(), 10, "call 11 takes the buffer of call 1");
        assert_eq!(others(12, 11).len(), 10);
        let still = |calls, but| BufferRotation::STILL.taken_but(calls, but).count();
        assert_eq!((still(1, 0), still(2, 0), still(2, 1)), (0, 1, 1));
    }

    #[test]
    fn the_largest_cache_counts() {
        let folder = tempfile::tempdir().unwrap();
        for (index, size) in [("index0", "32K\n"), ("index1", "1024K\n"), ("uevent", "")] {
            std::fs::create_dir(folder.path().join(index)).unwrap();
            std::fs::write(folder.path().join(index).join("size"), size).unwrap();
        }
        assert_eq!(largest_cache(folder.path()), Some(1 << 20));
        assert_eq!(largest_cache(Path::new("/nonexistent")), None);
    }
}

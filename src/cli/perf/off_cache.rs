//! Buffers that lie in memory and in no cache, as those of a program that has computed on other data
//! since: each call finds caches full of other bytes.

use crate::sizes;
use anyhow::{Result, anyhow};
use std::fs;
use std::path::Path;

/// Bytes of a line of the caches.
const LINE: usize = 64;
/// The region is so many times as large as the last cache: a cache may keep some lines longer.
const TIMES: usize = 2;
/// The assumed cache of a machine without a figure.
const USUAL_CACHE: usize = 64 << 20;
/// The region is at most as large as this.
const MOST: usize = 2 << 30;
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
        for line in self.bytes.chunks_mut(LINE) {
            line[0] = line[0].wrapping_add(1);
        }
        std::hint::black_box(&mut self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

//! Tokenizes text files into shards, and checks the digests of shards, a slice of time at a time.

use crate::DataError;
use crate::index::TextIndex;
use crate::sources::{SourceReader, Sources};
use crate::token_files::{ShardComparison, ShardWriter, TokenFiles};
use maypole_trainer::train::bpe::{Bpe, PIECE};
use std::time::{Duration, Instant};

/// Text files that become shards.
#[derive(Debug)]
pub(super) struct Tokenisation<'a> {
    index: &'a TextIndex,
    bpe: &'a Bpe,
    reader: SourceReader<'a>,
    /// `None` after the last shard.
    writer: Option<ShardWriter>,
    piece: Vec<u8>,
    /// Bytes of text so far.
    pub(super) done: u64,
}

impl<'a> Tokenisation<'a> {
    pub(super) fn new(
        index: &'a TextIndex,
        sources: &'a Sources,
        bpe: &'a Bpe,
    ) -> Result<Self, DataError> {
        index.remove_left_over()?;
        let writer = ShardWriter::new(index.folder(), index.partial_name(), index.format());
        let piece = vec![0; PIECE];
        Ok(Self { index, bpe, reader: sources.read(), writer: Some(writer), piece, done: 0 })
    }

    /// Goes on for about `slice`; true when all is written.
    pub(super) fn work(&mut self, slice: Duration) -> Result<bool, DataError> {
        let start = Instant::now();
        while start.elapsed() < slice {
            let Some(writer) = &mut self.writer else { return Ok(true) };
            let count = self.reader.fill(&mut self.piece)?;
            writer.push(&self.bpe.encode(&self.piece[..count]))?;
            self.done += count as u64;
            if count < PIECE {
                let writer = self.writer.take().expect("it was there");
                let (shards, tokens) = writer.finish()?;
                self.index.write(shards, tokens)?;
            }
        }
        Ok(self.writer.is_none())
    }
}

/// Checks the digests of shards: of every `step`-th, from one on.
#[derive(Debug)]
pub(super) struct Comparison<'a> {
    shards: &'a TokenFiles,
    next: usize,
    step: usize,
    open: Option<ShardComparison<'a>>,
    /// Bytes of shards so far.
    pub(super) done: u64,
}

impl<'a> Comparison<'a> {
    pub(super) fn new(shards: &'a TokenFiles, first: usize, step: usize) -> Self {
        Self { shards, next: first, step, open: None, done: 0 }
    }

    /// Goes on for about `slice`; true when all shards were compared.
    pub(super) fn work(&mut self, slice: Duration) -> Result<bool, DataError> {
        let start = Instant::now();
        while start.elapsed() < slice {
            let Some(open) = &mut self.open else {
                if self.next >= self.shards.count() {
                    return Ok(true);
                }
                self.open = Some(self.shards.compare(self.next)?);
                self.next += self.step;
                continue;
            };
            match open.read()? {
                0 => self.open = None,
                count => self.done += count as u64,
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token_files::ShardFormat;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_full_disk_is_an_error_with_a_remedy_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("text");
        fs::write(&data, "To be, or not to be. ".repeat(10_000)).unwrap();
        let cache = folder.path().join("cache");
        fs::create_dir(&cache).unwrap();
        let sources = Sources::list(&data).unwrap();
        let bpe = Bpe::default();
        let format = ShardFormat::new(bpe.fingerprint(), bpe.vocab(), 1_000_000);
        let index = TextIndex::new(&cache, &sources, format);
        let mut work = Tokenisation::new(&index, &sources, &bpe).unwrap();
        // Whatever is written there, the disk is full.
        let partial = cache.join(index.partial_name());
        symlink("/dev/full", &partial).unwrap();
        let error = work.work(Duration::MAX).unwrap_err().to_string();
        assert!(error.contains("No space left") && error.contains("--data-cache"), "{error}");
        drop(work);
        assert!(fs::symlink_metadata(&partial).is_err(), "what is not whole is removed");
        assert!(index.open().unwrap().is_none());
        let mut work = Tokenisation::new(&index, &sources, &bpe).unwrap();
        assert!(work.work(Duration::MAX).unwrap());
        assert_eq!(index.open().unwrap().unwrap().tokens() as u64, sources.bytes());
    }
}

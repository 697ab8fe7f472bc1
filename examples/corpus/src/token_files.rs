//! Files of tokens, named by a digest of their content, written whole and read by ranges.

use crate::{DataError, damaged, failed};
use maypole_trainer::tensor::random::fingerprint;
use maypole_trainer::train::text::{TextError, Tokens};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes that are read or written at a time.
const AT_A_TIME: usize = 1 << 16;

/// How tokens are written: by which tokenizer, in how many bytes, and how many in a file.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ShardFormat {
    /// A digest of the vocabulary.
    pub tokenizer: u64,
    /// Bytes of a token, of which the first is the lowest: 1, 2 or 4.
    pub width: usize,
    /// Tokens of each shard but the last, which has at most as many.
    pub each: usize,
}

impl ShardFormat {
    /// The format of a tokenizer with `vocab` tokens.
    pub fn new(tokenizer: u64, vocab: usize, each: usize) -> Self {
        let width = match vocab {
            ..=0x100 => 1,
            0x101..=0x1_0000 => 2,
            _ => 4,
        };
        Self { tokenizer, width, each }
    }

    /// A digest to be updated with the bytes of a shard.
    pub(super) fn digest(&self) -> blake3::Hasher {
        let mut digest = blake3::Hasher::new();
        digest.update(b"maypole tokens 1");
        for number in [self.tokenizer, self.width as u64, self.each as u64] {
            digest.update(&number.to_le_bytes());
        }
        digest
    }
}

/// The name of a shard in `folder`.
fn path_of(folder: &Path, digest: &str) -> PathBuf {
    folder.join(format!("{digest}.tokens"))
}

/// Writes tokens to shards, one shard after another.
#[derive(Debug)]
pub struct ShardWriter {
    folder: PathBuf,
    /// The name of the partial file.
    partial: PathBuf,
    format: ShardFormat,
    open: Option<OpenShard>,
    digests: Vec<String>,
    tokens: usize,
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct OpenShard {
    file: File,
    digest: blake3::Hasher,
    tokens: usize,
}

impl ShardWriter {
    /// Writes shards to `folder`; a shard is called `partial` while it is written.
    pub fn new(folder: &Path, partial: &str, format: ShardFormat) -> Self {
        Self {
            folder: folder.to_owned(),
            partial: folder.join(partial),
            format,
            open: None,
            digests: Vec::new(),
            tokens: 0,
            buffer: Vec::new(),
        }
    }

    /// Writes `tokens` after those that were written before.
    ///
    /// # Errors
    /// [`DataError::File`] if a file cannot be written.
    pub fn push(&mut self, mut tokens: &[u32]) -> Result<(), DataError> {
        while !tokens.is_empty() {
            if self.open.is_none() {
                self.open = Some(self.begin()?);
            }
            let open = self.open.as_mut().expect("it was opened");
            let count = tokens.len().min(self.format.each - open.tokens);
            let (now, later) = tokens.split_at(count);
            self.buffer.clear();
            for token in now {
                self.buffer.extend_from_slice(&token.to_le_bytes()[..self.format.width]);
            }
            open.file.write_all(&self.buffer).map_err(failed(&self.partial))?;
            open.digest.update(&self.buffer);
            open.tokens += count;
            if open.tokens == self.format.each {
                self.end()?;
            }
            tokens = later;
        }
        Ok(())
    }

    /// Ends the last shard. Returns the digests of all shards and the number of tokens.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn finish(mut self) -> Result<(Vec<String>, usize), DataError> {
        self.end()?;
        Ok((std::mem::take(&mut self.digests), self.tokens))
    }

    fn begin(&self) -> Result<OpenShard, DataError> {
        let file = File::create(&self.partial).map_err(failed(&self.partial))?;
        Ok(OpenShard { file, digest: self.format.digest(), tokens: 0 })
    }

    /// Gives the open shard its name, when all of it is on the disk.
    fn end(&mut self) -> Result<(), DataError> {
        let Some(open) = &self.open else { return Ok(()) };
        let digest = open.digest.finalize().to_hex().to_string();
        let path = path_of(&self.folder, &digest);
        open.file.sync_all().map_err(failed(&self.partial))?;
        fs::rename(&self.partial, &path).map_err(failed(&path))?;
        self.tokens += open.tokens;
        self.digests.push(digest);
        self.open = None;
        Ok(())
    }
}

impl Drop for ShardWriter {
    fn drop(&mut self) {
        // A shard that is not whole is of no use. If it stays, a later run removes it.
        if self.open.is_some() {
            let _ = fs::remove_file(&self.partial);
        }
    }
}

/// The shards of a text, of which ranges are read.
#[derive(Clone, Debug)]
pub struct TokenFiles {
    folder: PathBuf,
    format: ShardFormat,
    digests: Vec<String>,
    tokens: usize,
}

impl TokenFiles {
    /// The shards of these digests in `folder`, which hold `tokens` tokens. `None` if one is
    /// missing.
    ///
    /// # Errors
    /// [`DataError::Damaged`] if one has another length.
    pub fn open(
        folder: &Path,
        format: ShardFormat,
        digests: Vec<String>,
        tokens: usize,
    ) -> Result<Option<Self>, DataError> {
        let shards = Self { folder: folder.to_owned(), format, digests, tokens };
        for number in 0..shards.count() {
            let path = shards.path(number);
            let Ok(metadata) = fs::metadata(&path) else { return Ok(None) };
            let should = (shards.tokens_of(number) * format.width) as u64;
            if metadata.len() != should {
                let why = format!("it has {} bytes and should have {should}", metadata.len());
                return Err(damaged(&path, why));
            }
        }
        Ok(Some(shards))
    }

    /// The number of shards.
    pub fn count(&self) -> usize {
        self.digests.len()
    }

    /// The number of tokens of all shards.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// The bytes of all shards.
    pub fn bytes(&self) -> u64 {
        (self.tokens * self.format.width) as u64
    }

    /// A number that stands for all tokens.
    pub fn fingerprint(&self) -> u64 {
        let mut digest = self.format.digest();
        for shard in &self.digests {
            digest.update(shard.as_bytes());
        }
        let bytes = digest.finalize();
        u64::from_le_bytes(bytes.as_bytes()[..8].try_into().expect("8 bytes"))
    }

    /// The file of shard number `number`.
    pub fn path(&self, number: usize) -> PathBuf {
        path_of(&self.folder, &self.digests[number])
    }

    fn tokens_of(&self, number: usize) -> usize {
        (self.tokens - number * self.format.each).min(self.format.each)
    }

    /// Appends the tokens in `range` to `to`. Reads nothing else.
    ///
    /// # Errors
    /// [`DataError::File`] or [`DataError::Damaged`] if a shard is gone or shorter than it was.
    ///
    /// # Panics
    /// If there are no such tokens.
    pub fn read(&self, range: Range<usize>, to: &mut Vec<u32>) -> Result<(), DataError> {
        assert!(range.end <= self.tokens, "token {} of {}", range.end, self.tokens);
        let ShardFormat { width, each, .. } = self.format;
        let mut at = range.start;
        let mut bytes = Vec::new();
        while at < range.end {
            let number = at / each;
            let end = range.end.min((number + 1) * each);
            let path = self.path(number);
            bytes.resize((end - at) * width, 0);
            let offset = (at - number * each) * width;
            let read = File::open(&path).and_then(|it| it.read_exact_at(&mut bytes, offset as u64));
            read.map_err(|why| match why.kind() {
                std::io::ErrorKind::UnexpectedEof => damaged(&path, "it was cut short"),
                std::io::ErrorKind::NotFound => damaged(&path, "it is gone"),
                _ => failed(&path)(why),
            })?;
            to.extend(bytes.chunks_exact(width).map(token));
            at = end;
        }
        Ok(())
    }

    /// Begins to compare shard number `number` with its name.
    ///
    /// # Errors
    /// [`DataError::File`] if it cannot be read.
    pub fn compare(&self, number: usize) -> Result<ShardComparison<'_>, DataError> {
        let path = self.path(number);
        let file = File::open(&path).map_err(failed(&path))?;
        let digest = self.format.digest();
        Ok(ShardComparison { shards: self, number, file, digest, buffer: vec![0; AT_A_TIME] })
    }
}

impl Tokens for TokenFiles {
    fn count(&self) -> usize {
        self.tokens
    }

    fn read(&self, range: Range<usize>, to: &mut Vec<u32>) -> Result<(), TextError> {
        Ok(self.read(range, to)?)
    }

    fn fingerprint(&self, range: Range<usize>) -> u64 {
        fingerprint([self.fingerprint(), range.start as u64, range.end as u64])
    }
}

/// A token of 1, 2 or 4 bytes.
fn token(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |token, byte| token << 8 | u32::from(*byte))
}

/// A shard that is read to compare it with its name.
#[derive(Debug)]
pub struct ShardComparison<'a> {
    shards: &'a TokenFiles,
    number: usize,
    file: File,
    digest: blake3::Hasher,
    buffer: Vec<u8>,
}

impl ShardComparison<'_> {
    /// Reads the next bytes. Returns their number; 0 at the end of a shard whose digest matches its name.
    ///
    /// # Errors
    /// [`DataError::Damaged`] if the digest differs; [`DataError::File`] if the shard cannot be read.
    pub fn read(&mut self) -> Result<usize, DataError> {
        let path = self.shards.path(self.number);
        let count = match self.file.read(&mut self.buffer) {
            Err(why) if why.kind() == std::io::ErrorKind::Interrupted => return self.read(),
            count => count.map_err(failed(&path))?,
        };
        self.digest.update(&self.buffer[..count]);
        if count == 0
            && self.digest.finalize().to_hex().as_str() != self.shards.digests[self.number]
        {
            return Err(damaged(&path, "its bytes are not those that its name stands for"));
        }
        Ok(count)
    }
}

//! The index of a text in the cache: its shards in their order.

use crate::sources::Sources;
use crate::token_files::{ShardFormat, TokenFiles};
use crate::{DataError, damaged, failed};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct IndexFile {
    format: ShardFormat,
    tokens: usize,
    shards: Vec<String>,
    /// A digest of the other fields.
    check: String,
}

impl IndexFile {
    fn new(format: ShardFormat, shards: Vec<String>, tokens: usize) -> Self {
        let mut digest = format.digest();
        digest.update(&(tokens as u64).to_le_bytes());
        for shard in &shards {
            digest.update(shard.as_bytes());
        }
        Self { format, tokens, shards, check: digest.finalize().to_hex().to_string() }
    }

    /// Checks the digest of the fields, and that they are consistent.
    fn is_whole(&self) -> bool {
        let same = Self::new(self.format, self.shards.clone(), self.tokens);
        same.check == self.check && self.shards.len() == self.tokens.div_ceil(self.format.each)
    }
}

/// The path of the index of a text. The file may be missing.
#[derive(Clone, Debug)]
pub struct TextIndex {
    folder: PathBuf,
    key: String,
    format: ShardFormat,
    /// The name of partial files of this index, unique to this process and thread.
    partial: String,
}

/// Counts the indices of this process.
static MADE: AtomicUsize = AtomicUsize::new(0);

impl TextIndex {
    /// The index of `sources` as tokens of `format`, in the cache folder `folder`.
    pub fn new(folder: &Path, sources: &Sources, format: ShardFormat) -> Self {
        let mut digest = format.digest();
        sources.add_to(&mut digest);
        let key = digest.finalize().to_hex().to_string();
        let host = rustix::system::uname();
        let host = host.nodename().to_string_lossy().replace('/', "-");
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let partial = format!("{key}.partial-{host}-{}-{number}", std::process::id());
        Self { folder: folder.to_owned(), key, format, partial }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// How tokens are written.
    pub(super) fn format(&self) -> ShardFormat {
        self.format
    }

    fn path(&self) -> PathBuf {
        self.folder.join(format!("{}.json", self.key))
    }

    /// The name of a partial file in the cache. Its prefix is equal for all runs on this text.
    pub(super) fn partial_name(&self) -> &str {
        &self.partial
    }

    /// Removes partial files of killed processes of this text: files without a write for an hour.
    pub(super) fn remove_left_over(&self) -> Result<(), DataError> {
        let begin = format!("{}.partial-", self.key);
        for entry in fs::read_dir(&self.folder).map_err(failed(&self.folder))? {
            let entry = entry.map_err(failed(&self.folder))?;
            let age = || entry.metadata().ok()?.modified().ok()?.elapsed().ok();
            let old = || age().is_some_and(|age| age.as_secs() > 3600);
            if entry.file_name().to_string_lossy().starts_with(&begin) && old() {
                // Another run may remove it in the same moment.
                let _ = fs::remove_file(entry.path());
            }
        }
        Ok(())
    }

    /// Opens the text. `None` if it is not tokenized yet, or a shard was removed.
    ///
    /// # Errors
    /// [`DataError::Damaged`] if the index, or the length of a shard, has changed.
    pub fn open(&self) -> Result<Option<TokenFiles>, DataError> {
        let path = self.path();
        let text = match fs::read(&path) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(failed(&path))?,
        };
        let index: IndexFile =
            serde_json::from_slice(&text).map_err(|why| damaged(&path, why.to_string()))?;
        if index.format != self.format || !index.is_whole() {
            return Err(damaged(&path, "its numbers are not those that were written"));
        }
        TokenFiles::open(&self.folder, index.format, index.shards, index.tokens)
    }

    /// Writes the index, all of whose shards are on the disk.
    pub(super) fn write(&self, shards: Vec<String>, tokens: usize) -> Result<(), DataError> {
        let index = IndexFile::new(self.format, shards, tokens);
        let text = serde_json::to_vec(&index).expect("an index is JSON");
        let partial = self.folder.join(self.partial_name());
        let written = File::create(&partial).and_then(|mut file| {
            file.write_all(&text)?;
            file.sync_all()
        });
        written.map_err(|why| {
            // The cause is that it cannot be written: whether it can be removed changes nothing.
            let _ = fs::remove_file(&partial);
            failed(&partial)(why)
        })?;
        let path = self.path();
        fs::rename(&partial, &path).map_err(failed(&path))?;
        File::open(&self.folder).and_then(|it| it.sync_all()).map_err(failed(&self.folder))
    }
}

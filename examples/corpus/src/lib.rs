//! Text that streams: a folder of text files, however long, as tokens on disk.
//!
//! A text that fits in memory is read whole. A longer one is tokenized once, and written
//! to a cache folder in *shards*: files of equally many tokens, of 1, 2 or 4 bytes each. A rank then
//! reads only its own rows from disk. Memory does not grow with the text.
//!
//! # What is in the cache
//!
//! | file | contents |
//! |---|---|
//! | `DIGEST.tokens` | a shard, named by a digest of its tokens and of the tokenizer |
//! | `KEY.json` | an [index]: the shards of one text in their order |
//! | `*.partial-HOST-PROCESS-NUMBER` | a file in progress, or one of a killed process |
//!
//! `KEY` is a digest of the tokenizer and of the name, length and time of change of every text
//! file. So a run finds the tokens of an unchanged folder without reading the folder again. A complete
//! file is renamed atomically, and the index is written last: after a kill the tokens of a text
//! are complete or absent. Every run compares each shard with its name before the first step; ranks
//! of a host divide that work.
//!
//! # What is sharded
//!
//! Reading: each rank reads its own rows. Row `j` is a function of the seed and of `j`, as for text
//! in memory ([`maypole_trainer::train::text`]): the same tokens give the same rows from either.
//!
//! # Which collective runs where
//!
//! [`prepare`] alone calls collectives. One rank writes tokens in slices of time. Between two slices an
//! all-reduce counts the ranks that are ready and those that have failed. So no rank waits longer than
//! for a slice, for a text of any length, and a failure reaches all ranks.
//!
//! # Cost
//!
//! The text is read once, and its tokens are written once and read once more to compare them. The
//! disk needs 1 byte for each byte of text, or with byte-pair encoding 2 for each token. A step reads
//! its rows: `4 * rows * context` bytes at most.
#![forbid(unsafe_code)]

pub mod index;
pub mod prepare;
pub mod sources;
pub mod token_files;
pub mod tokenise;

use maypole_trainer::train::text::TextError;
use std::io;
use std::path::{Path, PathBuf};

/// The text is not there as tokens, or its tokens cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// There is no text at all.
    #[error("{0}: no file in it has any text: give a folder of UTF-8 text files")]
    Empty(PathBuf),
    /// A file cannot be read or written: an error of the disk or of the path.
    #[error("{path}: {why}{}", remedy(why))]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        why: io::Error,
    },
    /// A file is no text, or of another encoding.
    #[error(
        "{path}: byte {at} is not UTF-8: convert the file (iconv -t UTF-8), or take it out of the \
         folder"
    )]
    NotUtf8 {
        /// The text file.
        path: PathBuf,
        /// The place of the first byte that is not part of a character, from 0.
        at: u64,
    },
    /// An entry of the folder is neither a file nor a folder.
    #[error("{0}: it is neither a file nor a folder: take it out of the folder")]
    NoFile(PathBuf),
    /// A file was written to, or replaced, after it was listed.
    #[error("{0}: it changed while it was read: let no program write to it, and start again")]
    Changed(PathBuf),
    /// The cache is in the folder of the text, where the next run would take it for text.
    #[error("{cache}: the cache is inside the text's folder {data}: give another --data-cache")]
    CacheInside {
        /// The cache folder.
        cache: PathBuf,
        /// The folder of the text.
        data: PathBuf,
    },
    /// A file in the cache has changed since it was written.
    #[error("{path}: {why}: remove this file, and the next run writes it again from the text")]
    Damaged {
        /// The shard or the index.
        path: PathBuf,
        /// The difference from the file that was written.
        why: String,
    },
    /// Hosts have different texts.
    #[error("rank {rank} has another text than rank 0: give all hosts the same files as --data")]
    Unlike {
        /// The first rank whose text differs.
        rank: usize,
    },
    /// Another rank failed, with this error.
    #[error("rank {rank} failed: {why}")]
    Rank {
        /// The first rank that failed.
        rank: usize,
        /// Its error, as a sentence.
        why: String,
    },
    /// A collective failed.
    #[error(transparent)]
    Collective(#[from] maypole::Error),
}

/// Advice about a file that cannot be written; empty for most errors.
fn remedy(why: &io::Error) -> &'static str {
    match why.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            ": free some space there, or give a --data-cache on another disk"
        }
        io::ErrorKind::FileTooLarge => ": raise the limit of file sizes with `ulimit -f`",
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            ": give this user the right to it, or name another folder as --data or --data-cache"
        }
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
            ": give a folder as --data-cache"
        }
        _ => "",
    }
}

impl From<DataError> for TextError {
    fn from(why: DataError) -> Self {
        Self(Box::new(why))
    }
}

fn failed(path: &Path) -> impl Fn(io::Error) -> DataError + use<> {
    let path = path.to_owned();
    move |why| DataError::File { path: path.clone(), why }
}

fn damaged(path: &Path, why: impl Into<String>) -> DataError {
    DataError::Damaged { path: path.to_owned(), why: why.into() }
}

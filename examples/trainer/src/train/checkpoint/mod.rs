//! Checkpoints: each rank writes the parameters that it updates, and any mesh can resume from them.
//!
//! * **Sharded:** the writing. No rank gathers the model; the copies of a data-parallel group write
//!   a part each.
//! * **Collective:** one number a rank after each stage of writing or reading, so that all ranks
//!   continue or all fail; 40 bytes a rank for the digests of the parts.
//! * **Cost:** 12 bytes a parameter with AdamW (weights and two averages), divided by all ranks to
//!   write. To read, every rank reads every part once for its digest, a piece at a time, and its own
//!   numbers from their offsets in the files directly into its buffers: it holds its own numbers and
//!   a flag for each.
//!
//! A checkpoint is a folder `step-00000100` with `manifest.json` and one `rank-000.safetensors` a
//! rank, whose header lists the runs of the whole model that it contains (see [`reshard`]).
//! It appears atomically: files are written and flushed in `step-00000100.partial`, the manifest
//! last, and the folder is renamed when all ranks are done. A run that is killed while it writes
//! leaves a folder without a manifest, which is never read. After a write error a run removes its
//! partial checkpoint.
//!
//! # What is checked
//!
//! Everything. The manifest has the length and the BLAKE3 digest of each part, and a digest of its
//! own. Every file is compared with them before a number of it is used, whether to resume, to move
//! to another mesh or to export. A file that was changed, truncated, lengthened, lost or exchanged
//! for another one is refused by its name. Checkpoints without digests are refused too, because
//! damage to them cannot be detected.
//!
//! The manifest also has the [options](crate::train::settings::RunRecord) of the run. A run that
//! resumes with others prints which ones differ. With another model, optimizer or vocabulary it is refused.
//!
//! # What a resumed run is
//!
//! A run that resumes on the same mesh continues as if it had not stopped, to the last bit: rows and
//! rates are functions of the step, and the manifest has the scale of losses in `f16`. Local SGD is the exception: its ranks have an optimizer each,
//! and a checkpoint has one. Experts move by loads that are counted from the last move on. A checkpoint
//! lacks these counters, so after it experts may move differently, unless they moved at its step; that
//! changes losses only by rounding.
//!
//! | file | contents |
//! |---|---|
//! | [`manifest`] | the model, the state and the settings of a run, and the digest of each file |
//! | [`part`] | the file of one rank |
//! | `ranges` | reads from all parts the numbers that a rank needs |
//! | [`reshard`] | from the parts of any mesh to those of any other |
//! | [`history`] | which checkpoints are in a folder, and which of them are kept |

pub mod files;
pub mod history;
pub mod load;
pub mod manifest;
pub mod part;
mod ranges;
pub mod reshard;
pub mod save;

use crate::ranks::exchange::first_failure;
use crate::ranks::group::RankGroup;
use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

/// A checkpoint was not written or not read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// A file cannot be written or read, because of the disk or of the path.
    #[error("{path}: {why}{}", remedy(why))]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        why: io::Error,
    },
    /// A file differs from its digest: it was changed, truncated, lengthened, exchanged or lost. Nothing
    /// of the checkpoint is used.
    #[error(
        "{path}{}: {why}; put the file back as it was, or remove {} to go on from an earlier checkpoint",
        part_of(*rank),
        path.parent().unwrap_or(path).display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The rank that wrote it; `None` for the manifest.
        rank: Option<usize>,
        /// The difference from the file that was written.
        why: String,
    },
    /// The checkpoint is of another model, another optimizer, or other tokens.
    #[error("{path} has {theirs}, and this run {ours}: give it the same, or a folder of its own")]
    Other {
        /// The folder of the checkpoint.
        path: PathBuf,
        /// The model, optimizer or vocabulary of the checkpoint.
        theirs: String,
        /// That of this run.
        ours: String,
    },
    /// Two ranks read different checkpoints by the same path.
    #[error(
        "{path}: rank {rank} reads another manifest than rank 0: \
         give a folder that is the same on all hosts"
    )]
    Unlike {
        /// The manifest.
        path: PathBuf,
        /// The first rank whose manifest differs.
        rank: usize,
    },
    /// Ranks train apart: their weights differ.
    #[error(
        "ranks that train apart have an optimizer each, and a checkpoint has one: save with another sharding"
    )]
    Apart,
    /// A number that was to be saved is infinite or NaN. Earlier checkpoints stay.
    #[error(
        "{what} of {tensor} are not finite, and no run could go on from them: no checkpoint is \
         written, and earlier ones stay; go on from an earlier one with a lower --rate"
    )]
    NotFinite {
        /// Weights, or averages of gradients.
        what: &'static str,
        /// The tensor.
        tensor: String,
    },
    /// Another rank failed, for the reason that it gives.
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
            "; free some space there, or keep fewer checkpoints with --keep"
        }
        io::ErrorKind::FileTooLarge => "; raise the limit of file sizes with `ulimit -f`",
        _ => "",
    }
}

fn part_of(rank: Option<usize>) -> String {
    rank.map_or_else(String::new, |rank| format!(", the part of rank {rank}"))
}

/// All ranks continue, or all fail with the same first cause.
///
/// # Errors
/// The first rank that failed returns its error, and every other rank returns
/// [`CheckpointError::Rank`] with the sentence of that error.
pub fn agree<T>(world: &RankGroup, mine: Result<T, CheckpointError>) -> Result<T, CheckpointError> {
    if world.world() == 1 {
        return mine;
    }
    let sentence = mine.as_ref().err().map(ToString::to_string);
    match world.call(|comm| first_failure(comm, sentence)) {
        Ok(Some((rank, why))) if rank != world.rank() => Err(CheckpointError::Rank { rank, why }),
        Ok(_) => mine,
        // A rank that has an error of its own returns that one.
        Err(lost) => mine.and(Err(lost.into())),
    }
}

/// Makes the error of a file that cannot be read or written.
pub fn failed(path: &Path) -> impl Fn(io::Error) -> CheckpointError + use<> {
    let path = path.to_owned();
    move |why| CheckpointError::File { path: path.clone(), why }
}

fn damaged(path: &Path, rank: Option<usize>, why: impl Display) -> CheckpointError {
    CheckpointError::Damaged { path: path.to_owned(), rank, why: why.to_string() }
}

/// The error of a file of a checkpoint that cannot be read: [`CheckpointError::Damaged`] if it is
/// missing, else [`CheckpointError::File`].
fn unreadable(path: &Path, rank: Option<usize>) -> impl Fn(io::Error) -> CheckpointError + use<> {
    let path = path.to_owned();
    move |why| match why.kind() {
        io::ErrorKind::NotFound => damaged(&path, rank, "it is missing"),
        _ => CheckpointError::File { path: path.clone(), why },
    }
}

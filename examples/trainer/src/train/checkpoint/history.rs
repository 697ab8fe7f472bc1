//! The checkpoints in a folder: the last that is complete, those that are not, and how many are
//! kept.
//!
//! A checkpoint is complete if its manifest is there, which is written last. Its files
//! are checked when they are read: a damaged checkpoint is an error and is not passed over, so that
//! no run resumes from an older step without notice.

use crate::ranks::group::RankGroup;
use crate::train::checkpoint::files::remove_folder;
use crate::train::checkpoint::manifest::MANIFEST;
use crate::train::checkpoint::{CheckpointError, agree, failed};
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The name of the folder of a checkpoint of step `step`.
pub fn folder_name(step: u64) -> String {
    format!("step-{step:08}")
}

/// The name of the folder while it is written, and while it is removed.
pub(super) fn partial_name(step: u64) -> String {
    format!("step-{step:08}.partial")
}

/// A checkpoint from which no run can go on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct IncompleteCheckpoint {
    /// The step of the checkpoint.
    pub step: u64,
    /// Its folder.
    pub path: PathBuf,
    /// True if the folder has the name of a complete one, but no manifest.
    named: bool,
}

impl fmt::Display for IncompleteCheckpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, path, named } = self;
        let path = path.display();
        if *named {
            write!(f, "step {step} is incomplete ({path} has no {MANIFEST})")
        } else {
            write!(f, "step {step} is incomplete ({path} was never finished)")
        }
    }
}

/// The checkpoints in a folder.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CheckpointHistory {
    folder: PathBuf,
    /// The steps of the complete ones, ascending.
    complete: Vec<u64>,
    /// The incomplete ones, by step.
    incomplete: Vec<IncompleteCheckpoint>,
}

impl CheckpointHistory {
    /// Lists the checkpoints in `folder`; an empty history, if there is no such folder.
    ///
    /// # Errors
    /// [`CheckpointError::File`], if the folder cannot be read.
    pub fn read(folder: &Path) -> Result<Self, CheckpointError> {
        let mut history = Self { folder: folder.to_owned(), ..Self::default() };
        let entries = match fs::read_dir(folder) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(history),
            entries => entries.map_err(failed(folder))?,
        };
        for entry in entries {
            let path = entry.map_err(failed(folder))?.path();
            if path.is_dir() {
                history.note(path);
            }
        }
        history.complete.sort_unstable();
        history.incomplete.sort_by_key(|it| it.step);
        Ok(history)
    }

    fn note(&mut self, path: PathBuf) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some(digits) = name.strip_prefix("step-") else { return };
        let Ok(step) = digits.strip_suffix(".partial").unwrap_or(digits).parse() else { return };
        if name == folder_name(step) && path.join(MANIFEST).exists() {
            self.complete.push(step);
        } else if name == folder_name(step) || name == partial_name(step) {
            let named = name == folder_name(step);
            self.incomplete.push(IncompleteCheckpoint { step, path, named });
        }
    }

    /// Returns the folder of the last complete checkpoint.
    pub fn newest(&self) -> Option<PathBuf> {
        self.complete.last().map(|step| self.folder.join(folder_name(*step)))
    }

    /// Returns the incomplete checkpoints of later steps than the last complete one.
    pub fn interrupted(&self) -> impl Iterator<Item = &IncompleteCheckpoint> {
        let newest = self.complete.last();
        self.incomplete.iter().filter(move |it| newest.is_none_or(|newest| it.step > *newest))
    }

    /// Removes all but the last `count` complete checkpoints, and what interrupted runs left before
    /// the last one. A checkpoint that is half removed is not complete.
    ///
    /// # Errors
    /// [`CheckpointError::File`] of the first that cannot be removed.
    ///
    /// # Panics
    /// If `count` is zero: the last checkpoint stays.
    pub fn keep_last(&self, count: usize) -> Result<(), CheckpointError> {
        assert!(count > 0, "the last checkpoint is kept");
        let excess = self.complete.len().saturating_sub(count);
        for step in &self.complete[..excess] {
            let place = self.folder.join(folder_name(*step));
            let partial = self.folder.join(partial_name(*step));
            remove_folder(&partial)?;
            fs::rename(&place, &partial).map_err(failed(&place))?;
            remove_folder(&partial)?;
        }
        let newest = self.complete.last();
        let left = self.incomplete.iter().filter(|it| newest.is_some_and(|last| it.step <= *last));
        left.map(|it| &it.path)
            .filter(|path| path.exists())
            .try_for_each(|path| remove_folder(path))
    }
}

/// Returns the last complete checkpoint in `folder`.
///
/// # Errors
/// As [`CheckpointHistory::read`].
pub fn latest(folder: &Path) -> Result<Option<PathBuf>, CheckpointError> {
    Ok(CheckpointHistory::read(folder)?.newest())
}

/// Returns the history of `folder` as rank 0 sees it, and the checkpoint from which all ranks of
/// `world` go on. Rank 0 chooses it, because hosts may see different states of a shared folder. All
/// ranks call it; the other ranks get an empty history.
///
/// # Errors
/// As [`CheckpointHistory::read`], on every rank.
pub fn agreed(
    world: &RankGroup,
    folder: &Path,
) -> Result<(CheckpointHistory, Option<PathBuf>), CheckpointError> {
    let empty = CheckpointHistory::default();
    let own = if world.rank() == 0 { CheckpointHistory::read(folder) } else { Ok(empty) };
    let history = agree(world, own)?;
    // 2^64 - 1 stands for no checkpoint: no run has so many steps.
    let step = world.gather(&[history.complete.last().copied().unwrap_or(u64::MAX)])?[0];
    let place = (step != u64::MAX).then(|| folder.join(folder_name(step)));
    Ok((history, place))
}

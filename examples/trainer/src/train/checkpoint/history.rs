//! The checkpoints in a folder: the last that is complete, those that are not, and how many are
//! kept.
//!
//! A checkpoint is complete if it has a manifest, which is written last and removed first. Its folder
//! may have its final name or still that of a partial one. Its files are checked when they are read: a
//! damaged checkpoint is an error and is not skipped, so that no run silently resumes from an older
//! step.

use crate::ranks::group::RankGroup;
use crate::train::checkpoint::files::remove_folder;
use crate::train::checkpoint::manifest::MANIFEST;
use crate::train::checkpoint::{CheckpointError, agree, failed};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The name of the folder of a checkpoint of step `step`.
pub fn folder_name(step: u64) -> String {
    format!("step-{step:08}")
}

/// The name of the folder while it is written.
pub(super) fn partial_name(step: u64) -> String {
    format!("step-{step:08}.partial")
}

/// A checkpoint from which no run can resume.
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
    /// The folders of the complete ones, by step.
    complete: BTreeMap<u64, PathBuf>,
    /// The incomplete ones, by step.
    incomplete: Vec<IncompleteCheckpoint>,
}

impl CheckpointHistory {
    /// Lists the checkpoints in `folder`; an empty history, if there is no such folder.
    ///
    /// # Errors
    /// [`CheckpointError::File`], if the folder cannot be read.
    pub fn read(folder: &Path) -> Result<Self, CheckpointError> {
        let mut history = Self::default();
        let entries = match fs::read_dir(folder) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(history),
            entries => entries.map_err(failed(folder))?,
        };
        let mut unnamed = Vec::new();
        for entry in entries {
            let path = entry.map_err(failed(folder))?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let Some(step) = step_of(name).filter(|_| path.is_dir()) else { continue };
            let named = name == folder_name(step);
            match (named, path.join(MANIFEST).exists()) {
                (true, true) => drop(history.complete.insert(step, path)),
                (false, true) => unnamed.push((step, path)),
                _ => history.incomplete.push(IncompleteCheckpoint { step, path, named }),
            }
        }
        for (step, path) in unnamed {
            match history.complete.entry(step) {
                Entry::Vacant(place) => drop(place.insert(path)),
                Entry::Occupied(_) => {
                    history.incomplete.push(IncompleteCheckpoint { step, path, named: false });
                }
            }
        }
        history.incomplete.sort_by_key(|it| it.step);
        Ok(history)
    }

    /// Returns the folder of the last complete checkpoint.
    pub fn newest(&self) -> Option<&Path> {
        self.complete.last_key_value().map(|(_, path)| &**path)
    }

    /// Returns the incomplete checkpoints of later steps than the last complete one.
    pub fn interrupted(&self) -> impl Iterator<Item = &IncompleteCheckpoint> {
        self.incomplete.iter().filter(|it| self.last_step().is_none_or(|last| it.step > last))
    }

    fn last_step(&self) -> Option<u64> {
        self.complete.last_key_value().map(|(step, _)| *step)
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
        self.complete.values().take(excess).try_for_each(|path| remove_folder(path))?;
        let left = self.incomplete.iter().filter(|it| Some(it.step) <= self.last_step());
        left.filter(|it| it.path.exists()).try_for_each(|it| remove_folder(&it.path))
    }
}

/// The step of a folder with the name of a checkpoint, whole or not.
fn step_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("step-")?;
    let step = digits.strip_suffix(".partial").unwrap_or(digits).parse().ok()?;
    [folder_name(step), partial_name(step)].contains(&name.to_owned()).then_some(step)
}

/// Returns the last complete checkpoint in `folder`.
///
/// # Errors
/// As [`CheckpointHistory::read`].
pub fn latest(folder: &Path) -> Result<Option<PathBuf>, CheckpointError> {
    Ok(CheckpointHistory::read(folder)?.newest().map(Path::to_owned))
}

/// Returns the history of `folder` as rank 0 reads it, and the checkpoint from which all ranks of
/// `world` resume. Rank 0 chooses it, because hosts may see different states of a shared folder. All
/// ranks call it; the other ranks return an empty history.
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
    let name = history.newest().and_then(Path::file_name).unwrap_or_default().as_bytes().to_vec();
    let name = world.broadcast_bytes(name, 0)?;
    let place = (!name.is_empty()).then(|| folder.join(OsStr::from_bytes(&name)));
    Ok((history, place))
}

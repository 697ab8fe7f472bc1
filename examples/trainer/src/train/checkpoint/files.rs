//! Files that are whole or not there: written under another name, flushed, and then renamed.

use crate::train::checkpoint::{CheckpointError, failed};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

/// Writes a new file and flushes it to the disk. Removes the file if this fails.
pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<(), CheckpointError> {
    let written = File::create(path).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.map_err(|why| {
        // The error of writing is returned. A failure to remove the file adds nothing.
        let _ = fs::remove_file(path);
        failed(path)(why)
    })
}

/// Writes a file, in place of an existing one, atomically. If `path` is no regular file, such as a
/// pipe or a device, writes to it.
///
/// # Errors
/// [`CheckpointError::File`].
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), CheckpointError> {
    // The file that a link leads to is written, and the link stays.
    let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if target.exists() && !target.is_file() {
        return fs::write(path, bytes).map_err(failed(path));
    }
    let mut partial = target.clone().into_os_string();
    partial.push(".partial");
    let partial = Path::new(&partial);
    write(partial, bytes)?;
    fs::rename(partial, &target).map_err(failed(path))?;
    sync_folder(target.parent().unwrap_or(Path::new("")))
}

/// Renames folder `from` to `to` atomically. If there is a folder `to`, the two exchange names.
pub(super) fn rename_folder(from: &Path, to: &Path) -> Result<(), CheckpointError> {
    if !to.exists() {
        return fs::rename(from, to).map_err(failed(to));
    }
    if renameat_with(CWD, from, CWD, to, RenameFlags::EXCHANGE).is_ok() {
        return Ok(());
    }
    // Some file systems cannot exchange two names.
    let aside = to.with_extension("replaced");
    remove_folder(&aside)?;
    fs::rename(to, &aside)
        .and_then(|()| fs::rename(from, to))
        .and_then(|()| fs::rename(&aside, from))
        .map_err(failed(to))
}

/// Removes a folder and all that is in it, if it is there.
///
/// # Errors
/// [`CheckpointError::File`].
pub fn remove_folder(path: &Path) -> Result<(), CheckpointError> {
    match fs::remove_dir_all(path) {
        Err(why) if why.kind() != std::io::ErrorKind::NotFound => Err(failed(path)(why)),
        _ => Ok(()),
    }
}

/// Flushes the names in a folder to the disk, so that they survive a loss of power.
pub(super) fn sync_folder(path: &Path) -> Result<(), CheckpointError> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    File::open(path).and_then(|folder| folder.sync_all()).map_err(failed(path))
}

//! Files that are whole or not there: written under another name, flushed, and then renamed.

use crate::train::checkpoint::manifest::MANIFEST;
use crate::train::checkpoint::{CheckpointError, failed};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
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

/// An operation on files.
type FileOperation<'a> = Box<dyn FnOnce() -> Result<(), CheckpointError> + 'a>;

/// The operations that give `from`, the folder of a whole checkpoint, the name `to`, in the place of
/// an older one. After each of them one of the two folders has its manifest and all of its files, so
/// a run that is killed in between loses no checkpoint.
pub(super) fn replacing<'a>(from: &'a Path, to: &'a Path) -> [FileOperation<'a>; 3] {
    [
        Box::new(move || remove_manifest(to)),
        Box::new(move || remove_folder(to)),
        Box::new(move || fs::rename(from, to).map_err(failed(to))),
    ]
}

/// Removes the manifest in `folder`, which is then the folder of no checkpoint.
fn remove_manifest(folder: &Path) -> Result<(), CheckpointError> {
    match fs::remove_file(folder.join(MANIFEST)) {
        Ok(()) => sync_folder(folder),
        Err(why) if why.kind() == ErrorKind::NotFound => Ok(()),
        Err(why) => Err(failed(folder)(why)),
    }
}

/// Removes a folder with its contents, if it exists; first the manifest, so that a partly removed
/// checkpoint is not a complete one.
///
/// # Errors
/// [`CheckpointError::File`].
pub fn remove_folder(path: &Path) -> Result<(), CheckpointError> {
    remove_manifest(path)?;
    match fs::remove_dir_all(path) {
        Err(why) if why.kind() != ErrorKind::NotFound => Err(failed(path)(why)),
        _ => Ok(()),
    }
}

/// Flushes the names in a folder to the disk, so that they survive a loss of power.
pub(super) fn sync_folder(path: &Path) -> Result<(), CheckpointError> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    File::open(path).and_then(|folder| folder.sync_all()).map_err(failed(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::checkpoint::history::{CheckpointHistory, folder_name, partial_name};

    #[test]
    fn a_run_that_stops_while_it_replaces_a_checkpoint_leaves_a_whole_one() {
        for stop in 0..=3 {
            let folder = tempfile::tempdir().unwrap();
            let [to, from] = [folder_name(7), partial_name(7)].map(|name| folder.path().join(name));
            for (place, text) in [(&to, "old"), (&from, "new")] {
                fs::create_dir(place).unwrap();
                for name in [MANIFEST, "rank-000"] {
                    fs::write(place.join(name), text).unwrap();
                }
            }
            replacing(&from, &to).into_iter().take(stop).for_each(|done| done().unwrap());
            let history = CheckpointHistory::read(folder.path()).unwrap();
            let newest = history.newest().expect("a checkpoint is left");
            let read = |name| fs::read_to_string(newest.join(name)).unwrap();
            let whole = if stop == 0 { "old" } else { "new" };
            assert_eq!([read(MANIFEST), read("rank-000")], [whole; 2], "stopped after {stop}");
            // What is left of the other one goes away with the next that are not kept.
            history.keep_last(1).unwrap();
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "stopped after {stop}");
        }
    }
}

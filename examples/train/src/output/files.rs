//! Files for results. Each is tried before the work begins, so that no result is lost because its
//! file cannot be written.

use anyhow::Context;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Makes sure that the file that `flag` names can be written. The content of an existing
/// file stays, and a file that this trial made is removed.
pub(crate) fn try_file(flag: &str, path: &Path) -> anyhow::Result<()> {
    let metadata = fs::metadata(path);
    if metadata.as_ref().is_ok_and(|file| file.file_type().is_fifo()) {
        // The reader of a pipe would take the end of the trial for the end of the data.
        return Ok(());
    }
    let opened = OpenOptions::new().append(true).create(true).open(path);
    opened.map(drop).with_context(|| unusable(flag, path))?;
    if metadata.is_err() {
        fs::remove_file(path).with_context(|| unusable(flag, path))?;
    }
    Ok(())
}

/// Creates the folder that `flag` names, if it is missing, and checks that files can be made in it.
pub(crate) fn try_folder(flag: &str, path: &Path) -> anyhow::Result<()> {
    let trial = path.join(format!(".trial-{}", std::process::id()));
    let tried = fs::create_dir_all(path)
        .and_then(|()| fs::write(&trial, ""))
        .and_then(|()| fs::remove_file(&trial));
    tried.with_context(|| unusable(flag, path))
}

/// Writes the file that `flag` names, or that is in the folder that it names.
pub(crate) fn write(flag: &str, path: &Path, text: impl AsRef<[u8]>) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| unusable(flag, path))
}

fn unusable(flag: &str, path: &Path) -> String {
    format!("{flag}: cannot write {}", path.display())
}

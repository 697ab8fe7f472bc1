//! Writing the file of measured costs.

use anyhow::{Context, Result};
use maypole::tuner::CostTable;
use maypole::tuner::saved::TableLocation;
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Checks whether [`store`] can write: makes the folder, and writes and removes a file there. Measuring
/// takes long, so this comes first.
pub(super) fn probe(location: &TableLocation) -> Result<()> {
    // As long as a table, so that a full disk is noticed.
    beside(location, &CostTable::BUILT_IN).map(drop)
}

/// Writes the table as a whole or not at all, and returns the path of the file. Of a link, the file
/// is written that it leads to. An existing file that is not regular is refused.
pub(super) fn store<'a>(location: &'a TableLocation, table: &CostTable) -> Result<&'a Path> {
    let (file, path) = beside(location, table)?;
    file.persist(&path).with_context(|| path.display().to_string())?;
    Ok(location.file()?)
}

/// A file with the table in the folder of the location's file, whose path it returns, too. It is removed
/// when it is dropped.
fn beside(location: &TableLocation, table: &CostTable) -> Result<(NamedTempFile, PathBuf)> {
    let path = location.file()?;
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let written = || {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        fs::create_dir_all(folder)?;
        // The usual mode, less the bits of the user's mask.
        let mode = Permissions::from_mode(0o666);
        let mut file = tempfile::Builder::new().permissions(mode).tempfile_in(folder)?;
        file.write_all(table.file_text().as_bytes())?;
        file.as_file().sync_all()?;
        std::io::Result::Ok(file)
    };
    let file = written().with_context(|| path.display().to_string())?;
    Ok((file, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_stored_and_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/costs");
        let place = TableLocation::Cache(Some(path.clone()));
        assert_eq!(place.load().unwrap(), CostTable::BUILT_IN, "an empty cache is none");
        let table = CostTable { switch: 7, ..CostTable::BUILT_IN };
        assert_eq!(store(&place, &table).unwrap(), path);
        assert_eq!(place.load().unwrap(), table);
        assert_eq!(
            fs::read_dir(path.parent().unwrap()).unwrap().count(),
            1,
            "nothing is left beside it"
        );
    }

    #[test]
    fn only_regular_files_are_replaced_and_links_stay() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        fs::write(&file, "").unwrap();
        let table = CostTable { switch: 7, ..CostTable::BUILT_IN };
        store(&TableLocation::File(link.clone()), &table).unwrap();
        assert!(link.is_symlink());
        assert_eq!(TableLocation::File(file).load().unwrap(), table);
        // A socket is a node that is no file, and that needs no tool to be made.
        let node = folder.path().join("node");
        let _socket = std::os::unix::net::UnixListener::bind(&node).unwrap();
        for path in [node.as_path(), folder.path()] {
            let place = TableLocation::File(path.to_owned());
            let before = fs::metadata(path).unwrap().file_type();
            let refused = [
                probe(&place).map_err(|error| error.to_string()).err(),
                store(&place, &table).map_err(|error| error.to_string()).err(),
                place.load().map_err(|error| error.to_string()).err(),
            ];
            for error in refused {
                let text = error.expect("it is refused");
                assert!(text.contains(&format!("{} is no regular file", path.display())), "{text}");
            }
            assert_eq!(fs::metadata(path).unwrap().file_type(), before);
        }
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let nowhere = TableLocation::File("/proc/no/such/folder/costs".into());
        let error = probe(&nowhere).unwrap_err().to_string();
        assert!(error.contains("/proc/no/such/folder/costs"), "{error}");
    }

    #[test]
    fn the_table_that_is_built_in_cannot_be_overwritten() {
        let error = store(&TableLocation::BuiltIn, &CostTable::BUILT_IN).unwrap_err().to_string();
        assert!(error.contains("there is no cache directory"), "{error}");
    }
}

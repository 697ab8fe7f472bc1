//! The file of the measured costs: one small file in the user's cache directory.

use crate::topology::detect::CpuInfo;
use crate::tuner::costs::LONGEST;
use crate::tuner::{CostTable, TableError};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// A table in a file, and the machine that it was measured on.
#[derive(Deserialize, Serialize)]
struct SavedTable {
    measured_on: Option<String>,
    #[serde(flatten)]
    costs: CostTable,
}

/// The table that `MAYPOLE_TUNE` selects.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum TableLocation {
    /// The built-in table.
    BuiltIn,
    /// This file; it must be there.
    File(PathBuf),
    /// The file in the cache directory, if it exists.
    Cache(Option<PathBuf>),
}

impl TableLocation {
    /// Reads the location from the environment.
    pub fn from_env() -> Self {
        Self::from_vars(|name| std::env::var_os(name))
    }

    /// Reads the location from `vars`. An empty variable counts as not set, and so does a relative
    /// path of a cache directory.
    ///
    /// ```
    /// use maypole::tuner::saved::TableLocation;
    /// let place = TableLocation::from_vars(|name| (name == "HOME").then(|| "/home/ada".into()));
    /// assert_eq!(place, TableLocation::Cache(Some("/home/ada/.cache/maypole/costs".into())));
    /// ```
    pub fn from_vars(vars: impl Fn(&str) -> Option<OsString>) -> Self {
        let text = |name| vars(name).filter(|value| !value.is_empty());
        match text("MAYPOLE_TUNE") {
            Some(off) if off == "off" => return Self::BuiltIn,
            Some(path) => return Self::File(path.into()),
            None => {}
        }
        let absolute = |name| text(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
        Self::Cache(cache.map(|cache| cache.join("maypole").join("costs")))
    }

    /// Reads the table.
    ///
    /// # Errors
    /// [`TableError`] if a file that was named is not there, or if any file cannot be read, is
    /// damaged, or has costs that [no machine has](CostTable::check). Without a file in the cache
    /// directory, the built-in table is loaded. A file there must be of this machine; one that was
    /// named may be of any.
    pub fn load(&self) -> Result<CostTable, TableError> {
        match self {
            Self::BuiltIn | Self::Cache(None) => Ok(CostTable::BUILT_IN),
            Self::File(path) => Ok(read(path)?.0),
            Self::Cache(Some(path)) => match path.try_exists() {
                Ok(false) => Ok(CostTable::BUILT_IN),
                _ => read_own(path),
            },
        }
    }

    /// The file that a table can be written to. It need not be there.
    ///
    /// ```
    /// use maypole::tuner::saved::TableLocation;
    /// assert!(TableLocation::BuiltIn.file().is_err());
    /// ```
    ///
    /// # Errors
    /// [`TableError`] if there is no file for the table, or if the path is no regular file.
    pub fn file(&self) -> Result<&Path, TableError> {
        match self {
            Self::File(path) | Self::Cache(Some(path)) => only_a_file(path).map(|()| &**path),
            Self::BuiltIn | Self::Cache(None) => Err(TableError(
                "there is no cache directory: set MAYPOLE_TUNE to a file, or XDG_CACHE_HOME or HOME"
                    .to_owned(),
            )),
        }
    }
}

impl CostTable {
    /// The text of a file that holds the table as one that was measured on this machine.
    ///
    /// ```
    /// use maypole::tuner::CostTable;
    /// let text = CostTable::BUILT_IN.file_text();
    /// assert_eq!(text.parse::<CostTable>().unwrap(), CostTable::BUILT_IN);
    /// ```
    pub fn file_text(&self) -> String {
        let saved = SavedTable { measured_on: Some(machine()), costs: *self };
        serde_json::to_string_pretty(&saved).expect("plain data can always be written")
    }

    /// The table that the environment selects: the measured one if it exists, else the built-in
    /// one. If a file cannot be read, prints the error and uses the built-in table.
    pub fn tuned() -> Self {
        TableLocation::from_env().load().unwrap_or_else(|error| {
            // A program whose standard error is closed continues.
            let _ = writeln!(io::stderr(), "maypole: {error}; using the built-in costs");
            Self::BUILT_IN
        })
    }
}

/// Refuses a path that exists and is no regular file. Opening a pipe would block, and a rename to
/// the path would replace a device.
fn only_a_file(path: &Path) -> Result<(), TableError> {
    match fs::metadata(path) {
        Ok(there) if !there.is_file() => Err(TableError(format!(
            "{} is no regular file, and only such a file holds a table; name another",
            path.display()
        ))),
        _ => Ok(()),
    }
}

/// This machine, in a few words: its processor and their number.
fn machine() -> String {
    let info = CpuInfo::read(Path::new("/"));
    let name = info.name().unwrap_or_else(|| "a processor without a name".to_owned());
    format!("{} x {name}", info.count())
}

/// Reads a table that must be of this machine, or name none. Machines may share home directories.
fn read_own(path: &Path) -> Result<CostTable, TableError> {
    let (table, measured) = read(path)?;
    let here = machine();
    match measured.filter(|measured| *measured != here) {
        None => Ok(table),
        Some(measured) => Err(TableError(format!(
            "{} was measured on '{measured}', and this is '{here}'; run 'maypole tune' here, or \
             name the file in MAYPOLE_TUNE to use it all the same",
            path.display()
        ))),
    }
}

/// Reads a table, and its machine if the table names one.
fn read(path: &Path) -> Result<(CostTable, Option<String>), TableError> {
    only_a_file(path)?;
    let name = path.display();
    let mut bytes = Vec::new();
    // One byte more than a table has is enough for the parser to refuse it.
    let most = LONGEST as u64 + 1;
    let read = fs::File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes));
    read.map_err(|error| TableError(format!("{name}: {error}")))?;
    let text = String::from_utf8_lossy(&bytes);
    let saved = serde_json::from_str::<SavedTable>(&text);
    let table = text.parse::<CostTable>().and_then(|table| table.check().map(|()| table));
    let damaged = |why: TableError| {
        TableError(format!("{name} is damaged: {why}; run 'maypole tune' again, or remove it"))
    };
    Ok((table.map_err(damaged)?, saved.ok().and_then(|saved| saved.measured_on)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(vars: &[(&str, &str)]) -> TableLocation {
        let vars: Vec<_> =
            vars.iter().map(|(name, value)| ((*name).to_owned(), OsString::from(value))).collect();
        TableLocation::from_vars(|name| {
            vars.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
        })
    }

    #[test]
    fn the_environment_names_the_place() {
        assert_eq!(place(&[]), TableLocation::Cache(None));
        assert_eq!(place(&[("MAYPOLE_TUNE", "off"), ("HOME", "/h")]), TableLocation::BuiltIn);
        assert_eq!(place(&[("MAYPOLE_TUNE", "x/y")]), TableLocation::File("x/y".into()));
        let cache = TableLocation::Cache(Some("/c/maypole/costs".into()));
        assert_eq!(place(&[("XDG_CACHE_HOME", "/c"), ("HOME", "/h")]), cache);
        assert_eq!(place(&[("XDG_CACHE_HOME", "c"), ("HOME", "")]), TableLocation::Cache(None));
    }

    /// Home directories may be shared by machines of several kinds.
    #[test]
    fn a_table_of_another_machine_is_used_only_if_it_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("costs");
        let table = CostTable { switch: 7, ..CostTable::BUILT_IN };
        let (cache, named) =
            (TableLocation::Cache(Some(path.clone())), TableLocation::File(path.clone()));
        let text = table.file_text();
        fs::write(&path, text.replace(&machine(), "96 x some other processor")).unwrap();
        let error = cache.load().unwrap_err().to_string();
        assert!(
            error.contains("'96 x some other processor'") && error.contains(&machine()),
            "{error}"
        );
        assert_eq!(named.load().unwrap(), table);
        fs::write(&path, table.to_string()).unwrap();
        assert_eq!(cache.load().unwrap(), table, "a table need not name its machine");
    }

    #[test]
    fn costs_that_no_machine_has_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("costs");
        let small = crate::tuner::Costs { alpha: 130_000, beta: 0, gamma: 0 };
        let tiny = crate::tuner::Costs { alpha: 57_800_000, ..small };
        let table = CostTable { tiny, small, ..CostTable::BUILT_IN };
        fs::write(&path, table.to_string()).unwrap();
        let error = TableLocation::File(path).load().unwrap_err().to_string();
        assert!(
            error.contains("48 bytes costs 57.8 us and one of 256 bytes only 0.13 us"),
            "{error}"
        );
    }

    #[test]
    fn damaged_and_missing_files_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("costs");
        let place = TableLocation::File(path.clone());
        assert!(place.load().unwrap_err().to_string().contains(path.to_str().unwrap()));
        fs::write(&path, b"{\n\xff\xfe").unwrap();
        let error = place.load().unwrap_err().to_string();
        assert!(error.contains(path.to_str().unwrap()) && error.contains("line 2"), "{error}");
    }
}

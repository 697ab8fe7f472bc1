//! Reads files that users name. No file is trusted to end.

use std::fs::File;
use std::io::{Read, stdin};
use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};

use crate::sizes;

/// The most bytes of a schedule, of an exercise and of a list of hosts.
pub(crate) const TEXT: usize = 16 << 20;
/// The most bytes of results of measurements.
pub(crate) const RESULTS: usize = 256 << 20;

/// The text of the file `path`, as `option` names it, which has at most `most` bytes; `-` is standard input.
///
/// # Errors
/// If the file cannot be read, is longer, or is not UTF-8.
pub(crate) fn text(option: &str, path: &Path, most: usize) -> Result<String> {
    let name = match option {
        "" => path.display().to_string(),
        option => format!("{option} {}", path.display()),
    };
    let cannot = || format!("cannot read {name}");
    let mut bytes = Vec::new();
    let file: Box<dyn Read> = match path.as_os_str() == "-" {
        true => Box::new(stdin()),
        false => Box::new(File::open(path).with_context(cannot)?),
    };
    file.take(most as u64 + 1).read_to_end(&mut bytes).with_context(cannot)?;
    ensure!(
        bytes.len() <= most,
        "{name} is longer than {}, the most that it may have",
        sizes::name(most)
    );
    String::from_utf8(bytes)
        .map_err(|error| anyhow!("{name}: byte {} is not UTF-8", error.utf8_error().valid_up_to()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_an_end_is_refused_at_the_limit() {
        let error = text("--x", Path::new("/dev/zero"), 1 << 10).unwrap_err().to_string();
        assert_eq!(error, "--x /dev/zero is longer than 1K, the most that it may have");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "four").unwrap();
        assert_eq!(text("", &path, 4).unwrap(), "four");
        text("", &path, 3).unwrap_err();
        std::fs::write(&path, b"a\xff").unwrap();
        let error = text("", &path, 4).unwrap_err().to_string();
        assert!(error.ends_with("byte 1 is not UTF-8"), "{error}");
    }
}

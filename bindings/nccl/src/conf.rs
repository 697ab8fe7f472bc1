//! Files that set variables of NCCL where the environment does not: the file of `NCCL_CONF_FILE`, or
//! else `~/.nccl.conf`, and then `/etc/nccl.conf`. A line is `NAME=VALUE`; `#` begins a comment.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// What the files set, and what is wrong with them, one sentence each.
#[derive(Debug, Default)]
pub(crate) struct Conf {
    pub(crate) values: BTreeMap<String, String>,
    pub(crate) complaints: Vec<String>,
}

/// The files of this process, read once.
pub(crate) fn conf() -> &'static Conf {
    static CONF: OnceLock<Conf> = OnceLock::new();
    CONF.get_or_init(|| {
        let mut conf = Conf::default();
        let named = std::env::var_os("NCCL_CONF_FILE").filter(|name| !name.is_empty());
        match &named {
            Some(name) => conf.read(Path::new(name), true),
            None => {
                let home = std::env::var_os("HOME").map(PathBuf::from);
                home.into_iter().for_each(|home| conf.read(&home.join(".nccl.conf"), false));
            }
        }
        conf.read(Path::new("/etc/nccl.conf"), false);
        conf
    })
}

impl Conf {
    /// Adds what a file sets that no file before it did.
    fn read(&mut self, file: &Path, must_exist: bool) {
        match std::fs::read(file) {
            Ok(bytes) => self.add(&file.display().to_string(), &String::from_utf8_lossy(&bytes)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !must_exist => {}
            Err(error) => self.complaints.push(format!("{} is not read: {error}", file.display())),
        }
    }

    fn add(&mut self, file: &str, text: &str) {
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match line.split_once('=') {
                Some((name, value)) if !name.trim().is_empty() => {
                    let name = name.trim().to_owned();
                    self.values.entry(name).or_insert_with(|| value.trim().to_owned());
                }
                _ => self.complaints.push(format!(
                    "line {} of {file} is no NAME=VALUE, and has no effect: {line:?}",
                    number + 1
                )),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_file_that_sets_a_variable_counts() {
        let mut conf = Conf::default();
        conf.add("one", "# a comment\n NCCL_DEBUG = INFO \n\nNCCL_SOCKET_IFNAME==eth0\nwrong\n");
        conf.add("two", "NCCL_DEBUG=WARN\nNCCL_MAX_CTAS=4");
        assert_eq!(conf.values["NCCL_DEBUG"], "INFO");
        assert_eq!(conf.values["NCCL_SOCKET_IFNAME"], "=eth0");
        assert_eq!(conf.values["NCCL_MAX_CTAS"], "4");
        assert_eq!(conf.complaints.len(), 1);
        assert!(conf.complaints[0].contains("line 5 of one"), "{:?}", conf.complaints);
    }

    #[test]
    fn a_file_that_was_named_must_be_there() {
        let mut conf = Conf::default();
        conf.read(Path::new("/not/there.conf"), false);
        assert!(conf.complaints.is_empty());
        conf.read(Path::new("/not/there.conf"), true);
        assert!(conf.complaints[0].starts_with("/not/there.conf is not read"));
    }
}

//! Configuration files for variables that the environment does not set: the file of `NCCL_CONF_FILE`, else
//! `~/.nccl.conf`, and then `/etc/nccl.conf`. A line is `NAME=VALUE`; `#` begins a comment.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The values in the files, and their errors, one sentence each.
#[derive(Debug, Default)]
pub(crate) struct Conf {
    pub(crate) values: BTreeMap<String, String>,
    pub(crate) complaints: Vec<String>,
}

/// The files of this process, read once.
pub(crate) fn conf() -> &'static Conf {
    static CONF: OnceLock<Conf> = OnceLock::new();
    let path = |name: &str| std::env::var_os(name).filter(|it| !it.is_empty()).map(PathBuf::from);
    CONF.get_or_init(|| Conf::of(path("NCCL_CONF_FILE"), path("HOME"), Path::new("/etc/nccl.conf")))
}

impl Conf {
    /// Reads the file `named`, else that of the user in `home`, and then that of the system.
    fn of(named: Option<PathBuf>, home: Option<PathBuf>, system: &Path) -> Self {
        let mut conf = Self::default();
        match (named, home) {
            (Some(name), _) => conf.read(&name, true),
            (None, Some(home)) => conf.read(&home.join(".nccl.conf"), false),
            (None, None) => {}
        }
        conf.read(system, false);
        conf
    }

    /// Adds the values of a file; earlier files take precedence.
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
    fn the_system_s_file_counts_after_the_user_s_or_the_named_one() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let file = folder.path().join(name);
            std::fs::write(&file, text).unwrap();
            file
        };
        let system = write("system", "NCCL_DEBUG=WARN\nNCCL_HOSTID=here\n");
        let named = write("named", "NCCL_DEBUG=TRACE\n");
        write(".nccl.conf", "NCCL_DEBUG=INFO\n");
        let home = || Some(folder.path().to_owned());
        for (named, home, debug) in [
            (None, home(), "INFO"),
            (Some(named), home(), "TRACE"),
            (None, None, "WARN"),
            (None, Some("/not/there".into()), "WARN"),
        ] {
            let conf = Conf::of(named, home, &system);
            assert_eq!(conf.values["NCCL_DEBUG"], debug);
            assert_eq!(conf.values["NCCL_HOSTID"], "here");
            assert!(conf.complaints.is_empty());
        }
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

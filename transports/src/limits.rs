//! Errors of a process that has reached its limits.

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::io;

/// Names the limit that caused `error`, and the command that raises it; returns any other error
/// unchanged.
///
/// ```
/// use maypole_transports::limits::with_limit;
/// let no_descriptor = std::io::Error::from_raw_os_error(24);
/// assert!(with_limit(no_descriptor).to_string().contains("`ulimit -n`"));
/// let other = std::io::Error::from_raw_os_error(1);
/// assert_eq!(with_limit(other).raw_os_error(), Some(1));
/// ```
pub fn with_limit(error: io::Error) -> io::Error {
    let why = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::MFILE) => no_descriptor(),
        Some(Errno::NFILE) => {
            "the system has no file descriptor left; raise the sysctl fs.file-max".to_owned()
        }
        Some(Errno::NOMEM) => match getrlimit(Resource::As).current {
            Some(limit) => format!(
                "this process may use {limit} bytes of addresses, and has no more for it; raise that \
                 with `ulimit -v`"
            ),
            None => return error,
        },
        _ => return error,
    };
    io::Error::new(error.kind(), why)
}

/// True if the process or the system has no file descriptor left.
pub fn is_out_of_descriptors(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(code, Some(Errno::MFILE | Errno::NFILE))
}

/// The error of a process that has no free descriptor for a received one.
pub(crate) fn no_descriptor() -> String {
    let most = match getrlimit(Resource::Nofile).current {
        Some(limit) => format!(" of {limit}"),
        None => String::new(),
    };
    format!("no file descriptor{most} is left; raise the limit with `ulimit -n`")
}

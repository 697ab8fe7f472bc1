//! Whether this machine lets so many ranks start. A job that is too large is refused before its
//! first rank starts, with the limit and the arithmetic.

use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};
use maypole_transports::sockets;

use crate::doctor::kernel_text::{self, soft_limit};

/// Threads of the launcher: the main one, and those that receive signals, ends and output.
const LAUNCHER_THREADS: u64 = 4;
/// Descriptors of the launcher for everything but ranks.
const LAUNCHER_DESCRIPTORS: u64 = 64;
/// Descriptors of the launcher for a rank: one signals the rank's end, and two are the pipes of its
/// output.
const DESCRIPTORS: u64 = 1;
const PIPES: u64 = 2;

/// A limit on how many processes and threads there may be.
#[derive(Debug, PartialEq)]
struct ProcessLimit {
    /// As the user typed it.
    name: String,
    limit: u64,
    in_use: u64,
}

/// Checks that `world` ranks can start. Raises the launcher's limit of descriptors if it needs more
/// than the soft limit allows, and returns that limit then: ranks keep it.
///
/// # Errors
///
/// The limit that forbids it, with the arithmetic.
pub(super) fn check(world: usize, tagged: bool) -> Result<Option<u64>> {
    let world = world as u64;
    for limit in process_limits() {
        limit.check(world)?;
    }
    let soft = sockets::descriptor_limit().unwrap_or(u64::MAX);
    let each = DESCRIPTORS + if tagged { PIPES } else { 0 };
    let need = world.saturating_mul(each).saturating_add(LAUNCHER_DESCRIPTORS);
    if need <= soft {
        return Ok(None);
    }
    let hard = sockets::raise_descriptor_limit().unwrap_or(u64::MAX);
    ensure!(
        need <= hard,
        "-n {world} needs {need} descriptors in the launcher ({each} for each rank, and \
         {LAUNCHER_DESCRIPTORS}), but the hard limit is {hard}: raise it with `ulimit -Hn`, or \
         start fewer ranks"
    );
    Ok(Some(soft))
}

impl ProcessLimit {
    fn check(&self, world: u64) -> Result<()> {
        let Self { name, limit, in_use } = self;
        let free = limit.saturating_sub(*in_use).saturating_sub(LAUNCHER_THREADS);
        ensure!(
            world <= free,
            "-n {world} needs {world} processes, but {name} allows {limit} processes and threads: \
             {in_use} are in use and the launcher needs {LAUNCHER_THREADS}, so at most {free} \
             ranks can start; start fewer ranks, or raise that limit"
        );
        Ok(())
    }
}

/// All limits that this process can read.
fn process_limits() -> Vec<ProcessLimit> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let running = threads_running(&read("/proc/loadavg")).unwrap_or(0);
    let mut limits = Vec::new();
    for (name, path) in [
        ("kernel.pid_max", "/proc/sys/kernel/pid_max"),
        ("kernel.threads-max", "/proc/sys/kernel/threads-max"),
    ] {
        if let Some(limit) = number(&read(path)) {
            limits.push(ProcessLimit { name: name.to_owned(), limit, in_use: running });
        }
    }
    if let Some(Some(limit)) = soft_limit(&read("/proc/self/limits"), "Max processes")
        && !is_exempt(&read("/proc/self/status"), &read("/proc/self/uid_map"))
    {
        let in_use = threads_of_user(sockets::effective_user());
        limits.push(ProcessLimit { name: "`ulimit -u`".to_owned(), limit, in_use });
    }
    let groups = group_folders(&read("/proc/self/cgroup"));
    limits.extend(groups.iter().filter_map(|folder| group_limit(folder, read)));
    limits
}

/// The threads of all processes, in `/proc/loadavg`: `0.20 0.18 0.12 1/80 11206`.
fn threads_running(loadavg: &str) -> Option<u64> {
    let (_, threads) = loadavg.split_whitespace().nth(3)?.split_once('/')?;
    threads.parse().ok()
}

/// True for a process that the limit of its user does not bind: root, outside of any user
/// namespace, and processes that may exceed limits.
fn is_exempt(status: &str, uid_map: &str) -> bool {
    let is_initial = uid_map.split_whitespace().eq(["0", "0", "4294967295"]);
    let held = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let held = held.and_then(|held| u64::from_str_radix(held.trim(), 16).ok()).unwrap_or(0);
    const SYS_ADMIN: u64 = 1 << 21;
    const SYS_RESOURCE: u64 = 1 << 24;
    is_initial && held & (SYS_ADMIN | SYS_RESOURCE) != 0
}

/// The threads of all processes of a user, as far as this process may see them.
fn threads_of_user(user: u32) -> u64 {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.filter(|entry| {
        entry.file_name().as_encoded_bytes().first().is_some_and(u8::is_ascii_digit)
    });
    let status = |entry: fs::DirEntry| fs::read_to_string(entry.path().join("status")).ok();
    processes.filter_map(|entry| threads_of(&status(entry)?, user)).sum()
}

/// The threads of a process, by its `/proc/PID/status`, if it is the user's.
fn threads_of(status: &str, user: u32) -> Option<u64> {
    let field = |name: &str| kernel_text::number(status, name);
    (field("Uid:")? == u64::from(user)).then(|| field("Threads:"))?
}

/// The folders of this process's control group and of all that enclose it, by `/proc/self/cgroup`:
/// lines like `0::/a/b` (version 2) or `7:pids:/a/b` (version 1).
fn group_folders(groups: &str) -> Vec<String> {
    let mut folders = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let root = match (fields.next(), fields.next()) {
            (Some("0"), Some("")) => "/sys/fs/cgroup",
            (_, Some(controllers)) if controllers.split(',').any(|it| it == "pids") => {
                "/sys/fs/cgroup/pids"
            }
            _ => continue,
        };
        let path = Path::new(fields.next().unwrap_or("/"));
        let folder = |group: &Path| format!("{root}{}", group.display());
        folders.extend(path.ancestors().map(folder));
    }
    folders
}

/// The limit of a control group; `None` if it has none.
fn group_limit(folder: &str, read: impl Fn(&str) -> String) -> Option<ProcessLimit> {
    let folder = folder.trim_end_matches('/');
    let limit = number(&read(&format!("{folder}/pids.max")))?;
    let in_use = number(&read(&format!("{folder}/pids.current"))).unwrap_or(0);
    Some(ProcessLimit { name: format!("{folder}/pids.max"), limit, in_use })
}

/// The number in `text`; `None` for words such as `max` and `unlimited`.
fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_has_the_arithmetic() {
        let limit = ProcessLimit { name: "kernel.pid_max".to_owned(), limit: 100, in_use: 16 };
        limit.check(80).unwrap();
        let text = limit.check(81).unwrap_err().to_string();
        for part in ["-n 81 ", "kernel.pid_max allows 100", "16 are in use", "at most 80 ranks"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        limit.check(u64::MAX).unwrap_err();
    }

    #[test]
    fn limits_are_read() {
        assert_eq!(threads_running("0.20 0.18 0.12 1/80 11206\n"), Some(80));
        assert_eq!(threads_running(""), None);
        let status = "Uid:\t1000\t1000\t1000\t1000\nThreads:\t7\n";
        assert_eq!(threads_of(status, 1000), Some(7));
        assert_eq!(threads_of(status, 0), None);
    }

    #[test]
    fn root_is_exempt_outside_of_user_namespaces() {
        let all = "CapEff:\t000001ffffffffff\n";
        let everybody = "         0          0 4294967295\n";
        assert!(is_exempt(all, everybody));
        assert!(!is_exempt(all, "         0       1000          1\n"));
        assert!(!is_exempt("CapEff:\t0000000000000000\n", everybody));
    }

    #[test]
    fn every_enclosing_group_counts() {
        assert_eq!(
            group_folders("0::/user/job\n"),
            ["/sys/fs/cgroup/user/job", "/sys/fs/cgroup/user", "/sys/fs/cgroup/"]
        );
        assert_eq!(group_folders("7:cpu,pids:/\n8:cpu:/a\n"), ["/sys/fs/cgroup/pids/"]);
        let read = |path: &str| match path {
            "/sys/fs/cgroup/pids.max" => "50\n".to_owned(),
            "/sys/fs/cgroup/pids.current" => "9\n".to_owned(),
            _ => "max\n".to_owned(),
        };
        let found = group_limit("/sys/fs/cgroup/", read).unwrap();
        assert_eq!((found.limit, found.in_use), (50, 9));
        assert_eq!(group_limit("/sys/fs/cgroup/user", read), None);
    }
}

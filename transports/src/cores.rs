//! How many cores this process may really use.
//!
//! A machine's own count says little: a launcher may have bound the process to a few cores, and a container may have
//! given it a share of the time of all of them. Whoever decides between spinning and sleeping needs the smaller figure.

use std::num::NonZero;
use std::path::{Component, Path, PathBuf};

/// Cores that the calling thread may run on, or as many as the quotas of its control groups (version 2 or 1, its own
/// and all enclosing ones) are worth, rounded up, if that is less. At least 1.
///
/// Reads a few files under `/proc` and `/sys`, so ask once, not per call. What cannot be read sets no limit. Where a
/// launcher binds every process to a core of its own, each is told 1 although none is in the others' way.
///
/// ```
/// assert!(maypole_transports::cores::available() >= 1);
/// ```
pub fn available() -> usize {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    quota(&groups, read).map_or(allowed(), |quota| quota.min(allowed())).max(1)
}

/// Cores in the calling thread's affinity mask.
fn allowed() -> usize {
    #[cfg(target_os = "linux")]
    if let Ok(mask) = rustix::thread::sched_getaffinity(None) {
        return mask.count() as usize;
    }
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// The least quota, in cores, that applies to the groups named in `groups` (as in `/proc/self/cgroup`).
fn quota(groups: &str, read: impl Fn(&Path) -> Option<String>) -> Option<usize> {
    let quota_of = |(mount, group): (PathBuf, &Path)| {
        let enclosing = group.ancestors().map(|group| mount.join(group)).collect::<Vec<_>>();
        enclosing.into_iter().filter_map(|group| quota_in(&group, &read)).min()
    };
    groups.lines().flat_map(hierarchy).filter_map(quota_of).min()
}

/// Where the hierarchy of a line `id:controllers:/path` may be mounted, and the group's path within it; nothing if that
/// hierarchy does not govern the time of cores.
fn hierarchy(line: &str) -> Vec<(PathBuf, &Path)> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { return Vec::new() };
    let mounts = match controllers {
        "" => vec!["/sys/fs/cgroup".into(), "/sys/fs/cgroup/unified".into()],
        _ if controllers.split(',').any(|name| name == "cpu") => {
            vec!["/sys/fs/cgroup/cpu".into(), format!("/sys/fs/cgroup/{controllers}")]
        }
        _ => Vec::new(),
    };
    mounts.into_iter().map(|mount| (mount.into(), within(path))).collect()
}

/// `path` relative to where its hierarchy is mounted. A group outside of what this process can see counts as the root.
fn within(path: &str) -> &Path {
    let path = Path::new(path);
    let hidden = path.components().any(|component| component == Component::ParentDir);
    if hidden { Path::new("") } else { path.strip_prefix("/").unwrap_or(path) }
}

/// The quota of one group, by the files of either version.
fn quota_in(group: &Path, read: impl Fn(&Path) -> Option<String>) -> Option<usize> {
    let file = |name: &str| read(&group.join(name));
    file("cpu.max").and_then(|text| version_2(&text)).or_else(|| {
        let (quota, period) = (file("cpu.cfs_quota_us")?, file("cpu.cfs_period_us")?);
        version_1(&quota, &period)
    })
}

/// Cores that `cpu.max` allows: "quota period", or "max period" for no limit.
fn version_2(text: &str) -> Option<usize> {
    let (quota, period) = text.trim().split_once(' ')?;
    version_1(quota, period)
}

/// Cores that a quota and a period in microseconds allow; a quota that is no natural number means no limit.
fn version_1(quota: &str, period: &str) -> Option<usize> {
    let quota: u64 = quota.trim().parse().ok()?;
    let period: NonZero<u64> = period.trim().parse().ok()?;
    usize::try_from(quota.div_ceil(period.get())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A machine whose files are `files`.
    fn on(files: &[(&str, &str)], groups: &str) -> Option<usize> {
        let read = |path: &Path| {
            let found = files.iter().find(|(name, _)| Path::new(name) == path);
            found.map(|(_, text)| text.to_string())
        };
        quota(groups, read)
    }

    #[test]
    fn a_quota_is_rounded_up() {
        assert_eq!(version_2("150000 100000\n"), Some(2));
        assert_eq!(version_2("200000 100000\n"), Some(2));
        assert_eq!(version_2("1000 100000\n"), Some(1));
        assert_eq!(version_1("400001\n", "100000\n"), Some(5));
    }

    #[test]
    fn no_limit_and_nonsense_are_no_quota() {
        for text in ["max 100000\n", "", "max", "100000", "100000 0", "x y", "-1 100000", "1 2 3"] {
            assert_eq!(version_2(text), None, "{text:?}");
        }
        assert_eq!(version_1("-1\n", "100000\n"), None);
    }

    #[test]
    fn the_group_of_version_2_and_all_around_it_count() {
        let files = [
            ("/sys/fs/cgroup/a/b/cpu.max", "max 100000"),
            ("/sys/fs/cgroup/a/cpu.max", "300000 100000"),
            ("/sys/fs/cgroup/cpu.max", "800000 100000"),
        ];
        assert_eq!(on(&files, "0::/a/b\n"), Some(3));
        assert_eq!(on(&files, "0::/\n"), Some(8));
        assert_eq!(on(&files[..1], "0::/a/b\n"), None);
    }

    #[test]
    fn version_1_is_found_under_either_name_of_its_mount() {
        for mount in ["cpu", "cpu,cpuacct"] {
            let quota = format!("/sys/fs/cgroup/{mount}/job/cpu.cfs_quota_us");
            let period = format!("/sys/fs/cgroup/{mount}/job/cpu.cfs_period_us");
            let files = [(quota.as_str(), "250000\n"), (period.as_str(), "100000\n")];
            assert_eq!(on(&files, "5:cpuset:/\n4:cpu,cpuacct:/job\n0::/\n"), Some(3));
        }
    }

    #[test]
    fn in_a_container_the_root_of_the_mount_is_its_own_group() {
        let files =
            [("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n"), ("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n")];
        assert_eq!(on(&files, "4:cpu:/docker/0123abcd\n"), Some(1));
        assert_eq!(on(&[("/sys/fs/cgroup/cpu.max", "200000 100000")], "0::/../other\n"), Some(2));
    }

    #[test]
    fn other_controllers_do_not_count() {
        let files = [("/sys/fs/cgroup/memory/cpu.max", "100000 100000")];
        assert_eq!(on(&files, "3:memory:/\n2:cpuacct:/\n1:cpuset:/\nno line\n::\n"), None);
    }

    #[test]
    fn this_machine_has_a_core_and_not_more_than_it_has() {
        assert!((1..=allowed()).contains(&available()));
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(groups in ".*", quota in ".*", period in ".*") {
            let _ = (on(&[], &groups), version_2(&quota), version_1(&quota, &period));
        }
    }
}

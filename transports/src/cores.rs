//! How many cores this process may use.
//!
//! The machine may have more cores than the process may use: a launcher may bind the process to a
//! few cores, or a container may give it a share of the time of all cores. The policy of waiting
//! needs the smaller number, to decide between spinning and sleeping.

use rustix::thread::{CpuSet, sched_getaffinity};
use std::collections::BTreeSet;
use std::io;
use std::num::NonZero;
use std::ops::RangeInclusive;
use std::path::{Component, Path, PathBuf};
use std::thread::available_parallelism;

/// The cores that one process may use. Ranks of one host exchange these values, because a launcher
/// may bind each rank to another core: then the ranks have many cores together, although each rank
/// may use only one.
///
/// ```
/// use maypole_transports::cores::UsableCores;
/// let mine = UsableCores::of_this_thread();
/// let again = UsableCores::from_bytes(&mine.to_bytes());
/// assert!(UsableCores::count([&mine, &again]) >= 1);
/// ```
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct UsableCores {
    /// The quota of the control groups in cores, rounded up.
    quota: Option<u32>,
    /// Numbers of the cores in the affinity mask.
    allowed: BTreeSet<u32>,
}

impl UsableCores {
    /// Reads the limits of the calling thread: its affinity mask, and the quotas of its control
    /// group and of all enclosing groups (version 2 or 1). Reads a few files under `/proc` and
    /// `/sys`, so call it once. A file that cannot be read sets no limit.
    pub fn of_this_thread() -> Self {
        let read = |path: &Path| std::fs::read_to_string(path).ok();
        let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
        let quota = quota(&groups, read).map(|quota| u32::try_from(quota).unwrap_or(u32::MAX));
        Self { quota, allowed: core_numbers() }
    }

    /// Returns the number of cores that processes of one host have together, at least 1. Each of
    /// `shares` is the value of one process.
    pub fn count<'a>(shares: impl IntoIterator<Item = &'a Self>) -> usize {
        let mut union = BTreeSet::<u32>::new();
        let mut quota = u32::MAX;
        for share in shares {
            union.extend(&share.allowed);
            quota = quota.min(share.quota.unwrap_or(u32::MAX));
        }
        union.len().min(quota as usize).max(1)
    }

    /// True if one of the cores with these numbers may be used.
    pub(crate) fn has_one_of(&self, cores: RangeInclusive<u32>) -> bool {
        self.allowed.range(cores).next().is_some()
    }

    /// Encodes the value for another process.
    pub fn to_bytes(&self) -> Vec<u8> {
        let quota = self.quota.unwrap_or(0);
        let words = std::iter::once(quota).chain(self.allowed.iter().copied());
        words.flat_map(u32::to_le_bytes).collect()
    }

    /// The reverse of [`to_bytes`](Self::to_bytes). Any bytes decode to some value.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut words = bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word));
        let quota = words.next().filter(|quota| *quota > 0);
        Self { quota, allowed: words.collect() }
    }
}

/// Numbers of the cores in the calling thread's affinity mask.
fn core_numbers() -> BTreeSet<u32> {
    match allowed() {
        Ok(cores) => cores.into_iter().map(|core| core as u32).collect(),
        Err(_) => (0..available_parallelism().map_or(1, NonZero::get) as u32).collect(),
    }
}

/// The least quota, in cores, that applies to the groups named in `groups` (as in
/// `/proc/self/cgroup`).
fn quota(groups: &str, read: impl Fn(&Path) -> Option<String>) -> Option<usize> {
    let quota_of = |(mount, group): (PathBuf, &Path)| {
        let enclosing = group.ancestors().map(|group| mount.join(group)).collect::<Vec<_>>();
        enclosing.into_iter().filter_map(|group| quota_in(&group, &read)).min()
    };
    groups.lines().flat_map(hierarchy).filter_map(quota_of).min()
}

/// Returns where the hierarchy of a line `id:controllers:/path` may be mounted, and the group's
/// path within it. Returns nothing if the hierarchy does not limit the time of cores.
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

/// Returns `path` relative to the mount point of its hierarchy. A group that this process cannot
/// see counts as the root.
fn within(path: &str) -> &Path {
    let path = Path::new(path);
    let hidden = path.components().any(|component| component == Component::ParentDir);
    if hidden { Path::new("") } else { path.strip_prefix("/").unwrap_or(path) }
}

/// The quota of one group, by the files of either version.
fn quota_in(group: &Path, read: impl Fn(&Path) -> Option<String>) -> Option<usize> {
    let file = |name: &str| read(&group.join(name));
    file("cpu.max").and_then(|text| version_2(&text)).or_else(|| {
        let quota = file("cpu.cfs_quota_us")?;
        let period = file("cpu.cfs_period_us")?;
        version_1(&quota, &period)
    })
}

/// Cores that `cpu.max` allows: "quota period", or "max period" for no limit.
fn version_2(text: &str) -> Option<usize> {
    let (quota, period) = text.trim().split_once(' ')?;
    version_1(quota, period)
}

/// Cores that a quota and a period in microseconds allow; a quota that is no natural number means
/// no limit.
fn version_1(quota: &str, period: &str) -> Option<usize> {
    let quota: u64 = quota.trim().parse().ok()?;
    let period: NonZero<u64> = period.trim().parse().ok()?;
    usize::try_from(quota.div_ceil(period.get())).ok()
}

/// Returns the cores that the calling thread may run on, ascending.
///
/// # Errors
/// Errors of the kernel, for instance if a sandbox forbids the call.
pub fn allowed() -> io::Result<Vec<usize>> {
    let allowed = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the quota on a machine whose files are `files`.
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
        let files = [
            ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n"),
            ("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
        ];
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
        assert!(
            (1..=core_numbers().len())
                .contains(&UsableCores::count([&UsableCores::of_this_thread()]))
        );
    }

    #[test]
    fn bound_processes_have_their_cores_together_and_no_more_than_their_quota() {
        let bound = |core, quota| UsableCores { quota, allowed: BTreeSet::from([core]) };
        assert_eq!(UsableCores::count([&bound(0, None), &bound(5, None), &bound(5, None)]), 2);
        assert_eq!(UsableCores::count([&bound(0, Some(1)), &bound(5, None)]), 1);
        assert_eq!(UsableCores::count([]), 1);
    }

    proptest! {
        #[test]
        fn bytes_decode_to_what_was_encoded(
            quota in prop::option::of(1..u32::MAX),
            allowed: BTreeSet<u32>,
            bytes: Vec<u8>,
        ) {
            let cores = UsableCores { quota, allowed };
            prop_assert_eq!(UsableCores::from_bytes(&cores.to_bytes()), cores);
            let _ = UsableCores::from_bytes(&bytes);
        }

        #[test]
        fn any_text_is_read_without_a_panic(groups in ".*", quota in ".*", period in ".*") {
            let _ = on(&[], &groups);
            let _ = version_2(&quota);
            let _ = version_1(&quota, &period);
        }
    }
}

//! Finds the processes that ranks have left outside their process groups, for example with
//! `setsid`. The kernel makes them children of the launcher when their parents end.

use std::collections::BTreeSet;
use std::fs;

use crate::process;

/// The adopted children of the launcher.
pub(super) struct Orphans {
    /// Children that the launcher had before it started ranks: a shell that replaces itself by the
    /// launcher leaves its background jobs to it. They are no part of the job.
    spared: BTreeSet<u32>,
}

impl Orphans {
    /// Adopts orphans from now on. In a sandbox that forbids this, none will be found.
    pub(super) fn adopt() -> Self {
        let _ = process::adopt_orphans();
        Self { spared: children().into_iter().collect() }
    }

    /// Collects the orphans that have ended, so that no table of the kernel fills with them, and
    /// returns those that live. `is_rank` is true for ranks, which are collected elsewhere.
    pub(super) fn living(&self, is_rank: impl Fn(u32) -> bool) -> Vec<u32> {
        let orphans = children().into_iter();
        let orphans = orphans.filter(|child| !self.spared.contains(child) && !is_rank(*child));
        orphans.filter(|child| !process::collect(*child)).collect()
    }
}

/// The children of this process, those among them that have ended and were not collected, too.
fn children() -> Vec<u32> {
    listed_children().unwrap_or_else(children_by_parent)
}

/// The children that the kernel lists for each thread of this process; `None` for a kernel that
/// does not.
fn listed_children() -> Option<Vec<u32>> {
    let mut found = Vec::new();
    for task in fs::read_dir("/proc/self/task").ok()?.flatten() {
        match fs::read_to_string(task.path().join("children")) {
            Ok(list) => found.extend(numbers(&list)),
            // The thread has ended since the folder was read.
            Err(_) if !task.path().exists() => {}
            Err(_) => return None,
        }
    }
    Some(found)
}

fn numbers(list: &str) -> impl Iterator<Item = u32> {
    list.split_whitespace().filter_map(|word| word.parse().ok())
}

/// The children by the parent that every process names.
fn children_by_parent() -> Vec<u32> {
    let me = std::process::id();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    processes
        .filter(|process| {
            let stat = fs::read_to_string(format!("/proc/{process}/stat"));
            stat.is_ok_and(|stat| parent(&stat) == Some(me))
        })
        .collect()
}

/// The parent in `/proc/PID/stat`: `7 (name) S 1 ...`. A name may have spaces and brackets in it.
fn parent(stat: &str) -> Option<u32> {
    let (_, after) = stat.rsplit_once(')')?;
    after.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn both_ways_find_the_same_children() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let id = child.id();
        assert!(children_by_parent().contains(&id));
        if let Some(listed) = listed_children() {
            assert!(listed.contains(&id));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!children().contains(&id));
    }

    #[test]
    fn a_name_does_not_hide_the_parent() {
        assert_eq!(parent("7 (a) b) S 42 7 7 0\n"), Some(42));
        assert_eq!(parent("nonsense"), None);
    }
}

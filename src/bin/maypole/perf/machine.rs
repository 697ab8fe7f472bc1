//! What the figures were measured on.

use super::seats::Seats;
use std::fmt::Write;

/// Lines that say what this host is, and who the ranks are.
pub(super) fn describe(seats: &Seats) -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let (name, kernel) = (read("/proc/sys/kernel/hostname"), read("/proc/sys/kernel/osrelease"));
    let cpus = read("/proc/cpuinfo");
    let cpu = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ")).map(|(_, name)| name);
    let (version, cores) = (env!("CARGO_PKG_VERSION"), count(seats.cores[0], "core"));
    let (ranks, hosts) = (count(seats.hosts.len(), "rank"), count(seats.cores.len(), "host"));
    let build = if cfg!(debug_assertions) { "a build with debug assertions: slow" } else { std::env::consts::ARCH };
    let (name, cpu, kernel) = (name.trim(), cpu.unwrap_or("unknown processor"), kernel.trim());
    let mut text = format!(
        "# maypole {version} perf: {ranks} on {hosts}\n# {name}: {cores} to use, {cpu}, Linux {kernel}, {build}"
    );
    for (rank, ((host, pid), bound)) in seats.hosts.iter().zip(&seats.pids).zip(&seats.bound).enumerate() {
        let core = bound.map_or_else(|| "not bound".to_owned(), |core| format!("core {core}"));
        let _ = write!(text, "\n#   rank {rank:>3}: host {host}, pid {pid}, {core}");
    }
    if !seats.are_enough() {
        text += "\n# There are more ranks than cores: they take turns, and times are of that.";
    }
    text
}

/// `1 rank`, `2 ranks`.
fn count(number: usize, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_and_crowds_are_told() {
        let seats = Seats { hosts: vec![0, 0], cores: vec![1], pids: vec![10, 11], bound: vec![Some(3), None] };
        let text = describe(&seats);
        assert!(text.contains("2 ranks on 1 host\n") && text.contains("rank   0: host 0, pid 10, core 3"), "{text}");
        assert!(text.contains("pid 11, not bound") && text.contains("more ranks than cores"), "{text}");
    }
}

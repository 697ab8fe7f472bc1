//! What the figures were measured on.

use super::numbers::hash;
use std::fmt::Write;

/// Where a rank runs, as it tells rank 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seat {
    pub(super) pid: u64,
    /// The core it is bound to, or [`Seat::NOWHERE`].
    pub(super) core: u64,
}

impl Seat {
    pub(super) const NOWHERE: u64 = u64::MAX;
}

/// A number for this start of this host: its processes have it in common, and nobody else.
pub(super) fn mark() -> u64 {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    boot.bytes().fold(0, |mark, byte| hash(mark ^ u64::from(byte)))
}

/// Lines that say what this host is, and who the ranks are.
pub(super) fn describe(hosts: &[usize], seats: &[Seat], cores: usize) -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let (name, kernel) = (read("/proc/sys/kernel/hostname"), read("/proc/sys/kernel/osrelease"));
    let cpus = read("/proc/cpuinfo");
    let cpu = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ")).map(|(_, name)| name);
    let (world, many) = (hosts.len(), hosts.iter().max().map_or(1, |last| last + 1));
    let mut text = String::new();
    let _ = writeln!(
        text,
        "# maypole {} perf: {world} rank{} on {many} host{}",
        env!("CARGO_PKG_VERSION"),
        plural(world),
        plural(many)
    );
    let _ = writeln!(
        text,
        "# {}: {cores} core{} to use, {}, Linux {}, {}",
        name.trim(),
        plural(cores),
        cpu.unwrap_or("unknown processor"),
        kernel.trim(),
        if cfg!(debug_assertions) { "a build with debug assertions: slow" } else { std::env::consts::ARCH },
    );
    for (rank, (host, seat)) in hosts.iter().zip(seats).enumerate() {
        let core = if seat.core == Seat::NOWHERE { "not bound".to_owned() } else { format!("core {}", seat.core) };
        let _ = writeln!(text, "#   rank {rank:>3}: host {host}, pid {}, {core}", seat.pid);
    }
    let crowded = hosts.iter().filter(|host| **host == hosts[0]).count();
    if crowded > cores {
        let _ =
            writeln!(text, "# {crowded} ranks share {cores} core{}: times are of ranks that take turns", plural(cores));
    }
    text.truncate(text.trim_end().len());
    text
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_and_crowds_are_told() {
        let seats = [Seat { pid: 10, core: 3 }, Seat { pid: 11, core: Seat::NOWHERE }];
        let text = describe(&[0, 0], &seats, 1);
        assert!(text.contains("2 ranks on 1 host\n") && text.contains("rank   0: host 0, pid 10, core 3"), "{text}");
        assert!(text.contains("pid 11, not bound") && text.contains("2 ranks share 1 core:"), "{text}");
    }
}

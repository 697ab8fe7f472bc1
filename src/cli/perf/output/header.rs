//! The conditions of a run's figures: the machine, the ranks, and the command. Every output begins
//! with it or holds it in every row.

use crate::doctor::kernel_text::number;
use crate::output::one_line;
use crate::perf::mapping::RankMapping;
use crate::perf::output::date;
use maypole::tuner::CostTable;
use maypole::world::launch::VARIABLES;
use serde::Serialize;
use std::fs::read_to_string;
use std::path::Path;

/// The facts of a run. Those of a machine are of the machine of rank 0.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct RunHeader {
    pub(crate) version: &'static str,
    /// The commit that the program was built from, where the build knew it.
    pub(crate) commit: Option<&'static str>,
    pub(crate) build: &'static str,
    /// When the run began, in UTC.
    pub(crate) date: String,
    pub(crate) command: String,
    /// The set variables of maypole that influence the measurement.
    pub(crate) variables: String,
    /// Where the prices of the tuner come from.
    pub(crate) costs: &'static str,
    pub(crate) host: String,
    pub(crate) processor: String,
    /// Cores that the ranks may use.
    pub(crate) cores: usize,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) kernel: String,
    /// The frequency governor of the cores; `None` if the kernel does not name one, as in most
    /// virtual machines.
    pub(crate) governor: Option<String>,
    /// The mean number of runnable processes in the minute before the run.
    pub(crate) load: Option<f64>,
    /// True if ranks take turns on a core.
    pub(crate) ranks_share_cores: bool,
    pub(crate) ranks: Vec<HeaderRank>,
}

/// Where a rank ran.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct HeaderRank {
    pub(crate) host: usize,
    pub(crate) pid: u32,
    /// The core that the rank is bound to.
    pub(crate) core: Option<usize>,
}

impl RunHeader {
    /// Reads the facts, in a few milliseconds.
    pub(crate) fn read(mapping: &RankMapping, costs: &CostTable) -> Self {
        let places = mapping.hosts.numbers().iter().zip(&mapping.pids).zip(&mapping.bound);
        Self {
            version: env!("CARGO_PKG_VERSION"),
            commit: option_env!("BUILT_COMMIT"),
            build: build(),
            date: date::now(),
            command: one_line(&std::env::args().collect::<Vec<_>>().join(" ")).into_owned(),
            variables: variables(|name| std::env::var(name).ok()),
            costs: if *costs == CostTable::BUILT_IN { "built in" } else { "tuned" },
            host: read("/proc/sys/kernel/hostname"),
            processor: processor(),
            cores: mapping.cores[0],
            memory_bytes: memory(),
            kernel: format!("Linux {}", read("/proc/sys/kernel/osrelease")),
            governor: governor(mapping),
            load: read("/proc/loadavg").split(' ').next().and_then(|load| load.parse().ok()),
            ranks_share_cores: !mapping.has_core_for_each(),
            ranks: places
                .map(|((host, pid), core)| HeaderRank { host: *host, pid: *pid, core: *core })
                .collect(),
        }
    }

    /// The version, and the commit if the build has it.
    pub(crate) fn program(&self) -> String {
        let commit = self.commit.map_or_else(String::new, |commit| format!(" ({commit})"));
        format!("{}{commit}, {}", self.version, self.build)
    }

    /// The governor, or a remark that it is missing.
    pub(crate) fn governor(&self) -> &str {
        self.governor.as_deref().unwrap_or("not told by the kernel")
    }
}

/// The set variables of maypole that influence the measurement.
fn variables(value: impl Fn(&str) -> Option<String>) -> String {
    // Left out: the rank's identity, which differs between ranks, secrets, and a launcher's own
    // variables.
    let identity = ["_RANK", "_WORLD", "_ADDRESS", "_PORT", "_PORTS", "_SOCKET"];
    let matters =
        |name: &str| !name.contains("_JOB") && !identity.iter().any(|end| name.ends_with(end));
    let set = VARIABLES.iter().filter(|variable| matters(variable.name));
    let set =
        set.filter_map(|variable| Some(format!("{}={}", variable.name, value(variable.name)?)));
    let set = set.collect::<Vec<_>>().join(" ");
    if set.is_empty() { "none".to_owned() } else { set }
}

fn read(path: impl AsRef<Path>) -> String {
    read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn processor() -> String {
    let cpus = read("/proc/cpuinfo");
    let name = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    name.map_or("unknown processor", |(_, name)| name).to_owned()
}

fn memory() -> Option<u64> {
    number(&read("/proc/meminfo"), "MemTotal:")?.checked_mul(1024)
}

/// The governor of rank 0's core.
fn governor(mapping: &RankMapping) -> Option<String> {
    let core = mapping.bound.first().copied().flatten().unwrap_or(0);
    let path = format!("/sys/devices/system/cpu/cpu{core}/cpufreq/scaling_governor");
    Some(read(path)).filter(|name| !name.is_empty())
}

fn build() -> &'static str {
    if cfg!(debug_assertions) {
        "a build with debug assertions: slow"
    } else {
        std::env::consts::ARCH
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_shown() {
        assert_eq!(variables(|_| None), "none");
        let told = variables(|name| Some(format!("<{name}>")));
        assert!(
            told.contains("MAYPOLE_TRANSPORT=<MAYPOLE_TRANSPORT>") && !told.contains("JOB_KEY"),
            "{told}"
        );
        assert!(!told.contains("STATUS_SOCKET"), "{told}");
        assert!(!told.contains("MAYPOLE_RANK") && !told.contains("MAYPOLE_ADDRESS"), "{told}");
    }
}

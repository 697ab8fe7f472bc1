//! Describes the machine, the ranks and the settings that figures were measured with.

use crate::perf::encryption;
use crate::perf::mapping::RankMapping;
use maypole::tuner::CostTable;
use maypole::world::launch::VARIABLES;
use maypole_transports::secure::EncryptionRate;
use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

/// The lines above the table: this machine, and the host, process and core of each rank.
pub(crate) fn describe(mapping: &RankMapping) -> String {
    let name = read("/proc/sys/kernel/hostname");
    let kernel = read("/proc/sys/kernel/osrelease");
    let cpu = processor();
    let version = env!("CARGO_PKG_VERSION");
    let cores = count(mapping.cores[0], "core");
    let ranks = count(mapping.machines.len(), "rank");
    let hosts = count(mapping.hosts.count(), "host");
    let build = build();
    let mut text = format!(
        "# maypole {version} perf: {ranks} on {hosts}\n\
         # {name}: {cores} to use, {cpu}, Linux {kernel}, {build}"
    );
    for (rank, ((host, pid), bound)) in
        mapping.hosts.numbers().iter().zip(&mapping.pids).zip(&mapping.bound).enumerate()
    {
        let core = bound.map_or_else(|| "not bound".to_owned(), |core| format!("core {core}"));
        let _ = write!(text, "\n#   rank {rank:>3}: host {host}, pid {pid}, {core}");
    }
    if mapping.hosts.count() > mapping.cores.len() {
        text +=
            "\n# MAYPOLE_HOST tells ranks of one machine apart: these hosts share clock and cores.";
    }
    if !mapping.has_core_for_each() {
        text +=
            "\n# There are more ranks than cores: ranks take turns, and times include the waiting.";
    }
    text
}

/// The facts of a report: the machine, the ranks, and the command that measures again.
pub(crate) fn facts(
    mapping: &RankMapping,
    costs: &CostTable,
    encryption: Option<EncryptionRate>,
) -> Vec<(&'static str, String)> {
    let ranks = mapping.machines.len();
    let crowd = if mapping.has_core_for_each() {
        "a core for each rank"
    } else {
        "more ranks than cores: ranks take turns"
    };
    let built_in = *costs == CostTable::BUILT_IN;
    vec![
        (
            "measured",
            date(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())),
        ),
        (
            "host",
            format!(
                "{}, {}, {}",
                read("/proc/sys/kernel/hostname"),
                processor(),
                count(mapping.cores[0], "core")
            ),
        ),
        ("system", format!("Linux {}", read("/proc/sys/kernel/osrelease"))),
        (
            "load",
            format!("{} at the beginning (processes that want to run, mean of one minute)", load()),
        ),
        ("ranks", format!("{ranks} on {}; {crowd}", count(mapping.hosts.count(), "host"))),
        ("command", std::env::args().collect::<Vec<_>>().join(" ")),
        ("variables", variables(|name| std::env::var(name).ok())),
        (
            "costs",
            if built_in {
                "built in; `maypole tune` measures those of this machine"
            } else {
                "tuned"
            }
            .to_owned(),
        ),
        ("encryption", encryption::describe(encryption).trim_start_matches("# ").to_owned()),
        ("maypole", format!("{}, {}", env!("CARGO_PKG_VERSION"), build())),
    ]
}

/// The variables of maypole that are set and change what is measured.
fn variables(value: impl Fn(&str) -> Option<String>) -> String {
    // Left out: the rank's identity, which differs between ranks, secrets, and what a launcher sets
    // for itself.
    let identity = ["_RANK", "_WORLD", "_ADDRESS", "_PORT", "_PORTS", "_SOCKET", "_NEWCOMER"];
    let matters =
        |name: &str| !name.contains("_JOB") && !identity.iter().any(|end| name.ends_with(end));
    let set = VARIABLES.iter().filter(|variable| matters(variable.name));
    let set =
        set.filter_map(|variable| Some(format!("{}={}", variable.name, value(variable.name)?)));
    let set = set.collect::<Vec<_>>().join(" ");
    if set.is_empty() { "none".to_owned() } else { set }
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// The load average of one minute. Where it exceeds the number of cores, other processes slow the
/// measurement down.
fn load() -> String {
    read("/proc/loadavg").split(' ').next().unwrap_or_default().to_owned()
}

fn processor() -> String {
    let cpus = read("/proc/cpuinfo");
    let name = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    name.map_or("unknown processor", |(_, name)| name).to_owned()
}

fn build() -> &'static str {
    if cfg!(debug_assertions) {
        "a build with debug assertions: slow"
    } else {
        std::env::consts::ARCH
    }
}

/// Formats seconds since 1970 as `2031-02-28 13:05 UTC`. Years begin in March, so that leap days
/// are their last ("chrono-Compatible Low-Level Date Algorithms", Hinnant 2013).
fn date(seconds: u64) -> String {
    let days = seconds / 86_400 + 719_468;
    let minutes = seconds / 60 % 1440;
    let era = days / 146_097;
    let day = days % 146_097;
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!(
        "{}-{month:02}-{day:02} {:02}:{:02} UTC",
        era * 400 + year + later,
        minutes / 60,
        minutes % 60
    )
}

/// `1 rank`, `2 ranks`.
fn count(number: usize, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use maypole::schedule::hosts::Hosts;

    #[test]
    fn the_ranks_and_missing_cores_are_described() {
        let mapping = RankMapping {
            hosts: Hosts::new(&[0, 0]),
            machines: vec![0, 0],
            cores: vec![1],
            pids: vec![10, 11],
            bound: vec![Some(3), None],
        };
        let text = describe(&mapping);
        assert!(
            text.contains("2 ranks on 1 host\n")
                && text.contains("rank   0: host 0, pid 10, core 3"),
            "{text}"
        );
        assert!(
            text.contains("pid 11, not bound") && text.contains("more ranks than cores"),
            "{text}"
        );
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        let dates = [
            (0, "1970-01-01 00:00"),
            (951_782_399, "2000-02-28 23:59"),
            (1_709_210_096, "2024-02-29 12:34"),
        ];
        for (seconds, expected) in dates {
            assert_eq!(date(seconds), format!("{expected} UTC"));
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        assert_eq!(variables(|_| None), "none");
        let told = variables(|name| Some(format!("<{name}>")));
        assert!(
            told.contains("MAYPOLE_TRANSPORT=<MAYPOLE_TRANSPORT>") && !told.contains("JOB_KEY"),
            "{told}"
        );
        assert!(!told.contains("STATUS_SOCKET") && !told.contains("NEWCOMER"), "{told}");
        assert!(!told.contains("MAYPOLE_RANK") && !told.contains("MAYPOLE_ADDRESS"), "{told}");
    }
}

//! Describes the machine, the ranks and the settings that figures were measured with.

use crate::perf::mapping::RankMapping;
use crate::perf::output::header::{HeaderRank, RunHeader};
use crate::sizes;
use std::fmt::Write;

/// The lines above the table: this machine, and the host, process and core of each rank.
pub(crate) fn describe(header: &RunHeader, mapping: &RankMapping) -> String {
    let RunHeader { version, host, processor, kernel, date, command, .. } = header;
    let memory = header.memory_bytes.map(|bytes| sizes::rounded(bytes.into()));
    let load = header.load.map(|load| format!("{load:.2}"));
    let [memory, load] = [memory, load].map(|it| it.unwrap_or_else(|| "unknown".to_owned()));
    let mut text = format!(
        "# maypole {version} perf: {} on {}\n\
         # {host}: {} to use, {processor}, {kernel}\n\
         # memory {memory}, clock governor {}, load {load}\n\
         # {date}; maypole {}\n# {command}",
        count(mapping.hosts.world(), "rank"),
        count(mapping.hosts.count(), "host"),
        count(header.cores, "core"),
        header.governor(),
        header.program()
    );
    for (rank, place) in header.ranks.iter().enumerate() {
        let core = place.core.map_or_else(|| "not bound".to_owned(), |core| format!("core {core}"));
        let HeaderRank { host, pid, .. } = place;
        let _ = write!(text, "\n#   rank {rank:>3}: host {host}, pid {pid}, {core}");
    }
    if mapping.hosts.count() > mapping.machines.count() {
        text +=
            "\n# MAYPOLE_HOST tells ranks of one machine apart: these hosts share clock and cores.";
    }
    if header.ranks_share_cores {
        text +=
            "\n# There are more ranks than cores: ranks take turns, and times include the waiting.";
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
    use maypole::schedule::hosts::Hosts;
    use std::collections::BTreeSet;

    #[test]
    fn the_ranks_and_missing_cores_are_described() {
        let mapping = RankMapping {
            hosts: Hosts::new(&[0, 0]),
            machines: Hosts::new(&[0, 0]),
            cores: vec![1],
            pids: vec![10, 11],
            bound: vec![Some(3), None],
            is_first_of_machine: true,
            bound_here: BTreeSet::new(),
        };
        let text =
            describe(&RunHeader::read(&mapping, &maypole::tuner::CostTable::BUILT_IN), &mapping);
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
}

//! All measurements of a run, in memory and, on request, in a file with a JSON object a line.

use crate::distance::CoreDistance;
use crate::programs::{PeerPoint, Times};
use crate::{Group, OURS, statistics};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// Times by group, round and library.
pub(crate) struct Record {
    times: BTreeMap<(String, usize, String), Times>,
    /// By group and round, in the order in which they were measured.
    states: Vec<(String, usize, CoreDistance)>,
    file: Option<File>,
}

/// The ratios of a point, one a round: the best peer's time divided by ours.
pub(crate) struct Ratios {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
    pub(crate) rounds: usize,
}

impl Record {
    /// Reads the measurements of an earlier run from `path`, and opens the file for more.
    ///
    /// # Errors
    ///
    /// If the file was measured with other settings, or cannot be read or written.
    pub(crate) fn open(path: Option<&Path>, settings: &str) -> Result<Self> {
        let mut record = Self { times: BTreeMap::new(), states: Vec::new(), file: None };
        let Some(path) = path else { return Ok(record) };
        let name = format!("--record {}", path.display());
        let text = if path.exists() { std::fs::read_to_string(path)? } else { String::new() };
        let mut lines = text.lines();
        let head = json!({ "settings": settings }).to_string();
        let is_new = match lines.next() {
            None => true,
            Some(first) => {
                ensure!(first == head, "{name}: measured with {first}, not {head}; name another");
                false
            }
        };
        for line in lines {
            record.read(line).with_context(|| format!("{name}: not a measurement: {line}"))?;
        }
        let mut file = File::options()
            .append(true)
            .create(true)
            .open(path)
            .with_context(|| format!("cannot write {name}"))?;
        if is_new {
            writeln!(file, "{head}")?;
        }
        record.file = Some(file);
        Ok(record)
    }

    fn read(&mut self, line: &str) -> Result<()> {
        let object: Value = serde_json::from_str(line)?;
        let text = |key: &str| Some(object.get(key)?.as_str()?.to_owned());
        let number = |key: &str| object.get(key)?.as_u64();
        let group = text("group").context("no group")?;
        if let (Some(before), Some(after)) = (object["before"].as_f64(), object["after"].as_f64()) {
            let round = number("round").context("no round")? as usize;
            self.states.push((group, round, CoreDistance { before, after }));
            return Ok(());
        }
        let library = text("library").context("no library")?;
        let round = number("round").context("no round")? as usize;
        let point =
            (text("collective").context("no collective")?, number("bytes").context("no bytes")?);
        let us = object["us"].as_f64().context("no time")?;
        self.times.entry((group, round, library)).or_default().insert(point, us);
        Ok(())
    }

    /// True if `library` has measured `collective` in this round.
    pub(crate) fn has(&self, group: &Group, round: usize, library: &str, collective: &str) -> bool {
        let key = (group.to_string(), round, library.to_owned());
        self.times.get(&key).is_some_and(|times| times.keys().any(|point| point.0 == collective))
    }

    /// Adds the times of one program.
    pub(crate) fn add(
        &mut self,
        group: &Group,
        round: usize,
        library: &str,
        times: &Times,
    ) -> Result<()> {
        if let Some(file) = &mut self.file {
            for ((collective, bytes), us) in times {
                let line = json!({
                    "group": group.to_string(), "round": round, "library": library,
                    "collective": collective, "bytes": bytes, "us": us,
                });
                writeln!(file, "{line}").context("cannot write --record")?;
            }
        }
        let key = (group.to_string(), round, library.to_owned());
        self.times.entry(key).or_default().extend(times.clone());
        Ok(())
    }

    /// Adds how long a barrier took before and after a round.
    pub(crate) fn add_state(
        &mut self,
        group: &Group,
        round: usize,
        state: CoreDistance,
    ) -> Result<()> {
        if let Some(file) = &mut self.file {
            let CoreDistance { before, after } = state;
            let line = json!({
                "group": group.to_string(), "round": round, "before": before, "after": after,
            });
            writeln!(file, "{line}").context("cannot write --record")?;
        }
        self.states.push((group.to_string(), round, state));
        Ok(())
    }

    /// A line for the states of the machine in the rounds of `group`.
    pub(crate) fn states(&self, group: &Group) -> String {
        let name = group.to_string();
        let of_group = self.states.iter().filter(|state| state.0 == name);
        let rounds: Vec<String> = of_group
            .map(|(_, round, state)| {
                let CoreDistance { before, after } = state;
                let changed = if state.changed() { ", changed" } else { "" };
                format!("{}: {before:.3}/{after:.3}{changed}", round + 1)
            })
            .collect();
        format!(
            "# {group}: microseconds of a barrier before/after each round: {}\n",
            rounds.join("  ")
        )
    }

    /// The points that maypole has measured in `group`.
    pub(crate) fn points(&self, group: &Group) -> BTreeSet<&PeerPoint> {
        let group = group.to_string();
        let ours = self.times.iter().filter(|(key, _)| key.0 == group && key.2 == OURS);
        ours.flat_map(|(_, times)| times.keys()).collect()
    }

    /// The median of a library's times at a point, in microseconds.
    pub(crate) fn time(&self, group: &Group, library: &str, point: &PeerPoint) -> Option<f64> {
        let group = group.to_string();
        let of_library = self.times.iter().filter(|(key, _)| key.0 == group && key.2 == library);
        statistics::median(of_library.filter_map(|(_, times)| times.get(point).copied()).collect())
    }

    /// The ratios of a point; `None` if no round has both a peer's time and ours.
    pub(crate) fn ratios(&self, group: &Group, point: &PeerPoint) -> Option<Ratios> {
        let name = group.to_string();
        let mut best: BTreeMap<usize, f64> = BTreeMap::new();
        let mut ours: BTreeMap<usize, f64> = BTreeMap::new();
        for ((_, round, library), times) in self.times.iter().filter(|(key, _)| key.0 == name) {
            let Some(us) = times.get(point) else { continue };
            let kept = if library == OURS { &mut ours } else { &mut best };
            let least = kept.entry(*round).or_insert(f64::INFINITY);
            *least = least.min(*us);
        }
        let ratio = |(round, us): (&usize, &f64)| Some(best.get(round)? / us);
        let ratios: Vec<f64> = ours.iter().filter_map(ratio).collect();
        Some(Ratios {
            rounds: ratios.len(),
            least: ratios.iter().copied().min_by(f64::total_cmp)?,
            most: ratios.iter().copied().max_by(f64::total_cmp)?,
            median: statistics::median(ratios)?,
        })
    }
}

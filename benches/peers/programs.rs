//! The programs that measure: `maypole perf`, and the peers'.

use crate::Group;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A collective, as `maypole perf` names it, and its requested total bytes.
pub(crate) type PeerPoint = (String, u64);
/// Microseconds at each point, in one round.
pub(crate) type Times = BTreeMap<PeerPoint, f64>;

/// The points that a program measures: every collective at every size.
pub(crate) struct Selection {
    pub(crate) collectives: Vec<String>,
    pub(crate) sizes: Vec<u64>,
}

/// How the programs are called.
pub(crate) struct Programs {
    pub(crate) peers: PathBuf,
    pub(crate) maypole: PathBuf,
    pub(crate) algorithm: String,
    /// Milliseconds of sampling at each point.
    pub(crate) budget: u64,
    /// Offset in bytes from a page at which every buffer begins.
    pub(crate) offset: usize,
    /// Maypole's buffers are registered memory in the groups over shm.
    pub(crate) registered: bool,
}

impl Programs {
    /// Microseconds of a barrier between two ranks.
    pub(crate) fn barrier(&self) -> Result<f64> {
        let mut command = Command::new(&self.maypole);
        command.args(["perf", "barrier", "-n", "2", "--transport", "shm", "--json", "-"]);
        let objects = lines(command.args(["--budget", &self.budget.to_string()]))?;
        objects[0]["time_us"]["p50"].as_f64().context("a barrier without a time")
    }

    pub(crate) fn ours(&self, group: &Group, selection: &Selection) -> Result<Times> {
        let mut command = Command::new(&self.maypole);
        command.arg("perf").args(&selection.collectives);
        for (option, value) in [
            ("-n", group.ranks.to_string()),
            ("--transport", group.transport.clone()),
            ("--algorithm", self.algorithm.clone()),
            ("--sizes", selection.listed_sizes()),
            ("--budget", self.budget.to_string()),
            ("--offset", self.offset.to_string()),
            ("--json", "-".to_owned()),
        ] {
            command.args([option, &value]);
        }
        // The peers' programs write their inputs once.
        command.arg("--reuse-buffers");
        if self.registered && group.transport == "shm" {
            command.arg("--registered");
        }
        let mut times = Times::new();
        for object in lines(&mut command)? {
            // The peers are measured out of place; a broadcast is in place only.
            if object["in_place"] == true && object["collective"] != "broadcast" {
                continue;
            }
            let collective = dashed(&object["collective"])?;
            let right = object["wrong"] == 0;
            let us = &object["time_us"]["p50"];
            selection.insert(&mut times, collective, &object["bytes"], us, right)?;
        }
        Ok(times)
    }

    pub(crate) fn peer(&self, name: &str, group: &Group, selection: &Selection) -> Result<Times> {
        let wanted: Vec<_> = selection.collectives.iter().map(|it| theirs(it)).collect();
        let mut command = Command::new("bash");
        command.args(["-c", "source ./peers.sh; peer_run \"$@\"", "peers", name, &group.transport]);
        command.arg(group.ranks.to_string()).current_dir(&self.peers);
        let largest = selection.sizes.iter().max().copied().unwrap_or(0);
        for (variable, value) in [
            ("PB_COLLS", wanted.join(",")),
            ("PB_SIZES", selection.listed_sizes()),
            ("PB_BUDGET_MS", self.budget.to_string()),
            ("PB_MINSAMP", "5".to_owned()),
            ("PB_MAX", (2 * largest.max(4096)).to_string()),
            ("PB_OFFSET", self.offset.to_string()),
        ] {
            command.env(variable, value);
        }
        command.env_remove("PB_SIZES_AR");
        let mut times = Times::new();
        for object in lines(&mut command)? {
            if let Some(error) = object.get("error") {
                bail!("the peer failed: {error}");
            }
            // A peer selects collectives by substring: "gather" also runs "allgather".
            let ours = selection.collectives.iter().find(|ours| object["coll"] == theirs(ours));
            if let Some(collective) = ours {
                let right = object["ok"] == true;
                let us = &object["median_us"];
                selection.insert(&mut times, collective.clone(), &object["bytes"], us, right)?;
            }
        }
        Ok(times)
    }
}

impl Selection {
    fn listed_sizes(&self) -> String {
        self.sizes.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }

    /// The requested size of a point that was measured with `bytes`. Programs round up a size of less
    /// than one element a rank.
    fn nominal(&self, bytes: u64) -> u64 {
        let below = self.sizes.iter().copied().filter(|size| *size <= bytes).max();
        below.or_else(|| self.sizes.iter().copied().min()).unwrap_or(bytes)
    }

    fn insert(
        &self,
        times: &mut Times,
        collective: String,
        bytes: &Value,
        us: &Value,
        right: bool,
    ) -> Result<()> {
        if !right {
            bail!("{collective} of {bytes} bytes was wrong");
        }
        let size = self.nominal(bytes.as_u64().context("a line without bytes")?);
        times.insert((collective, size), us.as_f64().context("a line without a time")?);
        Ok(())
    }
}

/// The name of a collective on the command line of `maypole perf`.
fn dashed(collective: &Value) -> Result<String> {
    Ok(collective.as_str().context("a line without a collective")?.replace('_', "-"))
}

/// The name of a collective in the peers' programs.
fn theirs(collective: &str) -> String {
    match collective {
        "reduce-scatter" => "reduce_scatter".to_owned(),
        other => other.replace('-', ""),
    }
}

/// The JSON objects that `command` prints.
fn lines(command: &mut Command) -> Result<Vec<Value>> {
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {command:?}"))?;
    let objects: Vec<Value> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).with_context(|| format!("not JSON: {line}")))
        .collect::<Result<_>>()?;
    if objects.is_empty() || !output.status.success() {
        bail!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(objects)
}

//! The processor time of waits: ranks of one host each make short calls while they share a core, or have half of one.

use crate::network::Network;
use crate::ranks;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

/// One way.
const DELAY: Duration = Duration::from_micros(100);
/// Of 100,000 microseconds.
const QUOTA: &str = "50000";

/// Where the ranks run.
enum Cores {
    /// Each rank has a core.
    Own,
    /// All ranks share one.
    One,
    /// All ranks together have half of one.
    Half(Quota),
}

pub(crate) fn measure(carrier: &Path, folder: &Path) -> Result<ExitCode> {
    println!(
        "# all-reduce of 64 bytes between hosts {DELAY:?} apart: microseconds of a call, and\n\
         # processor time of a rank a call"
    );
    for (hosts, cores) in [(2, Cores::Own), (2, Cores::One), (4, Cores::One), (8, Cores::One)] {
        line(hosts, &cores, carrier, folder)?;
    }
    match Quota::new() {
        Ok(quota) => line(2, &Cores::Half(quota), carrier, folder)?,
        Err(why) => println!("SKIPPED: half a core: {why:#}"),
    }
    Ok(ExitCode::SUCCESS)
}

fn line(hosts: usize, cores: &Cores, carrier: &Path, folder: &Path) -> Result<()> {
    let mut network = Network::apart(hosts, DELAY, carrier).map_err(anyhow::Error::msg)?;
    (0..hosts).for_each(|host| network.tell(&format!("rate {host} 0")));
    let (own, key) = (std::env::current_exe()?, crate::key(folder)?);
    let start = |rank: usize| {
        let mut command = network.command(rank, "sh");
        let word = match cores {
            Cores::Own => format!("exec taskset -c {} \"$0\"", rank % 2),
            Cores::One => "exec taskset -c 0 \"$0\"".to_owned(),
            Cores::Half(quota) => {
                format!("echo $$ > {} && exec \"$0\"", quota.processes().display())
            }
        };
        command.args(["-c", &word]).arg(&own).env(ranks::WAITS, "1");
        crate::join(&mut command, rank, hosts, &key);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()
    };
    let ranks = (0..hosts).map(start).collect::<std::io::Result<Vec<_>>>()?;
    let mut times = Vec::new();
    for child in ranks {
        let output = child.wait_with_output()?;
        ensure!(output.status.success(), "a rank: {}", output.status);
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let words = printed.split_whitespace().map(str::parse::<f64>);
        times.push(words.collect::<Result<Vec<_>, _>>().context(printed)?);
    }
    let mean = |at: usize| times.iter().map(|it| it[at]).sum::<f64>() / times.len() as f64;
    let place = match cores {
        Cores::Own => "a core each",
        Cores::One => "one core",
        Cores::Half(_) => "half a core",
    };
    println!(
        "{hosts} hosts, {place:>11}: {:>8.1} us a call, {:>7.1} us of processor",
        mean(0),
        mean(1)
    );
    Ok(())
}

/// A control group with half a core. Dropping it removes it.
struct Quota(PathBuf);

impl Quota {
    fn new() -> Result<Self> {
        let name = format!("maypole-far-{}", std::process::id());
        let first = Path::new("/sys/fs/cgroup/cpu");
        let root = if first.is_dir() { first } else { Path::new("/sys/fs/cgroup") };
        let group = Self(root.join(name));
        fs::create_dir(&group.0).context("no control group can be made")?;
        let limited = if first.is_dir() {
            fs::write(group.0.join("cpu.cfs_quota_us"), QUOTA)
        } else {
            fs::write(group.0.join("cpu.max"), format!("{QUOTA} 100000"))
        };
        limited.context("a control group takes no quota")?;
        Ok(group)
    }

    fn processes(&self) -> PathBuf {
        self.0.join("cgroup.procs")
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        // It is empty once its ranks have ended.
        let _ = fs::remove_dir(&self.0);
    }
}

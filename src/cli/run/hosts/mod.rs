//! `maypole run --hosts`: ranks on several hosts, over ssh.
//!
//! One ssh a host starts this command there with `--first K --local M` ([`part`]): a launcher of the ranks
//! of that host, which starts them on request, passes signals on, and reports the end of each. The
//! first launcher decides, with the supervisor that serves the ranks of one host, too. The job's key
//! goes over the standard input of ssh, where no list of processes shows it.
//!
//! Nothing outlives the first launcher. When the input of another one ends, because the first one or
//! ssh was killed, or when nothing has come for a time, because the network is cut, it stops its
//! ranks. When it is killed, the kernel kills its ranks.

mod connection;
mod list;
mod messages;
pub(super) mod part;
mod ranks;
mod route;
mod shared;
mod ssh;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use list::HostRanks;
use ranks::RemoteRanks;

use super::Job;
use super::outcome::JobOutcome;

/// Options for ranks on several hosts.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct HostArgs {
    /// Start ranks on these hosts over ssh, with a number of ranks each: a:8,b:8. A host without a number
    /// gets one rank, or its share of -n if no host has a number. Lines of output begin with "[rank R, b] ".
    #[arg(long, visible_alias = "host", short = 'H', value_name = "HOST:N,...")]
    hosts: Option<String>,

    /// Read the hosts from a file of Open MPI's form: a host a line, with slots=N, and # before comments.
    #[arg(long, value_name = "FILE", conflicts_with = "hosts")]
    hostfile: Option<PathBuf>,

    /// The command that reaches a host, with options, for the shell: it is given the host and a command
    /// line for the shell there [default: ssh].
    #[arg(long, value_name = "COMMAND")]
    ssh: Option<String>,

    /// The address of the first host, by which the other hosts reach it [default: the one at which ssh
    /// has reached it].
    #[arg(long, value_name = "ADDRESS")]
    address: Option<String>,

    /// A variable for all ranks on other hosts: with the value that it has here, or with this one. They
    /// always get the variables MAYPOLE_*.
    #[arg(short = 'x', long = "env", value_name = "NAME[=VALUE]")]
    variables: Vec<String>,

    /// Seconds without a word from a host after which it is lost, or given up if it has not answered
    /// yet: more than it takes to type a password, if --ssh asks for one. The host stops its ranks after
    /// the same time without a word from here.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value = "30",
        value_parser = super::positive_seconds
    )]
    pub(super) lost_after: Duration,
}

/// The hosts of a job, and how they are reached.
pub(crate) struct HostOptions {
    hosts: Vec<HostRanks>,
    /// The variables that ranks get.
    variables: Vec<(String, OsString)>,
    args: HostArgs,
}

impl HostArgs {
    /// The hosts, for `ranks` ranks if the user sets the number; `None` for ranks on this host.
    pub(crate) fn options(self, ranks: Option<usize>) -> Result<Option<HostOptions>> {
        let hosts = match (&self.hosts, &self.hostfile) {
            (Some(hosts), _) => list::parse(hosts)?,
            (None, Some(file)) => list::read(file)?,
            (None, None) => {
                let has_options = self.ssh.is_some() || self.address.is_some();
                ensure!(
                    !has_options && self.variables.is_empty(),
                    "--ssh, --address and --env need --hosts"
                );
                return Ok(None);
            }
        };
        let given = self.variables.iter().map(|word| variable(word));
        let mut variables: Vec<_> = std::env::vars_os().filter_map(own_variable).collect();
        variables.extend(given.collect::<Result<Vec<_>>>()?);
        Ok(Some(HostOptions { hosts: list::place(hosts, ranks)?, variables, args: self }))
    }
}

/// The variables of maypole's own that mean the same on every host.
fn own_variable((name, value): (OsString, OsString)) -> Option<(String, OsString)> {
    let name = name.into_string().ok()?;
    let is_own = name.starts_with("MAYPOLE_") && !name.starts_with("MAYPOLE_JOB");
    (is_own && name != "MAYPOLE_HOST").then_some((name, value))
}

fn variable(word: &str) -> Result<(String, OsString)> {
    let (name, value) = match word.split_once('=') {
        Some((name, value)) => (name, value.into()),
        None => {
            (word, std::env::var_os(word).with_context(|| format!("-x {word}: it is not set"))?)
        }
    };
    ensure!(!name.is_empty() && !name.contains('\0'), "-x {word:?} names no variable");
    Ok((name.to_owned(), value))
}

impl HostOptions {
    /// How many ranks the job has.
    pub(crate) fn world(&self) -> usize {
        self.hosts.iter().map(|host| host.count).sum()
    }
}

/// Starts all ranks of `program` once, and waits for the end of all of them.
pub(super) fn run(job: &Job<'_>, hosts: &HostOptions, program: &[OsString]) -> Result<JobOutcome> {
    let mut ranks = RemoteRanks::connect(job, hosts, program)?;
    let mut outcome = job.supervise(&mut ranks, RemoteRanks::start)?;
    outcome.end(ranks.stop_remaining());
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_given_or_taken_from_here() {
        assert_eq!(variable("A=b=c").unwrap(), ("A".to_owned(), "b=c".into()));
        assert_eq!(variable("PATH").unwrap().1, std::env::var_os("PATH").unwrap());
        let error = variable("NOT_SET_ANYWHERE").unwrap_err().to_string();
        assert!(error.contains("-x NOT_SET_ANYWHERE"), "{error}");
        variable("=x").unwrap_err();
    }

    #[test]
    fn what_belongs_to_this_host_or_is_secret_is_not_sent() {
        let sent = |name: &str| own_variable((name.into(), "1".into())).is_some();
        assert!(sent("MAYPOLE_TIMEOUT") && sent("MAYPOLE_LOG"));
        for name in ["MAYPOLE_HOST", "MAYPOLE_JOB_KEY", "MAYPOLE_JOB_KEY_FILE", "HOME"] {
            assert!(!sent(name), "{name}");
        }
    }
}

//! The messages between the launcher and its agents on other hosts: a line of JSON a message, over
//! the standard input and output of ssh.

use std::ffi::OsString;
use std::time::{Duration, SystemTime};

use maypole_transports::process::ProcessEnd;
use serde::{Deserialize, Serialize};

use crate::run::environment::JobPorts;
use crate::run::first_failure::FirstFailure;
use crate::run::{Bind, OutputMode};

/// The number of this protocol. Agent and launcher also have to be of the same version.
pub(super) const PROTOCOL: u32 = 3;

/// A line of an agent that begins so is a message.
pub(super) const MESSAGE: u8 = b'@';
/// A line of an agent that begins so is a line of a rank. All other lines are of programs between
/// the launcher and the agent, such as the shell's start-up files.
pub(super) const OUTPUT: u8 = b'|';

/// The interval of heartbeats of each side.
pub(super) const BEAT: Duration = Duration::from_secs(1);

/// A message of the launcher to an agent.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// The first message: the program and its environment.
    Job(Box<JobDescription>),
    Start(StartOrder),
    /// Pass this signal on to the process at this place.
    Signal(usize, i32),
    /// All ranks have ended: end their remaining processes, then yourself.
    Stop,
    Beat,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct StartOrder {
    /// The number of the process among all that the launcher has started.
    pub(super) place: usize,
    pub(super) rank: usize,
    pub(super) is_newcomer: bool,
}

/// A message of an agent to the launcher.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    /// The first message.
    Hello(Box<Hello>),
    /// Ranks can be started.
    Ready,
    /// This host cannot reach rank 0's, for this reason.
    NoRoute(String),
    /// This host cannot run the job, for this reason.
    Unfit(String),
    Started(usize),
    /// The process could not be started: the program, and the number of the system's error.
    Refused(String, Option<i32>),
    Ended(usize, EndOfProcess),
    /// The rank that failed first, by the reports of this host's ranks. Precedes the end of the
    /// next one.
    FirstFailure(FirstFailure),
    /// The process at this place has joined others.
    Joined(usize),
    Beat,
}

/// The agent's facts before any order.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) protocol: u32,
    pub(super) version: String,
    /// The file of the agent's program.
    pub(super) file: String,
    /// Free ports, if rank 0 is to run here.
    pub(super) ports: Option<JobPorts>,
    /// Seconds since 1970 by the clock of this host.
    pub(super) clock: f64,
    /// `SSH_CONNECTION`: addresses and ports of the client and of this host.
    pub(super) connection: Option<String>,
}

/// What an agent needs to start its ranks. It has the job's key in it, so it is never printed.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct JobDescription {
    /// The host as the user names it.
    pub(super) host: String,
    pub(super) world: usize,
    /// The first rank of this host.
    pub(super) first: usize,
    pub(super) local_world: usize,
    /// The address of rank 0.
    pub(super) address: String,
    pub(super) ports: JobPorts,
    /// The name of the job.
    pub(super) name: String,
    /// The digits of the job's key.
    pub(super) key: String,
    /// Further variables of the ranks.
    pub(super) variables: Vec<(String, OsString)>,
    pub(super) program: OsString,
    pub(super) arguments: Vec<OsString>,
    /// The folder in which ranks start, if it exists.
    pub(super) folder: OsString,
    pub(super) output: OutputMode,
    pub(super) bind: Bind,
    pub(super) grace: Duration,
    pub(super) hang_report: Option<Duration>,
}

impl std::fmt::Debug for JobDescription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JobDescription").field("host", &self.host).finish_non_exhaustive()
    }
}

/// [`ProcessEnd`] in a message.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) enum EndOfProcess {
    Exited(i32),
    Killed(i32),
}

impl From<ProcessEnd> for EndOfProcess {
    fn from(end: ProcessEnd) -> Self {
        match end {
            ProcessEnd::Exited(code) => Self::Exited(code),
            ProcessEnd::Killed(signal) => Self::Killed(signal),
        }
    }
}

impl From<EndOfProcess> for ProcessEnd {
    fn from(end: EndOfProcess) -> Self {
        match end {
            EndOfProcess::Exited(code) => Self::Exited(code),
            EndOfProcess::Killed(signal) => Self::Killed(signal),
        }
    }
}

/// Seconds since 1970.
pub(super) fn clock() -> f64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}

/// A message as the line that carries it, without the letter before it.
pub(super) fn line(message: &impl Serialize) -> String {
    serde_json::to_string(message).expect("messages are numbers and text") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_never_printed() {
        let ports = JobPorts { join: 1, store: 2, admission: None };
        let job = JobDescription {
            host: "a".to_owned(),
            world: 2,
            first: 0,
            local_world: 1,
            address: "a".to_owned(),
            ports,
            name: "job".to_owned(),
            key: "secret".to_owned(),
            variables: Vec::new(),
            program: "true".into(),
            arguments: Vec::new(),
            folder: OsString::new(),
            output: OutputMode::Tagged,
            bind: Bind::Auto,
            grace: Duration::ZERO,
            hang_report: None,
        };
        assert!(!format!("{:?}", Order::Job(Box::new(job))).contains("secret"));
    }
}

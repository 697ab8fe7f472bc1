//! The messages between the launcher and those on other hosts: a line of JSON a message, over the
//! standard input and output of ssh.

use std::ffi::OsString;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::process::ProcessEnd;
use crate::run::environment::JobPorts;
use crate::run::first_failure::FirstFailure;

/// The number of this protocol. Both launchers also have to be of the same version.
pub(super) const PROTOCOL: u32 = 7;

/// A line of another host's launcher that begins so is a message.
pub(super) const MESSAGE: u8 = b'@';
/// A line that begins so is a line of a rank. All other lines are of programs between the two
/// launchers, such as the shell's start-up files.
pub(super) const OUTPUT: u8 = b'|';

/// The interval of heartbeats of each side.
pub(super) const BEAT: Duration = Duration::from_secs(1);

/// A message of the launcher to one on another host.
#[derive(Serialize, Deserialize)]
pub(super) enum Order {
    /// The first message: the program and its environment.
    Job(Box<JobDescription>),
    Start {
        /// The number of the process among all that the launcher has started.
        place: usize,
        rank: usize,
    },
    /// Pass this signal on to the process at this place.
    Signal(usize, i32),
    /// All ranks have ended: end their remaining processes, then yourself.
    Stop,
    Beat,
}

/// A message of another host's launcher.
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
    /// The process at this place has ended.
    Ended(usize, ProcessEnd),
    /// The rank that failed first, by the reports of this host's ranks. Precedes the end of the
    /// next one.
    FirstFailure(FirstFailure),
    Beat,
}

/// The facts about a host before any order.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) protocol: u32,
    pub(super) version: String,
    /// The file of the launcher's program.
    pub(super) file: String,
    /// Free ports, if rank 0 is to run here.
    pub(super) ports: Option<JobPorts>,
    /// `SSH_CONNECTION`: addresses and ports of the client and of this host.
    pub(super) connection: Option<String>,
}

/// What no list of processes may show, and what is not known before all hosts have answered. It has the
/// job's key in it, so it cannot be printed.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct JobDescription {
    /// The host as the user names it.
    pub(super) host: String,
    /// The address of rank 0.
    pub(super) address: String,
    pub(super) ports: JobPorts,
    /// The name of the job.
    pub(super) name: String,
    /// The digits of the job's key.
    pub(super) key: String,
    /// Further variables of the ranks.
    pub(super) variables: Vec<(String, OsString)>,
    /// The program and its arguments.
    pub(super) program: Vec<OsString>,
    /// The folder in which ranks start, if it exists.
    pub(super) folder: OsString,
}

/// A message as the line that carries it, without the letter before it.
pub(super) fn line(message: &impl Serialize) -> String {
    serde_json::to_string(message).expect("messages are numbers and text") + "\n"
}

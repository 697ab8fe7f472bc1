//! What the ranks agreed on when they joined, in words.

use crate::comm::Communicator;
use crate::tuner::pair_groups;
use std::fmt::Write;
use std::str::FromStr;

impl Communicator {
    /// Describes the world: the number of ranks and of hosts, and which transport joins each pair
    /// of ranks, with the reasons against faster ones. The same on every rank. With
    /// `MAYPOLE_LOG=info` rank 0 prints this when a program joins.
    ///
    /// ```
    /// let said = maypole::Communicator::run_local(2, |comm| comm.summary());
    /// assert!(said[0].starts_with("maypole: 2 ranks on 1 host"));
    /// assert!(said[0].contains("1 pairs by shm, first 0-1; CUDA: the buffers are in host memory"));
    /// ```
    pub fn summary(&self) -> String {
        let hosts = self.hosts.count();
        let ranks = self.world();
        let noun = if hosts == 1 { "host" } else { "hosts" };
        let mut text = format!(
            "maypole: {ranks} ranks on {hosts} {noun}, at most {} to a core",
            self.crowding()
        );
        for group in pair_groups(self.boards(), &self.hosts, &self.conditions.links) {
            write!(text, "\nmaypole: {group}").expect("a string takes all");
        }
        text
    }
}

/// The levels of `MAYPOLE_LOG`, from the fewest messages to the most.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl LogLevel {
    pub(crate) fn is_told_of_joining(self) -> bool {
        self >= Self::Info
    }
}

impl FromStr for LogLevel {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name.to_ascii_lowercase().as_str() {
            "error" => Ok(Self::Error),
            "warn" => Ok(Self::Warn),
            "info" => Ok(Self::Info),
            "debug" => Ok(Self::Debug),
            "trace" => Ok(Self::Trace),
            _ => Err(format!("'{name}' is none of error, warn, info, debug, trace")),
        }
    }
}

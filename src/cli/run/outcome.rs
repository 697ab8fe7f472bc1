//! How a job ended, and the exit code of the launcher.

use std::sync::Arc;

use crate::process::ProcessEnd;
use signal_hook::consts::{SIGKILL, SIGPIPE};

use super::lines::say;
use super::ranks::{RestOfJob, on};
use super::signals;
use crate::output::{CLOSED_PIPE, OutputError};

/// How a job ended.
#[derive(Debug, Default)]
pub(crate) struct JobOutcome {
    /// The rank that failed before any other rank and before the request to end. If that rank did
    /// not fail by itself, the first one that ended because of it.
    pub(crate) failure: Option<RankFailure>,
    /// The rank that failed first, by the reports of the ranks that ended because of it.
    pub(super) blamed: Option<usize>,
    /// The ranks that failed before the request to end, the first one first.
    pub(super) losses: Vec<RankFailure>,
    /// The signal to the launcher that ended the job, if no rank had failed before.
    pub(crate) signal: Option<i32>,
    /// Why the launcher's output could not be written.
    pub(crate) output: Option<OutputError>,
    /// Whether the launcher received a signal to end, at any time.
    pub(super) asked_to_end: bool,
    /// Whether a rank did not end even when it was killed.
    pub(super) left_behind: bool,
}

/// A rank that failed.
#[derive(Clone, Debug)]
pub(crate) struct RankFailure {
    pub(crate) rank: usize,
    /// How its process ended; `None` if the connection to its host was lost.
    pub(crate) end: Option<ProcessEnd>,
    /// Its host, if it is another one.
    pub(super) host: Option<Arc<str>>,
}

const MOST_LOSSES: usize = 16;

/// The exit code where a host was lost, as that of ssh.
const HOST_LOST: i32 = 255;

/// The exit code where the launcher's output cannot be written.
const OUTPUT_FAILED: u8 = 2;

impl JobOutcome {
    /// The launcher's exit code: that of the first failure, 128 + N for signal N,
    /// [`CLOSED_PIPE`] or [`OUTPUT_FAILED`] if its output could not be written, else 0.
    pub(crate) fn code(&self) -> u8 {
        let end = self
            .failure
            .as_ref()
            .map(|failure| failure.end.unwrap_or(ProcessEnd::Exited(HOST_LOST)))
            .or(self.signal.map(ProcessEnd::Killed));
        match (end, &self.output) {
            (Some(ProcessEnd::Exited(code)), _) => code as u8,
            (Some(ProcessEnd::Killed(signal)), _) => (128 + signal) as u8,
            (None, Some(output)) if output.is_closed_pipe() => CLOSED_PIPE,
            (None, Some(_)) => OUTPUT_FAILED,
            (None, None) => 0,
        }
    }

    /// True if a rank has failed and nothing else speaks against a new start.
    pub(super) fn allows_restart(&self) -> bool {
        let stopped = self.asked_to_end || self.left_behind || self.output.is_some();
        self.failure.is_some() && !stopped
    }

    /// Adds what happened after the last rank had ended, and prints the cause of the job's end.
    pub(super) fn end(&mut self, rest: RestOfJob) {
        self.asked_to_end |= rest.asked_to_end;
        if let (None, Some(error)) = (&self.output, rest.output) {
            if !error.is_closed_pipe() {
                say(&error.to_string());
            }
            self.output = Some(error);
        }
        if let Some(failure) = &self.failure {
            let (rank, how) = (failure.rank, failure.description());
            say(&match self.blamed.filter(|blamed| *blamed != rank) {
                None => format!("rank {rank} failed first: it {how}"),
                Some(first) => format!(
                    "rank {first} failed first: it did not do its part, and because of that rank \
                     {rank} {how}"
                ),
            });
        } else if let Some(losses) = self.losses_in_words() {
            say(&format!("{losses}; the others went on without"));
        }
    }

    /// `rank 1 exited with code 3; rank 2 was killed by SIGSEGV`; `None` without any.
    fn losses_in_words(&self) -> Option<String> {
        let words = |loss: &RankFailure| format!("rank {} {}", loss.rank, loss.description());
        let mut told: Vec<String> = self.losses.iter().take(MOST_LOSSES).map(words).collect();
        if self.losses.len() > told.len() {
            told.push(format!("{} more were lost", self.losses.len() - told.len()));
        }
        (!told.is_empty()).then(|| told.join("; "))
    }
}

impl RankFailure {
    /// True for a rank that has ended because no process reads its output.
    pub(super) fn is_closed_pipe(&self) -> bool {
        let code = ProcessEnd::Exited(CLOSED_PIPE.into());
        self.end.is_some_and(|end| end == ProcessEnd::Killed(SIGPIPE) || end == code)
    }

    /// How the rank ended: "exited with code 3", "was killed by SIGSEGV on b".
    pub(crate) fn description(&self) -> String {
        let on = on(&self.host);
        match self.end {
            None => format!("was lost{on}"),
            Some(ProcessEnd::Exited(code)) => format!("exited with code {code}{on}"),
            Some(ProcessEnd::Killed(SIGKILL)) => format!(
                "was killed by SIGKILL{on}, by a user or because memory ran out (see `dmesg`)"
            ),
            Some(ProcessEnd::Killed(signal)) => {
                format!("was killed by {}{on}", signals::name(signal))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn the_code_is_that_of_the_first_cause() {
        let failure = |end| Some(RankFailure { rank: 1, end: Some(end), host: None });
        let check = |failure, signal, code| {
            let output = None;
            let outcome = JobOutcome { failure, signal, output, ..JobOutcome::default() };
            assert_eq!(outcome.code(), code);
        };
        check(None, None, 0);
        check(failure(ProcessEnd::Exited(3)), None, 3);
        check(failure(ProcessEnd::Killed(9)), Some(15), 137);
        check(None, Some(2), 130);
        let output = |kind: io::ErrorKind| Some(OutputError::new("standard output", kind.into()));
        let closed = output(io::ErrorKind::BrokenPipe);
        assert_eq!(JobOutcome { output: closed, ..JobOutcome::default() }.code(), 141);
        let full = output(io::ErrorKind::StorageFull);
        assert_eq!(JobOutcome { output: full, ..JobOutcome::default() }.code(), 2);
    }

    #[test]
    fn a_failure_alone_allows_a_restart() {
        let failure =
            || Some(RankFailure { rank: 1, end: Some(ProcessEnd::Exited(3)), host: None });
        let failed = || JobOutcome { failure: failure(), ..JobOutcome::default() };
        assert!(failed().allows_restart());
        assert!(!JobOutcome::default().allows_restart());
        let full = OutputError::new("standard output", io::ErrorKind::StorageFull.into());
        for other in [
            JobOutcome { asked_to_end: true, ..failed() },
            JobOutcome { left_behind: true, ..failed() },
            JobOutcome { output: Some(full), ..failed() },
        ] {
            assert!(!other.allows_restart(), "{other:?}");
        }
        let mut asked_late = failed();
        asked_late.end(RestOfJob { asked_to_end: true, ..RestOfJob::default() });
        assert!(!asked_late.allows_restart());
    }
}

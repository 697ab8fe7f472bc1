//! Waits for ranks to end, and ends them: finds the first failure, asks the other ranks to end,
//! and kills those that do not.

use std::io;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use maypole_transports::descriptor;
use maypole_transports::process::ProcessEnd;
use signal_hook::consts::{SIGKILL, SIGPIPE, SIGTERM};

use super::lines::say;
use super::ranks::{KILL_TIMEOUT, LaunchEvent, RankProcesses, RestOfJob};
use super::signals::{self, ENDING};
use crate::output::{CLOSED_PIPE, OutputError};

/// How a job ended.
#[derive(Debug, Default)]
pub(crate) struct JobOutcome {
    /// The rank that failed before any other rank and before it was asked to end.
    pub(crate) failure: Option<RankFailure>,
    /// The signal to the launcher that ended the job, if no rank had failed before.
    pub(crate) signal: Option<i32>,
    /// Why the launcher's output could not be written.
    pub(crate) output: Option<OutputError>,
    /// Whether a signal has asked the launcher to end, at any time.
    pub(super) asked_to_end: bool,
    /// Whether a rank did not end even when it was killed.
    pub(super) left_behind: bool,
}

/// A rank that failed.
#[derive(Debug)]
pub(crate) struct RankFailure {
    pub(crate) rank: usize,
    pub(crate) end: ProcessEnd,
}

/// The exit code where the launcher's output cannot be written.
const OUTPUT_FAILED: u8 = 2;

impl JobOutcome {
    /// The launcher's exit code: that of the first failure, 128 + N for signal N,
    /// [`CLOSED_PIPE`] or [`OUTPUT_FAILED`] if its output could not be written, else 0.
    pub(crate) fn code(&self) -> u8 {
        let end = self
            .failure
            .as_ref()
            .map(|failure| failure.end)
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

    /// Adds what happened after the last rank had ended, and says what ended the job.
    pub(super) fn end(&mut self, rest: RestOfJob) {
        self.asked_to_end |= rest.asked_to_end;
        if let (None, Some(error)) = (&self.output, rest.output) {
            if !error.is_closed_pipe() {
                say(&error.to_string());
            }
            self.output = Some(error);
        }
        if let Some(failure) = &self.failure {
            say(&format!("rank {} failed first: it {}", failure.rank, failure.description()));
        }
    }
}

impl RankFailure {
    /// How the rank ended: "exited with code 3", "was killed by SIGSEGV".
    pub(crate) fn description(&self) -> String {
        match self.end {
            ProcessEnd::Exited(code) => format!("exited with code {code}"),
            ProcessEnd::Killed(SIGKILL) => {
                "was killed by SIGKILL, by a user or because memory ran out (see `dmesg`)"
                    .to_owned()
            }
            ProcessEnd::Killed(signal) => format!("was killed by {}", signals::name(signal)),
        }
    }
}

/// Orders events that arrived together. A failure of the launcher's output comes first: it closes
/// the pipes of ranks, which then die. A death by signal is next: it is the cause of errors on other
/// ranks, which lost their peer, and never their consequence.
fn in_causal_order(mut together: Vec<LaunchEvent>) -> Vec<LaunchEvent> {
    together.sort_by_key(|event| match event {
        LaunchEvent::OutputFailed(_) => 0,
        LaunchEvent::Ended(_, ProcessEnd::Killed(_)) => 1,
        _ => 2,
    });
    together
}

/// How far a job has been stopped.
#[derive(Debug, Clone, Copy)]
enum Stopping {
    No,
    /// Ranks were asked to end, and are killed at `until`.
    Asked {
        until: Instant,
    },
    /// Ranks were killed, and are left behind at `until`.
    Killed {
        until: Instant,
    },
}

/// Supervises ranks from the start of the first to the end of the last.
pub(super) struct Supervisor<'a> {
    events: &'a Receiver<LaunchEvent>,
    world: usize,
    grace: Duration,
    /// Of the ranks that were started: whether each runs.
    running: Vec<bool>,
    stopping: Stopping,
    outcome: JobOutcome,
}

impl<'a> Supervisor<'a> {
    pub(super) fn new(world: usize, events: &'a Receiver<LaunchEvent>, grace: Duration) -> Self {
        let running = Vec::new();
        let outcome = JobOutcome::default();
        Self { events, world, grace, running, stopping: Stopping::No, outcome }
    }

    /// Starts all ranks with `start`, each after the events that came before it. Starts no more
    /// once the job is being stopped.
    ///
    /// # Errors
    ///
    /// The first error of `start`.
    pub(super) fn start_all(
        &mut self,
        ranks: &mut RankProcesses,
        mut start: impl FnMut(&mut RankProcesses, usize) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        for rank in 0..self.world {
            self.handle_all(ranks, self.events.try_iter().collect());
            if !matches!(self.stopping, Stopping::No) {
                break;
            }
            start(ranks, rank)?;
            self.running.push(true);
        }
        Ok(())
    }

    /// Waits until all ranks have ended. Gives up on ranks that do not end after SIGKILL.
    pub(super) fn until_all_ended(mut self, ranks: &RankProcesses) -> JobOutcome {
        while self.running.contains(&true) {
            match (self.next(), self.stopping) {
                (Some(event), _) => {
                    let events = std::iter::once(event).chain(self.events.try_iter());
                    self.handle_all(ranks, events.collect());
                }
                (None, Stopping::Killed { .. }) => {
                    let names = self.running_names();
                    say(&format!("{names} did not end after SIGKILL and is left behind"));
                    self.outcome.left_behind = true;
                    break;
                }
                (None, _) => {
                    let names = self.running_names();
                    say(&format!("{names} did not end within {:?} and is killed", self.grace));
                    self.kill(ranks);
                }
            }
        }
        self.outcome
    }

    fn handle_all(&mut self, ranks: &RankProcesses, together: Vec<LaunchEvent>) {
        in_causal_order(together).into_iter().for_each(|event| self.handle(ranks, event));
    }

    /// The next event, or `None` when the deadline of the current stage passes.
    fn next(&self) -> Option<LaunchEvent> {
        match self.stopping {
            Stopping::No => Some(self.events.recv().expect("the ranks hold a sender")),
            Stopping::Asked { until } | Stopping::Killed { until } => {
                self.events.recv_deadline(until).ok()
            }
        }
    }

    fn handle(&mut self, ranks: &RankProcesses, event: LaunchEvent) {
        match event {
            LaunchEvent::Ended(rank, end) => self.rank_ended(ranks, rank, end),
            LaunchEvent::ChildEnded => ranks.collect_orphans(),
            LaunchEvent::OutputFailed(error) => self.output_failed(ranks, error),
            LaunchEvent::Signal(signal) if ENDING.contains(&signal) => {
                self.end_on_signal(ranks, signal);
            }
            LaunchEvent::Signal(signal) => self.signal_running(ranks, signal),
        }
    }

    fn rank_ended(&mut self, ranks: &RankProcesses, rank: usize, end: ProcessEnd) {
        self.running[rank] = false;
        if end == ProcessEnd::Exited(0) || !matches!(self.stopping, Stopping::No) {
            return;
        }
        if is_closed_pipe(end) && descriptor::reader_has_left(io::stdout()) {
            let closed = io::ErrorKind::BrokenPipe.into();
            return self.output_failed(ranks, OutputError::new("standard output", closed));
        }
        let failure = RankFailure { rank, end };
        let others = self.running.iter().filter(|running| **running).count();
        self.request_end(ranks, SIGTERM);
        if others > 0 {
            say(&format!("rank {rank} {}; stopping {others} other ranks", failure.description()));
        }
        self.outcome.failure = Some(failure);
    }

    /// Ends a job whose output nobody can have. Where the reader of a pipe has closed its end, the
    /// launcher says nothing.
    fn output_failed(&mut self, ranks: &RankProcesses, error: OutputError) {
        if matches!(self.stopping, Stopping::No) {
            self.request_end(ranks, SIGTERM);
            if !error.is_closed_pipe() {
                say(&format!("{error}; stopping {}", self.running_names()));
            }
        }
        self.outcome.output.get_or_insert(error);
    }

    fn end_on_signal(&mut self, ranks: &RankProcesses, signal: i32) {
        let name = signals::name(signal);
        self.outcome.asked_to_end = true;
        if matches!(self.stopping, Stopping::No) {
            self.outcome.signal = Some(signal);
            self.request_end(ranks, signal);
            say(&format!(
                "{name} passed on to {}{}; send it again to kill at once",
                self.running_names(),
                self.not_started()
            ));
        } else {
            self.kill(ranks);
            say(&format!("second {name}: {} killed", self.running_names()));
        }
    }

    fn request_end(&mut self, ranks: &RankProcesses, signal: i32) {
        self.signal_running(ranks, signal);
        self.stopping = Stopping::Asked { until: deadline_after(self.grace) };
    }

    fn kill(&mut self, ranks: &RankProcesses) {
        self.signal_running(ranks, SIGKILL);
        self.stopping = Stopping::Killed { until: deadline_after(KILL_TIMEOUT) };
    }

    fn signal_running(&self, ranks: &RankProcesses, signal: i32) {
        self.running_ranks().for_each(|rank| ranks.signal(rank, signal));
    }

    fn running_ranks(&self) -> impl Iterator<Item = usize> {
        self.running.iter().enumerate().filter(|(_, running)| **running).map(|(rank, _)| rank)
    }

    /// `rank 3`, `ranks 0 1 7`, `ranks 0-511`.
    fn running_names(&self) -> String {
        let ranks: Vec<usize> = self.running_ranks().collect();
        let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
        format!("{noun} {}", names_of(&ranks))
    }

    /// `, 386 ranks were not started`, or nothing.
    fn not_started(&self) -> String {
        match self.world - self.running.len() {
            0 => String::new(),
            1 => ", 1 rank was not started".to_owned(),
            missing => format!(", {missing} ranks were not started"),
        }
    }
}

/// Ascending numbers, with three or more in a row as a range: `0-2 5 7 8`; `none` without any.
fn names_of(ranks: &[usize]) -> String {
    let runs = ranks.chunk_by(|one, next| one + 1 == *next);
    let name = |run: &[usize]| match run {
        [first, _, .., last] => format!("{first}-{last}"),
        few => few.iter().map(usize::to_string).collect::<Vec<_>>().join(" "),
    };
    let names: Vec<String> = runs.map(name).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(" ") }
}

/// True for a rank that has ended because no process reads its output.
fn is_closed_pipe(end: ProcessEnd) -> bool {
    end == ProcessEnd::Killed(SIGPIPE) || end == ProcessEnd::Exited(CLOSED_PIPE.into())
}

/// The time `wait` from now, at most a year.
fn deadline_after(wait: Duration) -> Instant {
    const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
    Instant::now() + wait.min(YEAR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_comes_before_the_errors_that_it_caused() {
        let full = OutputError::new("standard output", io::ErrorKind::StorageFull.into());
        let together = vec![
            LaunchEvent::Ended(0, ProcessEnd::Exited(1)),
            LaunchEvent::Ended(2, ProcessEnd::Killed(11)),
            LaunchEvent::Signal(15),
            LaunchEvent::OutputFailed(full),
            LaunchEvent::Ended(1, ProcessEnd::Exited(1)),
        ];
        let ordered = in_causal_order(together);
        assert!(matches!(
            ordered[..],
            [
                LaunchEvent::OutputFailed(_),
                LaunchEvent::Ended(2, _),
                LaunchEvent::Ended(0, _),
                LaunchEvent::Signal(15),
                LaunchEvent::Ended(1, _)
            ]
        ));
    }

    #[test]
    fn the_code_is_that_of_the_first_cause() {
        let failure = |end| Some(RankFailure { rank: 1, end });
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
        let failure = || Some(RankFailure { rank: 1, end: ProcessEnd::Exited(3) });
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

    #[test]
    fn ranks_in_a_row_are_named_by_their_ends() {
        for (ranks, names) in
            [(&[][..], "none"), (&[3], "3"), (&[0, 1], "0 1"), (&[0, 1, 2, 5, 7, 8], "0-2 5 7 8")]
        {
            assert_eq!(names_of(ranks), names);
        }
    }
}

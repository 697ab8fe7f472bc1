//! Waits for ranks to end, and ends them: finds the first failure, asks the other ranks to end,
//! and kills those that do not.

use std::fmt::Write;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use maypole_transports::process::ProcessEnd;
use signal_hook::consts::{SIGKILL, SIGTERM};

use super::lines::say;
use super::ranks::{KILL_TIMEOUT, LaunchEvent, RankProcesses};
use super::signals::{self, ENDING};

/// How a job ended.
#[derive(Debug, Default)]
pub(crate) struct JobOutcome {
    /// The rank that failed before any other rank and before it was asked to end.
    pub(crate) failure: Option<RankFailure>,
    /// The signal to the launcher that ended the job, if no rank had failed before.
    pub(crate) signal: Option<i32>,
}

/// A rank that failed.
#[derive(Debug)]
pub(crate) struct RankFailure {
    pub(crate) rank: usize,
    pub(crate) end: ProcessEnd,
}

impl JobOutcome {
    /// The launcher's exit code: that of the first failure, 128 + N for signal N, else 0.
    pub(crate) fn code(&self) -> u8 {
        let end = self
            .failure
            .as_ref()
            .map(|failure| failure.end)
            .or(self.signal.map(ProcessEnd::Killed));
        match end {
            None => 0,
            Some(ProcessEnd::Exited(code)) => code as u8,
            Some(ProcessEnd::Killed(signal)) => (128 + signal) as u8,
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

/// Waits until all ranks have ended. Gives up on ranks that do not end after SIGKILL.
pub(super) fn until_all_ended(
    ranks: &RankProcesses,
    events: &Receiver<LaunchEvent>,
    grace: Duration,
) -> JobOutcome {
    let mut supervisor = Supervisor {
        ranks,
        grace,
        running: vec![true; ranks.len()],
        stopping: Stopping::No,
        outcome: JobOutcome::default(),
    };
    while supervisor.running.contains(&true) {
        match supervisor.next(events) {
            Some(event) => {
                let together = std::iter::once(event).chain(events.try_iter()).collect();
                in_causal_order(together).into_iter().for_each(|event| supervisor.handle(event));
            }
            None => match supervisor.stopping {
                Stopping::Killed { .. } => {
                    say(&format!(
                        "{} did not end after SIGKILL and is left behind",
                        supervisor.running_names()
                    ));
                    break;
                }
                _ => {
                    say(&format!(
                        "{} did not end within {grace:?} and is killed",
                        supervisor.running_names()
                    ));
                    supervisor.kill();
                }
            },
        }
    }
    supervisor.outcome
}

/// Orders events that arrived together. A death by signal comes first: it is the cause of errors
/// on other ranks, which lost their peer, and never their consequence.
fn in_causal_order(mut together: Vec<LaunchEvent>) -> Vec<LaunchEvent> {
    together.sort_by_key(|event| !matches!(event, LaunchEvent::Ended(_, ProcessEnd::Killed(_))));
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

struct Supervisor<'a> {
    ranks: &'a RankProcesses,
    grace: Duration,
    running: Vec<bool>,
    stopping: Stopping,
    outcome: JobOutcome,
}

impl Supervisor<'_> {
    /// The next event, or `None` when the deadline of the current stage passes.
    fn next(&self, events: &Receiver<LaunchEvent>) -> Option<LaunchEvent> {
        match self.stopping {
            Stopping::No => Some(events.recv().expect("the ranks hold a sender")),
            Stopping::Asked { until } | Stopping::Killed { until } => {
                events.recv_deadline(until).ok()
            }
        }
    }

    fn handle(&mut self, event: LaunchEvent) {
        match event {
            LaunchEvent::Ended(rank, end) => self.rank_ended(rank, end),
            LaunchEvent::Signal(signal) if ENDING.contains(&signal) => self.end_on_signal(signal),
            LaunchEvent::Signal(signal) => self.signal_running(signal),
        }
    }

    fn rank_ended(&mut self, rank: usize, end: ProcessEnd) {
        self.running[rank] = false;
        if end == ProcessEnd::Exited(0) || !matches!(self.stopping, Stopping::No) {
            return;
        }
        let failure = RankFailure { rank, end };
        let others = self.running.iter().filter(|running| **running).count();
        self.request_end(SIGTERM);
        if others > 0 {
            say(&format!("rank {rank} {}; stopping {others} other ranks", failure.description()));
        }
        self.outcome.failure = Some(failure);
    }

    fn end_on_signal(&mut self, signal: i32) {
        let name = signals::name(signal);
        if matches!(self.stopping, Stopping::No) {
            self.outcome.signal = Some(signal);
            self.request_end(signal);
            say(&format!(
                "{name} passed on to {}; send it again to kill at once",
                self.running_names()
            ));
        } else {
            self.kill();
            say(&format!("second {name}: {} killed", self.running_names()));
        }
    }

    fn request_end(&mut self, signal: i32) {
        self.signal_running(signal);
        self.stopping = Stopping::Asked { until: deadline_after(self.grace) };
    }

    fn kill(&mut self) {
        self.signal_running(SIGKILL);
        self.stopping = Stopping::Killed { until: deadline_after(KILL_TIMEOUT) };
    }

    fn signal_running(&self, signal: i32) {
        self.running_ranks().for_each(|rank| self.ranks.signal(rank, signal));
    }

    fn running_ranks(&self) -> impl Iterator<Item = usize> {
        self.running.iter().enumerate().filter(|(_, running)| **running).map(|(rank, _)| rank)
    }

    /// `rank 3`, or `ranks 0 1 7`.
    fn running_names(&self) -> String {
        let mut names =
            if self.running_ranks().count() == 1 { "rank".to_owned() } else { "ranks".to_owned() };
        for rank in self.running_ranks() {
            write!(names, " {rank}").expect("writing to a String does not fail");
        }
        names
    }
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
    fn a_death_comes_before_the_errors_that_it_caused() {
        let together = vec![
            LaunchEvent::Ended(0, ProcessEnd::Exited(1)),
            LaunchEvent::Ended(2, ProcessEnd::Killed(11)),
            LaunchEvent::Signal(15),
            LaunchEvent::Ended(1, ProcessEnd::Exited(1)),
        ];
        let ordered = in_causal_order(together);
        assert!(matches!(
            ordered[..],
            [
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
        let check = |failure, signal, code| assert_eq!(JobOutcome { failure, signal }.code(), code);
        check(None, None, 0);
        check(failure(ProcessEnd::Exited(3)), None, 3);
        check(failure(ProcessEnd::Killed(9)), Some(15), 137);
        check(None, Some(2), 130);
    }
}

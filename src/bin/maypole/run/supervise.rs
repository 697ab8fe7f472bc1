//! Waiting for ranks to end, and ending them: who failed first, who must be stopped, who is past
//! asking.

use std::fmt::Write;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use maypole_transports::process::ProcessEnd;
use signal_hook::consts::{SIGKILL, SIGTERM};

use super::lines::say;
use super::ranks::{Event, MOMENT, Ranks};
use super::signals::{self, ENDING};

/// How a job ended.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// The rank that failed before any other and before anyone asked it to end.
    pub(crate) failure: Option<Failure>,
    /// The signal to the launcher that ended the job, where no rank had failed before.
    pub(crate) signal: Option<i32>,
}

/// A rank that failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) rank: usize,
    pub(crate) end: ProcessEnd,
}

impl Outcome {
    /// The exit code that says it: that of the failure, 128 + N for a signal N, else 0.
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

impl Failure {
    /// What happened, in words.
    pub(crate) fn how(&self) -> String {
        match self.end {
            ProcessEnd::Exited(code) => format!("exited with code {code}"),
            ProcessEnd::Killed(SIGKILL) => {
                "was killed by SIGKILL, by hand or because memory ran out (`dmesg` tells)"
                    .to_owned()
            }
            ProcessEnd::Killed(signal) => format!("was killed by {}", signals::name(signal)),
        }
    }
}

/// Waits until all ranks have ended, or are killed and do not end.
pub(super) fn until_all_ended(ranks: &Ranks, events: &Receiver<Event>, grace: Duration) -> Outcome {
    let mut watch = Watch {
        ranks,
        grace,
        running: vec![true; ranks.len()],
        stopping: Stopping::No,
        outcome: Outcome::default(),
    };
    while watch.running.contains(&true) {
        match watch.next(events) {
            Some(event) => {
                let together = std::iter::once(event).chain(events.try_iter()).collect();
                in_causal_order(together).into_iter().for_each(|event| watch.take(event));
            }
            None => match watch.stopping {
                Stopping::Killed { .. } => {
                    say(&format!("{} cannot be killed, left behind", watch.who_runs()));
                    break;
                }
                _ => {
                    say(&format!("{} did not end within {grace:?}, killed", watch.who_runs()));
                    watch.kill();
                }
            },
        }
    }
    watch.outcome
}

/// Orders what happened while nobody looked: a death by signal explains the errors of the others,
/// who missed the dead one; never the other way round.
fn in_causal_order(mut together: Vec<Event>) -> Vec<Event> {
    together.sort_by_key(|event| !matches!(event, Event::Ended(_, ProcessEnd::Killed(_))));
    together
}

/// How far the ending of a job has come.
#[derive(Debug, Clone, Copy)]
enum Stopping {
    No,
    /// Ranks were asked to end, and are killed then.
    Asked {
        until: Instant,
    },
    /// Ranks were killed, and are given up then.
    Killed {
        until: Instant,
    },
}

struct Watch<'a> {
    ranks: &'a Ranks,
    grace: Duration,
    running: Vec<bool>,
    stopping: Stopping,
    outcome: Outcome,
}

impl Watch<'_> {
    /// The next event, or `None` when the time for it is over.
    fn next(&self, events: &Receiver<Event>) -> Option<Event> {
        match self.stopping {
            Stopping::No => Some(events.recv().expect("the ranks hold a sender")),
            Stopping::Asked { until } | Stopping::Killed { until } => {
                events.recv_timeout(until.saturating_duration_since(Instant::now())).ok()
            }
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Ended(rank, end) => self.ended(rank, end),
            Event::Signal(signal) if ENDING.contains(&signal) => self.asked_to_end(signal),
            Event::Signal(signal) => self.signal_running(signal),
        }
    }

    fn ended(&mut self, rank: usize, end: ProcessEnd) {
        self.running[rank] = false;
        if end == ProcessEnd::Exited(0) || !matches!(self.stopping, Stopping::No) {
            return;
        }
        let failure = Failure { rank, end };
        let others = self.running.iter().filter(|running| **running).count();
        self.ask(SIGTERM);
        if others > 0 {
            say(&format!("rank {rank} {}; stopping {others} more", failure.how()));
        }
        self.outcome.failure = Some(failure);
    }

    fn asked_to_end(&mut self, signal: i32) {
        let name = signals::name(signal);
        if matches!(self.stopping, Stopping::No) {
            self.outcome.signal = Some(signal);
            self.ask(signal);
            say(&format!("{name} passed on to {}; once more to kill at once", self.who_runs()));
        } else {
            self.kill();
            say(&format!("{name} while ending: {} killed", self.who_runs()));
        }
    }

    fn ask(&mut self, signal: i32) {
        self.signal_running(signal);
        self.stopping = Stopping::Asked { until: later(self.grace) };
    }

    fn kill(&mut self) {
        self.signal_running(SIGKILL);
        self.stopping = Stopping::Killed { until: later(MOMENT) };
    }

    fn signal_running(&self, signal: i32) {
        self.runs().for_each(|rank| self.ranks.signal(rank, signal));
    }

    fn runs(&self) -> impl Iterator<Item = usize> {
        self.running.iter().enumerate().filter(|(_, running)| **running).map(|(rank, _)| rank)
    }

    /// `rank 3`, or `ranks 0 1 7`.
    fn who_runs(&self) -> String {
        let mut who = if self.runs().count() == 1 { "rank".to_owned() } else { "ranks".to_owned() };
        for rank in self.runs() {
            write!(who, " {rank}").expect("a String takes all");
        }
        who
    }
}

/// A time that far from now, or a year where the clock cannot hold it.
fn later(wait: Duration) -> Instant {
    const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
    Instant::now() + wait.min(YEAR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_death_comes_before_the_errors_that_it_caused() {
        let together = vec![
            Event::Ended(0, ProcessEnd::Exited(1)),
            Event::Ended(2, ProcessEnd::Killed(11)),
            Event::Signal(15),
            Event::Ended(1, ProcessEnd::Exited(1)),
        ];
        let ordered = in_causal_order(together);
        assert!(matches!(
            ordered[..],
            [Event::Ended(2, _), Event::Ended(0, _), Event::Signal(15), Event::Ended(1, _)]
        ));
    }

    #[test]
    fn the_code_is_that_of_the_first_cause() {
        let failure = |end| Some(Failure { rank: 1, end });
        let check = |failure, signal, code| assert_eq!(Outcome { failure, signal }.code(), code);
        check(None, None, 0);
        check(failure(ProcessEnd::Exited(3)), None, 3);
        check(failure(ProcessEnd::Killed(9)), Some(15), 137);
        check(None, Some(2), 130);
    }
}

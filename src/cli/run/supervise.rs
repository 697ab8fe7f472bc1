//! Waits for ranks to end, and ends them: finds the first failure, signals the other ranks to end,
//! and kills those that remain.

use std::io;
use std::time::Duration;

use crate::process::{self, ProcessEnd};
use crossbeam_channel::Receiver;
use signal_hook::consts::{SIGKILL, SIGTERM};

use super::first_failure::FirstFailure;
use super::lines::say;
use super::outcome::{JobOutcome, RankFailure};
use super::ranks::{
    KILL_TIMEOUT, LaunchEvent, Patience, StartedRanks, deadline_after, in_causal_order,
};
use super::signals::{self, ENDING};
use super::started::{StartedProcess, are, not_started, running_names};
use super::stopping::Stopping;
use crate::output::OutputError;

/// How long the rank that failed first may take to end, once others have ended because of it.
const BLAMED_TIME: Duration = Duration::from_secs(2);

/// Supervises ranks from the start of the first to the end of the last.
pub(super) struct Supervisor<'a> {
    events: &'a Receiver<LaunchEvent>,
    world: usize,
    patience: Patience,
    /// The processes that were started.
    started: Vec<StartedProcess>,
    /// Whether a rank has ended with code 0.
    succeeded: bool,
    stopping: Stopping,
    outcome: JobOutcome,
}

impl<'a> Supervisor<'a> {
    pub(super) fn new(world: usize, events: &'a Receiver<LaunchEvent>, patience: Patience) -> Self {
        Self {
            events,
            world,
            patience,
            started: Vec::new(),
            succeeded: false,
            stopping: Stopping::No,
            outcome: JobOutcome::default(),
        }
    }

    /// Starts all ranks with `start`, each after the events that came before it. Starts no more
    /// once the job is being stopped.
    ///
    /// # Errors
    ///
    /// The first error of `start`.
    pub(super) fn start_all<R: StartedRanks>(
        &mut self,
        ranks: &mut R,
        mut start: impl FnMut(&mut R, usize) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        for rank in 0..self.world {
            self.handle_all(ranks, self.events.try_iter().collect());
            if !matches!(self.stopping, Stopping::No) {
                break;
            }
            start(ranks, rank)?;
            self.started.push(StartedProcess { rank, is_running: true });
        }
        Ok(())
    }

    /// Waits until all ranks have ended. Gives up on ranks that do not end after SIGKILL.
    pub(super) fn until_all_ended(mut self, ranks: &impl StartedRanks) -> JobOutcome {
        while self.running_places().next().is_some() {
            match (self.next(), self.stopping) {
                (Some(event), _) => {
                    let events = std::iter::once(event).chain(self.events.try_iter());
                    self.handle_all(ranks, events.collect());
                }
                (None, Stopping::Killed(_)) => {
                    let names = running_names(&self.started);
                    say(&format!("{names} did not end after SIGKILL; {} left behind", are(&names)));
                    self.outcome.left_behind = true;
                    break;
                }
                (None, Stopping::No) => unreachable!("it waits without a deadline"),
                (None, Stopping::Blamed(_)) => self.end_others(ranks),
                (None, Stopping::Failed(_)) => {
                    self.request_end(ranks, SIGTERM);
                    let names = running_names(&self.started);
                    let grace = self.patience.failure_grace;
                    say(&format!(
                        "{names} did not end within {grace:?}, and {} asked to",
                        are(&names)
                    ));
                }
                (None, Stopping::Asked(_)) => {
                    let names = running_names(&self.started);
                    let grace = self.patience.grace;
                    say(&format!(
                        "{names} did not end within {grace:?} and {} killed",
                        are(&names)
                    ));
                    self.kill(ranks);
                }
            }
        }
        self.outcome
    }

    fn handle_all(&mut self, ranks: &impl StartedRanks, together: Vec<LaunchEvent>) {
        in_causal_order(together).into_iter().for_each(|event| self.handle(ranks, event));
    }

    /// The next event, or `None` when the deadline of the current stage passes.
    fn next(&mut self) -> Option<LaunchEvent> {
        match self.stopping.until() {
            Some(until) => self.events.recv_deadline(until).ok(),
            None => Some(self.events.recv().expect("the ranks hold a sender")),
        }
    }

    fn handle(&mut self, ranks: &impl StartedRanks, event: LaunchEvent) {
        match event {
            LaunchEvent::Ended(place, end) => self.process_ended(ranks, place, Some(end)),
            LaunchEvent::Lost(place) => self.process_ended(ranks, place, None),
            LaunchEvent::ChildEnded => ranks.collect_orphans(),
            LaunchEvent::OutputFailed(error) => self.output_failed(ranks, error),
            LaunchEvent::Signal(signal) if ENDING.contains(&signal) => {
                self.end_on_signal(ranks, signal);
            }
            LaunchEvent::Signal(signal) => self.signal_running(ranks, signal),
        }
    }

    /// `end`: how the process at `place` has ended; `None` if it was lost with its host.
    fn process_ended(&mut self, ranks: &impl StartedRanks, place: usize, end: Option<ProcessEnd>) {
        let process = &mut self.started[place];
        process.is_running = false;
        let rank = process.rank;
        if end == Some(ProcessEnd::Exited(0)) {
            self.forget_failure();
            self.succeeded = true;
            if self.outcome.blamed == Some(rank) && matches!(self.stopping, Stopping::Blamed(_)) {
                self.end_others(ranks);
            }
            return;
        }
        let failure = RankFailure { rank, end, host: ranks.host(place) };
        if !matches!(self.stopping, Stopping::No) {
            return self.failed_later(ranks, failure);
        }
        if failure.is_closed_pipe() && process::reader_has_left(io::stdout()) {
            let closed = io::ErrorKind::BrokenPipe.into();
            return self.output_failed(ranks, OutputError::new("standard output", closed));
        }
        if self.patience.enable_recovery {
            self.say_loss(&failure);
        }
        self.outcome.losses.push(failure.clone());
        self.outcome.failure.get_or_insert(failure);
        match ranks.first_failure().filter(|first| first.rank != rank) {
            _ if self.patience.enable_recovery => {}
            None => self.end_others(ranks),
            Some(first) => self.blame(ranks, first),
        }
    }

    /// A rank has failed because of `first`, which has time to end, unless it does nothing.
    fn blame(&mut self, ranks: &impl StartedRanks, first: FirstFailure) {
        let runs = self.running_places().any(|place| self.started[place].rank == first.rank);
        self.outcome.blamed = Some(first.rank);
        match runs && !first.was_late {
            true => {
                let time = BLAMED_TIME.max(self.patience.failure_grace);
                self.stopping = Stopping::Blamed(deadline_after(time));
            }
            false => self.end_others(ranks),
        }
    }

    /// A rank has failed after another one. It may be the one that failed first.
    fn failed_later(&mut self, ranks: &impl StartedRanks, failure: RankFailure) {
        let (rank, how) = (failure.rank, failure.description());
        let is_killed = matches!(failure.end, Some(ProcessEnd::Killed(_)));
        match self.stopping {
            Stopping::Failed(_) if self.outcome.blamed == Some(rank) => {
                self.outcome.failure = Some(failure);
            }
            Stopping::Blamed(_) if self.outcome.blamed == Some(rank) => {
                self.outcome.failure = Some(failure);
                self.end_others(ranks);
            }
            // It was not requested to end, and no failure of another rank does this.
            Stopping::Failed(_) if is_killed => say(&format!("rank {rank} {how}, too")),
            _ => {}
        }
    }

    /// Drops the failure before the job's end, if the others were to continue: they have done so.
    /// The end begins when the first rank ends with code 0, or by a signal. Failures after that
    /// count, because no rank continues without those ranks.
    fn forget_failure(&mut self) {
        if self.patience.enable_recovery && !self.succeeded {
            self.outcome.failure = None;
        }
    }

    /// Prints a failure after which the other ranks are left alone.
    fn say_loss(&self, failure: &RankFailure) {
        let how = format!("rank {} {}", failure.rank, failure.description());
        if self.succeeded {
            say(&format!("{how} after a rank had ended with code 0"));
        } else if self.running_places().next().is_none() {
            say(&how);
        } else {
            say(&format!("{how}; the others go on"));
        }
    }

    /// Asks the other ranks to end, or gives them time to end by themselves.
    fn end_others(&mut self, ranks: &impl StartedRanks) {
        let Some(failure) = &self.outcome.failure else { return };
        let (rank, how) = (failure.rank, failure.description());
        let others = self.running_places().count();
        let patience = self.patience.failure_grace;
        if patience.is_zero() {
            self.request_end(ranks, SIGTERM);
        } else {
            self.stopping = Stopping::Failed(deadline_after(patience));
        }
        if others > 0 && patience.is_zero() {
            say(&format!("rank {rank} {how}; stopping {others} other ranks"));
        } else if others > 0 {
            say(&format!("rank {rank} {how}; {others} other ranks have {patience:?} to end"));
        }
    }

    /// Ends a job whose output cannot be written. If the reader of a pipe has closed its end, the
    /// launcher prints nothing.
    fn output_failed(&mut self, ranks: &impl StartedRanks, error: OutputError) {
        if self.stopping.asks_nobody() {
            self.request_end(ranks, SIGTERM);
            if !error.is_closed_pipe() {
                say(&format!("{error}; stopping {}", running_names(&self.started)));
            }
        }
        self.outcome.output.get_or_insert(error);
    }

    fn end_on_signal(&mut self, ranks: &impl StartedRanks, signal: i32) {
        let name = signals::name(signal);
        self.outcome.asked_to_end = true;
        if self.stopping.asks_nobody() {
            self.outcome.signal = Some(signal);
            self.forget_failure();
            self.request_end(ranks, signal);
            say(&format!(
                "{name} passed on to {}{}; send it again to kill at once",
                running_names(&self.started),
                not_started(self.world.saturating_sub(self.started.len()))
            ));
        } else {
            self.kill(ranks);
            say(&format!("second {name}: {} killed", running_names(&self.started)));
        }
    }

    fn request_end(&mut self, ranks: &impl StartedRanks, signal: i32) {
        self.signal_running(ranks, signal);
        self.stopping = Stopping::Asked(deadline_after(self.patience.grace));
    }

    fn kill(&mut self, ranks: &impl StartedRanks) {
        self.signal_running(ranks, SIGKILL);
        self.stopping = Stopping::Killed(deadline_after(KILL_TIMEOUT));
    }

    fn signal_running(&self, ranks: &impl StartedRanks, signal: i32) {
        self.running_places().for_each(|place| ranks.signal(place, signal));
    }

    /// The numbers of the processes that run.
    fn running_places(&self) -> impl Iterator<Item = usize> {
        let started = self.started.iter().enumerate();
        started.filter(|(_, process)| process.is_running).map(|(place, _)| place)
    }
}

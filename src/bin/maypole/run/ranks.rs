//! The processes: started, heard, signalled, and cleared away.

use std::io::{self, IsTerminal, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use maypole_transports::affinity;
use maypole_transports::process::{self, ProcessEnd};
use signal_hook::consts::{SIGKILL, SIGTERM};
use thiserror::Error;

use super::lines::{self, Stream};

/// What a launcher waits for.
pub(super) enum Event {
    /// A rank ended.
    Ended(usize, ProcessEnd),
    /// The launcher got a signal.
    Signal(i32),
}

/// A rank cannot be started. The program is missing, or the system lacks something.
#[derive(Debug, Error)]
#[error("cannot start rank {rank}, `{program}`: {source}")]
pub(crate) struct StartError {
    rank: usize,
    program: String,
    pub(super) source: io::Error,
}

/// All ranks that were started. Dropping it kills those that are left.
pub(super) struct Ranks {
    /// Not waited for before the end: so the numbers of their groups stay theirs.
    children: Vec<Child>,
    /// Whether each keeps to one core.
    bound: bool,
    cleared: bool,
    events: Sender<Event>,
    /// Held by each thread that copies output; all are gone when receiving says so.
    listening: Option<Sender<()>>,
    heard: Receiver<()>,
}

/// How long to wait for what can only be late by a busy machine.
pub(super) const MOMENT: Duration = Duration::from_secs(10);

/// How long to listen to a pipe that was smuggled out of the job by a process that left its group.
const LAST_WORDS: Duration = Duration::from_secs(1);

impl Ranks {
    pub(super) fn new(events: Sender<Event>, bound: bool) -> Ranks {
        let (listening, heard) = mpsc::channel();
        Ranks {
            children: Vec::new(),
            bound,
            cleared: false,
            events,
            listening: Some(listening),
            heard,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.children.len()
    }

    /// Starts the next rank.
    pub(super) fn start(&mut self, mut command: Command, tagged: bool) -> anyhow::Result<()> {
        let rank = self.children.len();
        command.stdin(standard_input(rank));
        if tagged {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        let spawn = process::in_own_group(&mut command);
        // A sandbox that forbids to bind is no reason not to run.
        let child = match self.bound.then(|| affinity::run_bound(rank, || spawn.spawn())) {
            Some(Ok(child)) => child,
            _ => spawn.spawn(),
        };
        let child = child.map_err(|source| {
            let program = command.get_program().to_string_lossy().into_owned();
            StartError { rank, program, source }
        })?;
        self.children.push(child);
        self.listen(rank)?;
        self.await_end(rank)
    }

    fn listen(&mut self, rank: usize) -> anyhow::Result<()> {
        let child = &mut self.children[rank];
        let (out, error) = (child.stdout.take(), child.stderr.take());
        if let Some(out) = out {
            self.copy(rank, out, Stream::Out)?;
        }
        error.map_or(Ok(()), |error| self.copy(rank, error, Stream::Error))
    }

    fn copy(
        &self,
        rank: usize,
        from: impl Read + Send + 'static,
        to: Stream,
    ) -> anyhow::Result<()> {
        let listening = self.listening.clone();
        in_background(move || {
            lines::forward(from, &format!("[rank {rank}] "), to);
            drop(listening);
        })
    }

    fn await_end(&self, rank: usize) -> anyhow::Result<()> {
        let (events, number) = (self.events.clone(), self.children[rank].id());
        in_background(move || {
            if let Ok(end) = process::await_end(number) {
                let _ = events.send(Event::Ended(rank, end));
            }
        })
    }

    /// Sends a signal to a rank and all that it started. What cannot be signalled is of another
    /// user by its own wish.
    pub(super) fn signal(&self, rank: usize, signal: i32) {
        let _ = process::signal_group(&self.children[rank], signal);
    }

    /// Stops what ended ranks left behind, and passes on the last of their output.
    pub(super) fn clear_away(mut self, events: &Receiver<Event>, grace: Duration) {
        (0..self.len()).for_each(|rank| self.signal(rank, SIGTERM));
        self.collect();
        if !self.groups_are_empty_within(grace) {
            (0..self.len()).for_each(|rank| self.signal(rank, SIGKILL));
            self.groups_are_empty_within(MOMENT);
        }
        self.cleared = true;
        self.hear_last_words(events);
    }

    /// Listens until all pipes are closed. Whoever reads the launcher's output may take their time,
    /// so what waits for them is no reason to stop; a pipe that stays open and silent is.
    fn hear_last_words(&mut self, events: &Receiver<Event>) {
        self.listening = None;
        while self.heard.recv_timeout(LAST_WORDS) == Err(RecvTimeoutError::Timeout) {
            let interrupted = events.try_iter().any(|event| matches!(event, Event::Signal(_)));
            if interrupted || !lines::are_waiting() {
                return lines::say(
                    "a process that left its rank's group still holds its output; it is shown no more",
                );
            }
        }
    }

    /// Waits for those that have ended. One that is stuck in the kernel is left to it.
    fn collect(&mut self) {
        for child in &mut self.children {
            let _ = child.try_wait();
        }
    }

    fn groups_are_empty_within(&mut self, limit: Duration) -> bool {
        let start = Instant::now();
        loop {
            self.collect();
            if self.children.iter().all(process::group_is_empty) {
                return true;
            }
            if start.elapsed() >= limit {
                return false;
            }
            // No event tells that a group is empty: its members are not our children.
            thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        if !self.cleared {
            (0..self.len()).for_each(|rank| self.signal(rank, SIGKILL));
            self.groups_are_empty_within(MOMENT);
        }
    }
}

/// Rank 0 reads what is piped into the launcher. Nobody reads a terminal: a group in the background
/// would be stopped for it.
fn standard_input(rank: usize) -> Stdio {
    if rank == 0 && !io::stdin().is_terminal() { Stdio::inherit() } else { Stdio::null() }
}

/// Starts a small thread that nobody joins.
fn in_background(work: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    let thread = thread::Builder::new().stack_size(128 << 10).spawn(work);
    thread.map(drop).context("cannot start a thread: too many processes or threads")
}

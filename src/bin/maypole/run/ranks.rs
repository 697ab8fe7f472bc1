//! The processes of the ranks: starts them, reads their output, signals and stops them.

use std::io::{self, IsTerminal, Read};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use crossbeam_channel::{Receiver, Sender, select};
use maypole_transports::affinity;
use maypole_transports::process::{self, ProcessEnd};
use signal_hook::consts::{SIGKILL, SIGTERM};
use thiserror::Error;

use super::lines::{self, OutputStream};

/// An event that the launcher waits for.
pub(super) enum LaunchEvent {
    /// This rank ended.
    Ended(usize, ProcessEnd),
    /// The launcher received this signal.
    Signal(i32),
}

/// A rank cannot be started: the program is missing or cannot be executed, or the system has no
/// process or memory left.
#[derive(Debug, Error)]
#[error("cannot start rank {rank}, `{program}`: {source}")]
pub(crate) struct StartError {
    rank: usize,
    program: String,
    pub(super) source: io::Error,
}

/// All ranks that were started. Dropping it kills those that still run.
pub(super) struct RankProcesses {
    /// Collected only at the end, so that the kernel does not reuse the numbers of their process
    /// groups.
    children: Vec<Child>,
    /// Whether each rank is bound to one core.
    bound: bool,
    stopped: bool,
    events: Sender<LaunchEvent>,
    /// Each thread that copies output holds a clone. When all are dropped, receiving from
    /// `all_output_read` reports a closed channel.
    reading: Option<Sender<()>>,
    all_output_read: Receiver<()>,
}

/// Time that killed processes get to disappear; only a busy machine needs much of it.
pub(super) const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// How long to read a pipe that stays open and silent after all ranks have ended. A process that
/// left its rank's process group may hold it open.
const SILENT_PIPE: Duration = Duration::from_secs(1);

impl RankProcesses {
    pub(super) fn new(events: Sender<LaunchEvent>, bound: bool) -> RankProcesses {
        let (reading, all_output_read) = crossbeam_channel::bounded(0);
        RankProcesses {
            children: Vec::new(),
            bound,
            stopped: false,
            events,
            reading: Some(reading),
            all_output_read,
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
        // In a sandbox that forbids binding, the rank runs unbound.
        let child = match self.bound.then(|| affinity::run_bound(rank, || spawn.spawn())) {
            Some(Ok(child)) => child,
            _ => spawn.spawn(),
        };
        let child = child.map_err(|source| {
            let program = command.get_program().to_string_lossy().into_owned();
            StartError { rank, program, source }
        })?;
        self.children.push(child);
        self.forward_output(rank)?;
        self.await_end(rank)
    }

    fn forward_output(&mut self, rank: usize) -> anyhow::Result<()> {
        let child = &mut self.children[rank];
        let out = child.stdout.take();
        let error = child.stderr.take();
        if let Some(out) = out {
            self.copy(rank, out, OutputStream::Out)?;
        }
        error.map_or(Ok(()), |error| self.copy(rank, error, OutputStream::Error))
    }

    fn copy(
        &self,
        rank: usize,
        from: impl Read + Send + 'static,
        to: OutputStream,
    ) -> anyhow::Result<()> {
        let reading = self.reading.clone();
        in_background(move || {
            lines::forward(from, &format!("[rank {rank}] "), to);
            drop(reading);
        })
    }

    fn await_end(&self, rank: usize) -> anyhow::Result<()> {
        let events = self.events.clone();
        let number = self.children[rank].id();
        in_background(move || {
            if let Ok(end) = process::await_end(number) {
                let _ = events.send(LaunchEvent::Ended(rank, end));
            }
        })
    }

    /// Sends a signal to the process group of a rank. A process that changed its user cannot be
    /// signalled; that error is ignored.
    pub(super) fn signal(&self, rank: usize, signal: i32) {
        let _ = process::signal_group(&self.children[rank], signal);
    }

    /// Stops the processes that ended ranks left running, and forwards the rest of the output.
    pub(super) fn stop_remaining(mut self, events: &Receiver<LaunchEvent>, grace: Duration) {
        (0..self.len()).for_each(|rank| self.signal(rank, SIGTERM));
        self.collect();
        if !self.groups_are_empty_within(grace) {
            (0..self.len()).for_each(|rank| self.signal(rank, SIGKILL));
            self.groups_are_empty_within(KILL_TIMEOUT);
        }
        self.stopped = true;
        self.forward_rest(events);
    }

    /// Forwards output until all pipes are closed. Gives up on a signal, and where a pipe stays
    /// open and silent. A slow reader of the launcher's output is no reason to give up.
    fn forward_rest(&mut self, events: &Receiver<LaunchEvent>) {
        self.reading = None;
        loop {
            select! {
                recv(self.all_output_read) -> _ => return,
                recv(events) -> event => if matches!(event, Ok(LaunchEvent::Signal(_))) {
                    break;
                },
                default(SILENT_PIPE) => if !lines::are_being_written() {
                    break;
                },
            }
        }
        lines::say(
            "a process outside its rank's group keeps the output open; the rest is not shown",
        );
    }

    /// Collects the exit codes of ranks that have ended; does not wait.
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
            // The kernel reports no event when a process group becomes empty: most members are not
            // children of this process.
            thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for RankProcesses {
    fn drop(&mut self) {
        if !self.stopped {
            (0..self.len()).for_each(|rank| self.signal(rank, SIGKILL));
            self.groups_are_empty_within(KILL_TIMEOUT);
        }
    }
}

/// Rank 0 inherits the launcher's standard input unless it is a terminal: ranks are background
/// process groups, and the kernel stops a background group that reads from the terminal.
fn standard_input(rank: usize) -> Stdio {
    if rank == 0 && !io::stdin().is_terminal() { Stdio::inherit() } else { Stdio::null() }
}

/// Starts a thread with a small stack; it is never joined.
fn in_background(work: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    let thread = thread::Builder::new().stack_size(128 << 10).spawn(work);
    thread.map(drop).context(
        "cannot start a thread: raise the limit of processes (`ulimit -u`), or start fewer ranks",
    )
}

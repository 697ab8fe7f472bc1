//! The processes of the ranks: starts them, forwards their output, signals and stops them.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use crossbeam_channel::{Receiver, Sender, select};
use maypole_transports::affinity;
use maypole_transports::process::{self, ProcessEnd};
use signal_hook::consts::{SIGKILL, SIGTERM};
use thiserror::Error;

use super::Bind;
use super::ends::EndWatch;
use super::forward::OutputForwarder;
use super::lines::{self, OutputStream};
use super::orphans::Orphans;
use super::signals::ENDING;
use crate::output::OutputError;

/// An event that the launcher waits for.
pub(super) enum LaunchEvent {
    /// A process ended: its index in the order of starts, and how.
    Ended(usize, ProcessEnd),
    /// A process of this group has joined other ranks.
    Joined(u32),
    /// The launcher received this signal.
    Signal(i32),
    /// A child of the launcher ended: a rank, or a process that a rank had left behind.
    ChildEnded,
    /// The launcher's own output cannot be written.
    OutputFailed(OutputError),
}

/// The time `wait` from now, at most a year.
pub(super) fn deadline_after(wait: Duration) -> Instant {
    const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
    Instant::now() + wait.min(YEAR)
}

/// Orders events that arrived together. A failure of the launcher's output comes first: it closes
/// the pipes of ranks, which then die. That a process has joined is next: it is a rank from then on. A
/// death by signal follows: it is the cause of errors on other ranks, which lost their peer, and never
/// their consequence.
pub(super) fn in_causal_order(mut together: Vec<LaunchEvent>) -> Vec<LaunchEvent> {
    together.sort_by_key(|event| match event {
        LaunchEvent::OutputFailed(_) => 0,
        LaunchEvent::Joined(_) => 1,
        LaunchEvent::Ended(_, ProcessEnd::Killed(_)) => 2,
        _ => 3,
    });
    together
}

/// A rank cannot be started: the program is missing or cannot be executed, or the system has no
/// process or memory left.
#[derive(Debug, Error)]
#[error("cannot start rank {rank}, `{program}`: {source}{}", remedy(source))]
pub(crate) struct StartError {
    rank: usize,
    program: String,
    pub(super) source: io::Error,
}

fn remedy(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::WouldBlock => {
            "; no process is left: start fewer ranks, or raise the limit of processes (`ulimit -u`)"
        }
        _ => "",
    }
}

/// What happened after the last rank had ended.
#[derive(Debug, Default)]
pub(super) struct RestOfJob {
    /// Why the rest of the output could not be written.
    pub(super) output: Option<OutputError>,
    /// Whether a signal has asked the launcher to end.
    pub(super) asked_to_end: bool,
}

impl RestOfJob {
    fn add(&mut self, event: LaunchEvent) {
        match event {
            LaunchEvent::OutputFailed(error) => drop(self.output.get_or_insert(error)),
            LaunchEvent::Signal(signal) => self.asked_to_end |= ENDING.contains(&signal),
            LaunchEvent::Ended(..) | LaunchEvent::Joined(_) | LaunchEvent::ChildEnded => {}
        }
    }
}

/// All ranks that were started. Dropping it kills those that still run.
pub(super) struct RankProcesses {
    /// Collected only at the end, so that the kernel does not reuse the numbers of their process
    /// groups.
    children: Vec<Child>,
    numbers: BTreeSet<u32>,
    orphans: Orphans,
    options: StartOptions,
    stopped: bool,
    ends: EndWatch,
    output: OutputForwarder,
}

/// What is equal for all ranks.
#[derive(Clone, Copy)]
pub(super) struct StartOptions {
    pub(super) world: usize,
    /// Which cores each rank may run on.
    pub(super) bind: Bind,
    /// The soft limit of descriptors of a rank; `None` for that of the launcher.
    pub(super) descriptors: Option<u64>,
}

/// Time that killed processes get to disappear; only a busy machine needs much of it.
pub(super) const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// How long to read a pipe that stays open and silent after all ranks have ended. A process that is
/// no descendant of the launcher may hold it open.
const SILENT_PIPE: Duration = Duration::from_secs(1);

impl RankProcesses {
    pub(super) fn new(events: Sender<LaunchEvent>, options: StartOptions) -> Result<Self> {
        Ok(Self {
            children: Vec::new(),
            numbers: BTreeSet::new(),
            orphans: Orphans::adopt(),
            options,
            stopped: false,
            ends: EndWatch::start(events.clone())?,
            output: OutputForwarder::start(events)?,
        })
    }

    pub(super) fn len(&self) -> usize {
        self.children.len()
    }

    /// The group of the process that was started last.
    pub(super) fn last_group(&self) -> Option<u32> {
        self.children.last().map(Child::id)
    }

    /// Starts the next process, which is `rank`. Processes are counted from 0.
    pub(super) fn start(&mut self, mut command: Command, rank: usize, tagged: bool) -> Result<()> {
        let place = self.children.len();
        command.stdin(standard_input(rank));
        if tagged {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        if let Some(soft) = self.options.descriptors {
            process::with_descriptor_limit(&mut command, soft);
        }
        let spawn = process::in_own_group(&mut command);
        // In a sandbox that forbids binding, the rank runs unbound.
        let cores = self.options.bind.cores(rank, self.options.world);
        let child = match cores.map(|cores| affinity::run_bound(&cores, || spawn.spawn())) {
            Some(Ok(child)) => child,
            _ => spawn.spawn(),
        };
        let mut child = child.map_err(|source| {
            let program = command.get_program().to_string_lossy().into_owned();
            StartError { rank, program, source }
        })?;
        let number = child.id();
        let out = child.stdout.take().map(OwnedFd::from);
        let error = child.stderr.take().map(OwnedFd::from);
        self.numbers.insert(number);
        self.children.push(child);
        for (pipe, to) in [(out, OutputStream::Out), (error, OutputStream::Error)] {
            if let Some(pipe) = pipe {
                self.output.add(pipe, format!("[rank {rank}] "), to);
            }
        }
        let watched = self.ends.add(place, number);
        if watched.is_err() {
            // The next process gets this place.
            let mut child = self.children.pop().expect("it was just added");
            let _ = process::signal_group(&child, SIGKILL);
            let _ = child.wait();
            self.numbers.remove(&number);
        }
        watched
    }

    /// Sends a signal to the process group of the process at `place`. A process that changed its user
    /// cannot be signalled; that error is ignored.
    pub(super) fn signal(&self, place: usize, signal: i32) {
        let _ = process::signal_group(&self.children[place], signal);
    }

    /// Collects the processes that ranks left behind and that have ended; does not wait.
    pub(super) fn collect_orphans(&self) {
        self.living_orphans();
    }

    fn living_orphans(&self) -> Vec<u32> {
        self.orphans.living(|number| self.numbers.contains(&number))
    }

    /// Stops the processes that ended ranks left running, and forwards the rest of the output.
    pub(super) fn stop_remaining(
        mut self,
        events: &Receiver<LaunchEvent>,
        grace: Duration,
    ) -> RestOfJob {
        if !self.end_within(SIGTERM, grace) {
            self.end_within(SIGKILL, KILL_TIMEOUT);
        }
        self.stopped = true;
        self.forward_rest(events)
    }

    /// Forwards output until all pipes are closed. Gives up on a signal, and where a pipe stays
    /// open and silent. A slow reader of the launcher's output is no reason to give up.
    fn forward_rest(&mut self, events: &Receiver<LaunchEvent>) -> RestOfJob {
        let all_read = self.output.close();
        let mut rest = RestOfJob::default();
        loop {
            select! {
                recv(all_read) -> _ => break,
                recv(events) -> event => match event {
                    Ok(event) => {
                        let cuts = matches!(event, LaunchEvent::Signal(_));
                        rest.add(event);
                        if cuts {
                            say_output_is_cut();
                            break;
                        }
                    }
                    Err(_) => break,
                },
                default(SILENT_PIPE) => if !lines::are_being_written() {
                    say_output_is_cut();
                    break;
                },
            }
        }
        // The last failure may have been told at the same time as the end.
        events.try_iter().for_each(|event| rest.add(event));
        rest
    }

    /// Signals all groups and orphans, and waits until none is left. Orphans that appear meanwhile,
    /// because their parents have ended, are signalled too.
    fn end_within(&mut self, signal: i32, limit: Duration) -> bool {
        let start = Instant::now();
        (0..self.len()).for_each(|rank| self.signal(rank, signal));
        let mut signalled = BTreeSet::new();
        loop {
            self.collect();
            let orphans = self.living_orphans();
            if orphans.is_empty() && self.children.iter().all(process::group_is_empty) {
                return true;
            }
            for orphan in orphans {
                if signalled.insert(orphan) {
                    // A process that changed its user cannot be signalled.
                    let _ = process::signal_child(orphan, signal);
                }
            }
            if start.elapsed() >= limit {
                return false;
            }
            // The kernel reports no event when a process group becomes empty: most members are not
            // children of this process.
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Collects the exit codes of ranks that have ended; does not wait.
    fn collect(&mut self) {
        for child in &mut self.children {
            let _ = child.try_wait();
        }
    }
}

impl Drop for RankProcesses {
    fn drop(&mut self) {
        if !self.stopped {
            self.end_within(SIGKILL, KILL_TIMEOUT);
        }
    }
}

fn say_output_is_cut() {
    lines::say("a process outside the job keeps the output open; the rest is not shown");
}

/// Rank 0 inherits the launcher's standard input unless it is a terminal: ranks are background
/// process groups, and the kernel stops a background group that reads from the terminal.
fn standard_input(rank: usize) -> Stdio {
    if rank == 0 && !io::stdin().is_terminal() { Stdio::inherit() } else { Stdio::null() }
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
}

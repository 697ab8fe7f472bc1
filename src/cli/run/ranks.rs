//! The processes of the ranks: starts them, forwards their output, signals and stops them.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::affinity;
use crate::process::{self, ProcessEnd};
use anyhow::Result;
use crossbeam_channel::{Receiver, Sender, select};
use signal_hook::consts::{SIGKILL, SIGTERM};
use thiserror::Error;

use super::first_failure::FirstFailure;
use super::forward::OutputForwarder;
use super::lines::{self, OutputStream};
use super::orphans::Orphans;
use super::signals::ENDING;
use super::{Bind, start_thread};
use crate::output::OutputError;

/// An event that the launcher waits for.
pub(super) enum LaunchEvent {
    /// A process ended: its index in the order of starts, and how.
    Ended(usize, ProcessEnd),
    /// The connection to the host of a process was lost: the index of the process.
    Lost(usize),
    /// The launcher received this signal.
    Signal(i32),
    /// A child of the launcher ended: a rank, or a process that a rank had started.
    ChildEnded,
    /// The launcher's own output cannot be written.
    OutputFailed(OutputError),
}

/// What happens after the failure of a rank, and how long it takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// Time from SIGTERM to SIGKILL.
    pub(super) grace: Duration,
    /// Time from the failure of a rank to SIGTERM for the others.
    pub(super) failure_grace: Duration,
    /// The others are left alone.
    pub(super) enable_recovery: bool,
}

/// The time `wait` from now, at most a year.
pub(super) fn deadline_after(wait: Duration) -> Instant {
    const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
    Instant::now() + wait.min(YEAR)
}

/// Orders events that arrived together. A failure of the launcher's output comes first: it closes
/// the pipes of ranks, which then die. A death by signal or with the host follows: it is the cause of
/// errors on other ranks, which lost their peer, and never their consequence.
pub(super) fn in_causal_order(mut together: Vec<LaunchEvent>) -> Vec<LaunchEvent> {
    together.sort_by_key(|event| match event {
        LaunchEvent::OutputFailed(_) => 0,
        LaunchEvent::Ended(_, ProcessEnd::Killed(_)) | LaunchEvent::Lost(_) => 1,
        _ => 2,
    });
    together
}

/// A rank cannot be started: the program is missing or cannot be executed, or the system has no
/// process or memory left.
#[derive(Debug, Error)]
#[error("cannot start rank {rank}{}, `{program}`: {source}{}", on(host), remedy(host, source))]
pub(crate) struct StartError {
    pub(super) rank: usize,
    /// The host, if it is another one.
    pub(super) host: Option<Arc<str>>,
    pub(super) program: String,
    pub(super) source: io::Error,
}

/// ` on b`, or nothing for this host.
pub(super) fn on(host: &Option<Arc<str>>) -> String {
    host.as_ref().map(|host| format!(" on {host}")).unwrap_or_default()
}

fn remedy(host: &Option<Arc<str>>, source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::WouldBlock => {
            "; no process or thread is left: start fewer ranks, or raise the limit of processes (`ulimit -u`, \
             or `pids.max` of the container)"
        }
        io::ErrorKind::NotFound if host.is_some() => "; put it there, in the same place as here",
        _ => "",
    }
}

/// What happened after the last rank had ended.
#[derive(Debug, Default)]
pub(super) struct RestOfJob {
    /// Why the rest of the output could not be written.
    pub(super) output: Option<OutputError>,
    /// Whether the launcher received a signal to end.
    pub(super) asked_to_end: bool,
}

impl RestOfJob {
    pub(super) fn add(&mut self, event: LaunchEvent) {
        match event {
            LaunchEvent::OutputFailed(error) => drop(self.output.get_or_insert(error)),
            LaunchEvent::Signal(signal) => self.asked_to_end |= ENDING.contains(&signal),
            LaunchEvent::Ended(..) | LaunchEvent::Lost(_) | LaunchEvent::ChildEnded => {}
        }
    }
}

/// The processes that were started, on this host or on others. The place of a process is its index in
/// the order of starts.
pub(super) trait StartedRanks {
    /// The host of the process at `place`, if it is another one.
    fn host(&self, place: usize) -> Option<Arc<str>>;

    /// Sends a signal to the process group of the process at `place`.
    fn signal(&self, place: usize, signal: i32);

    /// Collects the ended orphans of ranks; does not wait.
    fn collect_orphans(&self);

    /// The rank that failed first, by the reports until now.
    fn first_failure(&self) -> Option<FirstFailure>;
}

/// All ranks of this host that were started. Dropping it kills those that still run.
pub(super) struct RankProcesses {
    /// Collected only at the end, so that the kernel does not reuse the numbers of their process
    /// groups.
    children: Vec<Child>,
    numbers: BTreeSet<u32>,
    orphans: Orphans,
    options: StartOptions,
    stopped: bool,
    events: Sender<LaunchEvent>,
    output: OutputForwarder,
    inquiry: Box<dyn Fn() -> Option<FirstFailure>>,
}

/// What is equal for all ranks of this host.
#[derive(Clone, Copy)]
pub(super) struct StartOptions {
    /// The first rank, and how many there are.
    pub(super) first: usize,
    pub(super) count: usize,
    /// Rank 0 reads the standard input of the launcher.
    pub(super) reads_input: bool,
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
    pub(super) fn new(
        events: Sender<LaunchEvent>,
        options: StartOptions,
        inquiry: Box<dyn Fn() -> Option<FirstFailure>>,
    ) -> Self {
        Self {
            children: Vec::new(),
            numbers: BTreeSet::new(),
            orphans: Orphans::adopt(),
            options,
            stopped: false,
            output: OutputForwarder::new(events.clone()),
            events,
            inquiry,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.children.len()
    }

    /// Starts the next process, which is `rank`. Processes are counted from 0. Its lines are
    /// forwarded with `tag` in front; without one it writes to the launcher's own output.
    pub(super) fn start(
        &mut self,
        mut command: Command,
        rank: usize,
        tag: Option<String>,
    ) -> Result<()> {
        let place = self.children.len();
        command.stdin(standard_input(rank, self.options.reads_input));
        if tag.is_some() {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        if let Some(soft) = self.options.descriptors {
            process::with_descriptor_limit(&mut command, soft);
        }
        let spawn = process::in_own_group(&mut command);
        // In a sandbox that forbids binding, the rank runs unbound.
        let cores = self.options.bind.cores(rank - self.options.first, self.options.count);
        let child = match cores.map(|cores| affinity::run_bound(&cores, || spawn.spawn())) {
            Some(Ok(child)) => child,
            _ => spawn.spawn(),
        };
        let refused = |source| {
            let program = command.get_program().to_string_lossy().into_owned();
            StartError { rank, host: None, program, source }
        };
        let mut child = child.map_err(refused)?;
        let number = child.id();
        let watched = self.watch(&mut child, place, tag);
        self.numbers.insert(number);
        self.children.push(child);
        if let Err(source) = watched {
            // The next process gets this place.
            let mut child = self.children.pop().expect("it was just added");
            let _ = process::signal_group(&child, SIGKILL);
            let _ = child.wait();
            self.numbers.remove(&number);
            return Err(refused(source).into());
        }
        Ok(())
    }

    /// Forwards the lines of a process with `tag` in front, and sends an event when it ends.
    fn watch(&self, child: &mut Child, place: usize, tag: Option<String>) -> io::Result<()> {
        let out = child.stdout.take().map(OwnedFd::from);
        let error = child.stderr.take().map(OwnedFd::from);
        for (pipe, to) in [(out, OutputStream::Out), (error, OutputStream::Error)] {
            if let (Some(pipe), Some(tag)) = (pipe, &tag) {
                self.output.add(pipe, tag.clone(), to)?;
            }
        }
        let (events, number) = (self.events.clone(), child.id());
        start_thread("end", move || {
            if let Ok(end) = process::await_end(number) {
                // Without a receiver the launcher has ended already.
                let _ = events.send(LaunchEvent::Ended(place, end));
            }
        })
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
        self.end(grace);
        self.forward_rest(events)
    }

    /// Stops all that runs, with SIGTERM, and after `grace` with SIGKILL.
    pub(super) fn end(&mut self, grace: Duration) {
        if !self.end_within(SIGTERM, grace) {
            self.end_within(SIGKILL, KILL_TIMEOUT);
        }
        self.stopped = true;
    }

    /// Forwards output until all pipes are closed. Gives up on a signal, and where a pipe stays
    /// open and silent. A slow reader of the launcher's output is no reason to stop.
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
        // The last failure may arrive at the same time as the end.
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

impl StartedRanks for RankProcesses {
    fn host(&self, _: usize) -> Option<Arc<str>> {
        None
    }

    /// A process that changed its user cannot be signalled; that error is ignored.
    fn signal(&self, place: usize, signal: i32) {
        let _ = process::signal_group(&self.children[place], signal);
    }

    fn collect_orphans(&self) {
        self.living_orphans();
    }

    fn first_failure(&self) -> Option<FirstFailure> {
        (self.inquiry)()
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
fn standard_input(rank: usize, reads_input: bool) -> Stdio {
    let inherits = reads_input && rank == 0 && !io::stdin().is_terminal();
    if inherits { Stdio::inherit() } else { Stdio::null() }
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

//! Hang reports: one page about all ranks, when a rank reports that a deadline has passed, or on
//! request.
//!
//! Each rank that uses maypole connects to an abstract socket of the launcher, whose name is in its
//! environment. The launcher's request is one byte; the reply is one line of JSON for each rank of
//! the process. It is sent by a thread of its own, so also while a rank waits or computes.

mod page;
mod reporter;
mod signal;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context;
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use maypole::comm::status::{RankStatus, StatusMessage};
use maypole_transports::signals;
use maypole_transports::sockets::{listen_abstract, same_user};
use maypole_transports::watch::{Waker, Watch};
use page::JobStatus;
use reporter::Reporter;
pub(super) use signal::status_signal;

use super::first_failure::{FirstFailure, Verdicts};
use super::lines;

/// The longest time until a reply.
const ANSWER_TIME: Duration = Duration::from_secs(1);
/// How long after a rank's failure the page is made, so that the others can report theirs.
const FAILURE_TIME: Duration = Duration::from_millis(800);
/// How long an inquiry may take. The thread may be printing a page to a slow reader.
const INQUIRY_TIME: Duration = Duration::from_secs(1);
const LISTENER: u64 = 0;
const WAKER: u64 = 1;
const SIGNAL: u64 = 2;
/// Connections have numbers from here on.
const FIRST_CONNECTION: u64 = 3;
/// The variable by which ranks find the socket.
const SOCKET: &str = "MAYPOLE_STATUS_SOCKET";

/// Listens to ranks and makes pages, on a thread of its own, until it is dropped.
pub(super) struct HangReports {
    /// The name of the socket; `None` if the system has refused it.
    name: Option<String>,
    stop: Arc<StopRequest>,
    thread: Option<JoinHandle<()>>,
    questions: Sender<Sender<Option<FirstFailure>>>,
}

#[derive(Debug)]
struct StopRequest {
    waker: Waker,
    is_made: AtomicBool,
}

impl HangReports {
    /// Makes pages for the ranks `here` of a job of `world` ranks, also at the signal that `MAYPOLE_STATUS_SIGNAL` names. A system that
    /// refuses the socket or the thread is no reason not to run the job.
    ///
    /// # Errors
    /// If the variable names no signal that a program can handle.
    pub(super) fn start(world: usize, here: Range<usize>) -> anyhow::Result<Self> {
        let signal = status_signal()?;
        let stop = Arc::new(StopRequest { waker: Waker::new()?, is_made: AtomicBool::new(false) });
        let (questions, asked) = unbounded();
        let hub = ReportHub::new((world, here), signal, (Arc::clone(&stop), asked));
        let started = hub.and_then(|(mut hub, name)| {
            let serve = move || {
                if let Err(error) = hub.serve() {
                    lines::say(&format!("there will be no more hang reports: {error}"));
                }
            };
            Ok((name, thread::Builder::new().name("hang-reports".to_owned()).spawn(serve)?))
        });
        let said = |error: &_| lines::say(&format!("there will be no hang reports: {error:#}"));
        let (name, thread) = started.inspect_err(said).ok().unzip();
        Ok(Self { name, stop, thread, questions })
    }

    /// A function that returns the rank that failed first by the reports until then; `None` without
    /// a report of a failure with a culprit.
    pub(super) fn inquiry(&self) -> Box<dyn Fn() -> Option<FirstFailure>> {
        let (stop, questions) = (Arc::clone(&self.stop), self.questions.clone());
        Box::new(move || {
            let (answer, answers) = bounded(1);
            questions.send(answer).ok()?;
            stop.waker.wake();
            answers.recv_timeout(INQUIRY_TIME).ok().flatten()
        })
    }

    /// Tells a rank where to connect.
    pub(super) fn set_variable(&self, command: &mut Command) {
        match &self.name {
            Some(name) => command.env(SOCKET, name),
            // A launcher above this one has ranks of its own.
            None => command.env_remove(SOCKET),
        };
    }
}

impl Drop for HangReports {
    fn drop(&mut self) {
        self.stop.is_made.store(true, Ordering::Release);
        self.stop.waker.wake();
        // A page that is not printed yet is printed now.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A page that is being made.
struct PendingPage {
    reason: String,
    /// When it is printed, with the replies until then.
    until: Instant,
    /// True if it is printed after the last reply.
    ends_early: bool,
}

struct ReportHub {
    world: usize,
    /// The ranks of this host.
    here: Range<usize>,
    listener: UnixListener,
    signal: Option<UnixStream>,
    stop: Arc<StopRequest>,
    questions: Receiver<Sender<Option<FirstFailure>>>,
    verdicts: Verdicts,
    watch: Watch,
    reporters: BTreeMap<u64, Reporter>,
    next_number: u64,
    statuses: BTreeMap<usize, RankStatus>,
    page: Option<PendingPage>,
    /// True once a page has reported a failure.
    failure_told: bool,
}

impl ReportHub {
    /// Listens for ranks, at the returned name.
    fn new(
        (world, here): (usize, Range<usize>),
        signal: Option<i32>,
        (stop, questions): (Arc<StopRequest>, Receiver<Sender<Option<FirstFailure>>>),
    ) -> anyhow::Result<(Self, String)> {
        let (listener, name) = listen_abstract(world.clamp(64, 4096))
            .context("cannot listen for the reports of ranks")?;
        let name = String::from_utf8(name).context("the kernel has named a socket oddly")?;
        listener.set_nonblocking(true)?;
        let signal = signal.map(signals::socket).transpose()?;
        let watch = Watch::new()?;
        watch.add(&listener, LISTENER, false)?;
        watch.add(&stop.waker, WAKER, false)?;
        if let Some(signal) = &signal {
            watch.add(signal, SIGNAL, false)?;
        }
        let this = Self {
            world,
            here,
            listener,
            signal,
            stop,
            questions,
            verdicts: Verdicts::default(),
            watch,
            reporters: BTreeMap::new(),
            next_number: FIRST_CONNECTION,
            statuses: BTreeMap::new(),
            page: None,
            failure_told: false,
        };
        Ok((this, name))
    }

    fn serve(&mut self) -> io::Result<()> {
        let mut numbers = Vec::new();
        while !self.stop.is_made.load(Ordering::Acquire) {
            self.watch.wait(&mut numbers, self.pause())?;
            for number in numbers.drain(..) {
                match number {
                    LISTENER => self.accept(),
                    WAKER => self.answer(),
                    SIGNAL => self.take_signal(),
                    number => self.read(number),
                }
            }
            self.print_if_due();
        }
        if self.page.is_some() {
            // All ranks have ended, so all of their reports have arrived.
            self.read_all();
            self.print();
        }
        Ok(())
    }

    /// Reads all reports, also from new connections.
    fn read_all(&mut self) {
        self.accept();
        let numbers: Vec<u64> = self.reporters.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.read(number));
    }

    /// Answers inquiries. The last report of an ended process has arrived by now.
    fn answer(&mut self) {
        self.stop.waker.clear();
        while let Ok(answer) = self.questions.try_recv() {
            self.read_all();
            let _ = answer.send(self.verdicts.agreed());
        }
    }

    fn take_signal(&mut self) {
        if self.signal.as_ref().is_some_and(signals::take) {
            self.begin("on request".to_owned(), ANSWER_TIME, true);
        }
    }

    /// How long nothing has to be done.
    fn pause(&self) -> Duration {
        self.page.as_ref().map_or(Duration::from_secs(3600), |page| {
            page.until.saturating_duration_since(Instant::now())
        })
    }

    fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            let number = self.next_number;
            let trusted = same_user(&stream).unwrap_or(false);
            let ready = trusted && stream.set_nonblocking(true).is_ok();
            if !ready || self.watch.add(&stream, number, false).is_err() {
                continue;
            }
            self.next_number += 1;
            self.reporters.insert(number, Reporter::new(stream));
        }
    }

    fn read(&mut self, number: u64) {
        let Some(reporter) = self.reporters.get_mut(&number) else { return };
        let (messages, open) = reporter.read();
        if !open {
            self.watch.remove(&reporter.stream);
            self.reporters.remove(&number);
        }
        for StatusMessage { timed_out, status, .. } in messages {
            let rank = status.rank;
            // A program that a rank has started may use maypole, too, and inherits the variable.
            if status.world != self.world {
                continue;
            }
            self.verdicts.note(&status, timed_out);
            self.statuses.insert(rank, status);
            if timed_out && !std::mem::replace(&mut self.failure_told, true) {
                let reason = format!("because rank {rank} reports that a deadline has passed");
                self.begin(reason, FAILURE_TIME, false);
            }
        }
    }

    /// Asks all ranks, for a page.
    fn begin(&mut self, reason: String, time: Duration, ends_early: bool) {
        self.page.get_or_insert(PendingPage { reason, until: Instant::now() + time, ends_early });
        for reporter in self.reporters.values_mut() {
            // A process that reads nothing counts as silent.
            reporter.asked = true;
            let _ = reporter.stream.write(b"?");
        }
    }

    fn print_if_due(&mut self) {
        let Some(page) = &self.page else { return };
        let answered = self.reporters.values().all(|reporter| !reporter.asked);
        if page.ends_early && answered || Instant::now() >= page.until {
            self.print();
        }
    }

    fn print(&mut self) {
        let Some(PendingPage { reason, .. }) = self.page.take() else { return };
        let silent = self.reporters.values().filter(|reporter| reporter.asked);
        let silent: BTreeSet<usize> =
            silent.flat_map(|reporter| reporter.ranks.iter().copied()).collect();
        let connected: BTreeSet<usize> =
            self.reporters.values().flat_map(|reporter| reporter.ranks.iter().copied()).collect();
        let known = self.statuses.keys().copied();
        let job = JobStatus {
            world: self.world,
            here: self.here.clone(),
            reason,
            gone: known.filter(|rank| !connected.contains(rank)).collect(),
            silent: silent.into_iter().collect(),
            statuses: std::mem::take(&mut self.statuses),
        };
        lines::say(job.page().trim_end());
        self.statuses = job.statuses;
    }
}

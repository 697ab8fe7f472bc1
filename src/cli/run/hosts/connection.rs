//! One ssh to an agent: its messages become events, and orders go through a queue, so that the
//! launcher never waits for a host that has stopped to read.

use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use crossbeam_channel::{Receiver, Sender, select};
use maypole_transports::process::{self, ProcessEnd};
use signal_hook::consts::SIGKILL;

use super::messages::{Answer, BEAT, MESSAGE, OUTPUT, Order, clock, line};
use super::shared::{LONGEST_WORDS, MOST_NOISE, SharedConnection, lock};
use super::ssh;
use crate::output::visible;
use crate::run::first_failure::FirstFailure;
use crate::run::lines::{self, OutputStream};
use crate::run::ranks::LaunchEvent;

/// The most bytes of a line that is kept whole; a rank's longer lines are cut before they are sent.
const LONGEST_LINE: u64 = 32 << 20;
/// How long the last words of an ssh that has ended may take.
const LAST_WORDS_TIME: Duration = Duration::from_secs(1);
/// Seconds by which clocks may differ. A message that was long on its way counts as a difference.
const CLOCK_DIFFERENCE: f64 = 5.0;
/// The bytes of a program per write.
const PIECE: usize = 256 << 10;

/// What an agent is sent.
pub(super) enum Outgoing {
    Program(Arc<[u8]>),
    Order(String),
}

/// A host that ssh has been started for. Dropping it kills ssh.
pub(super) struct Connection {
    pub(super) host: Arc<str>,
    child: Arc<Child>,
    /// `None` after the order to end.
    orders: Option<Sender<Outgoing>>,
    /// Disconnected when the connection has ended.
    pub(super) answers: Receiver<Answer>,
    shared: Arc<SharedConnection>,
}

impl Connection {
    /// Starts `ssh`, and the threads that read and write. Sends the events of this host's processes
    /// to `events`. A host that is silent for `patience` is lost.
    pub(super) fn start(
        host: &str,
        mut ssh: Command,
        events: Sender<LaunchEvent>,
        patience: Duration,
    ) -> Result<Self> {
        ssh.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let program = ssh.get_program().to_string_lossy().into_owned();
        let mut child = process::in_own_group(&mut ssh).spawn().with_context(|| {
            format!("cannot start `{program}`: install an ssh client, or name one with --ssh")
        })?;
        let input = child.stdin.take().expect("it is piped");
        let output = child.stdout.take().expect("it is piped");
        let error = child.stderr.take().expect("it is piped");
        let (orders, to_send) = crossbeam_channel::unbounded();
        let (sender, answers) = crossbeam_channel::unbounded();
        let (host, child): (Arc<str>, _) = (host.into(), Arc::new(child));
        let shared = Arc::new(SharedConnection::default());
        let reader = AgentReader {
            host: Arc::clone(&host),
            child: Arc::clone(&child),
            shared: Arc::clone(&shared),
            answers: Some(sender),
            events,
            running: BTreeSet::new(),
            output_failed: false,
        };
        let writer =
            AgentWriter { child: Arc::clone(&child), shared: Arc::clone(&shared), patience };
        let (name, words, ssh) = (Arc::clone(&host), Arc::clone(&shared), Arc::clone(&child));
        let (told, all_told) = crossbeam_channel::bounded::<()>(0);
        spawn(move || {
            let _told = told;
            read_errors(&words, &name, error, &ssh);
        })?;
        spawn(move || reader.run(output, &all_told))?;
        spawn(move || writer.run(to_send, input))?;
        Ok(Self { host, child, orders: Some(orders), answers, shared })
    }

    /// Sends the agent an order, in turn. An agent that is gone is noticed elsewhere.
    pub(super) fn order(&self, order: &Order) {
        self.send(Outgoing::Order(line(order)));
    }

    pub(super) fn send(&self, what: Outgoing) {
        if let Some(orders) = &self.orders {
            let _ = orders.send(what);
        }
    }

    /// Closes the agent's input: the agent ends its ranks, and itself.
    pub(super) fn close(&mut self) {
        self.shared.is_closed.store(true, Ordering::Relaxed);
        self.orders = None;
    }

    /// A number that grows while the host does something.
    pub(super) fn progress(&self) -> u64 {
        self.shared.progress.load(Ordering::Relaxed)
    }

    /// True after the agent's first message.
    pub(super) fn is_greeted(&self) -> bool {
        self.shared.is_greeted.load(Ordering::Relaxed)
    }

    /// The bytes that ssh and the shell have printed.
    pub(super) fn noise(&self) -> u64 {
        self.shared.noise.load(Ordering::Relaxed)
    }

    /// True if ssh was killed because it printed too much before the agent's first message.
    pub(super) fn is_noisy(&self) -> bool {
        !self.is_greeted() && self.noise() > MOST_NOISE
    }

    /// Kills ssh. The agent then reads the end of its input.
    pub(super) fn kill(&self) {
        let _ = process::signal_group(&self.child, SIGKILL);
    }

    /// How ssh has ended, if it has.
    pub(super) fn end(&self) -> Option<ProcessEnd> {
        *lock(&self.shared.end)
    }

    /// The rank that failed first, by the reports of this host's ranks.
    pub(super) fn first_failure(&self) -> Option<FirstFailure> {
        *lock(&self.shared.first_failure)
    }

    /// The last lines of ssh and of the shell on the host.
    pub(super) fn last_words(&self) -> String {
        self.shared.last_words()
    }

    /// Why the connection was lost, as the end of a sentence.
    pub(super) fn reason(&self) -> String {
        self.shared.reason()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.close();
        self.kill();
        let _ = process::await_end(self.child.id());
        process::collect(self.child.id());
    }
}

/// Forwards the lines of ranks, and keeps those of ssh and of the shell. The agent's own lines are
/// shown as well.
fn read_errors(shared: &SharedConnection, host: &str, error: impl Read, child: &Child) {
    let mut can_write = true;
    each_line(error, |line| {
        let is_greeted = shared.is_greeted.load(Ordering::Relaxed);
        let shown = match line.strip_prefix(&[OUTPUT]).filter(|_| is_greeted) {
            Some(of_rank) => of_rank.to_vec(),
            None if line.starts_with(b"maypole: ") && line.len() <= LONGEST_WORDS => {
                let text = String::from_utf8_lossy(line);
                format!("[{host}] {}\n", visible(text.trim_end())).into_bytes()
            }
            None => {
                if !shared.keep(line) {
                    let _ = process::signal_group(child, SIGKILL);
                }
                return;
            }
        };
        can_write = can_write && OutputStream::Error.write(&shown).is_ok();
    });
}

/// The thread that reads an agent's output.
struct AgentReader {
    host: Arc<str>,
    child: Arc<Child>,
    shared: Arc<SharedConnection>,
    answers: Option<Sender<Answer>>,
    events: Sender<LaunchEvent>,
    /// The places of the processes that run on this host.
    running: BTreeSet<usize>,
    /// The launcher's standard output cannot be written.
    output_failed: bool,
}

impl AgentReader {
    /// `all_told` is disconnected when ssh has closed its standard error.
    fn run(mut self, output: impl Read, all_told: &Receiver<()>) {
        each_line(output, |line| {
            let is_greeted = self.shared.is_greeted.load(Ordering::Relaxed);
            let answer = match line.split_first() {
                Some((&OUTPUT, of_rank)) if is_greeted => {
                    self.shared.progress.fetch_add(1, Ordering::Relaxed);
                    return self.forward(of_rank);
                }
                Some((&MESSAGE, message)) => serde_json::from_slice(message).ok(),
                _ => None,
            };
            match answer {
                Some(answer) => {
                    self.shared.progress.fetch_add(1, Ordering::Relaxed);
                    self.take(answer);
                }
                None if !self.shared.keep(line) => {
                    let _ = process::signal_group(&self.child, SIGKILL);
                }
                None => {}
            }
        });
        let end = ssh::end_of(&self.child);
        // ssh prints the reason before it ends. A process that it has left running may keep the
        // pipe open.
        let _ = all_told.recv_timeout(LAST_WORDS_TIME);
        *lock(&self.shared.end) = end.or(Some(ProcessEnd::Killed(SIGKILL)));
        self.lose_all();
    }

    fn forward(&mut self, line: &[u8]) {
        if self.output_failed {
            return;
        }
        if let Err(error) = OutputStream::Out.write(line) {
            self.output_failed = true;
            let _ = self.events.send(LaunchEvent::OutputFailed(error));
        }
    }

    fn take(&mut self, answer: Answer) {
        let event = match answer {
            Answer::Beat => return,
            Answer::FirstFailure(first) => {
                *lock(&self.shared.first_failure) = Some(first);
                return;
            }
            Answer::Ended(place, end) => {
                self.running.remove(&place);
                LaunchEvent::Ended(place, end.into())
            }
            // A place is unique among all hosts, and takes the part of the process's group.
            Answer::Joined(place) => LaunchEvent::Joined(place as u32),
            answer => {
                match &answer {
                    Answer::Started(place) => drop(self.running.insert(*place)),
                    Answer::Hello(hello) => {
                        self.shared.is_greeted.store(true, Ordering::Relaxed);
                        self.compare_clocks(hello.clock);
                    }
                    Answer::Unfit(_) => self.shared.is_greeted.store(true, Ordering::Relaxed),
                    _ => {}
                }
                if let Some(answers) = &self.answers {
                    let _ = answers.send(answer);
                }
                return;
            }
        };
        let _ = self.events.send(event);
    }

    /// Says that the clock of the host is wrong, or that of this one.
    fn compare_clocks(&self, theirs: f64) {
        let ahead = theirs - clock();
        if ahead.abs() > CLOCK_DIFFERENCE {
            let how = if ahead > 0.0 { "ahead of" } else { "behind" };
            lines::say(&format!(
                "the clock of {} is {:.0} s {how} this one's, and so are times in its logs and \
                 traces: set both clocks, as by `timedatectl set-ntp true`",
                self.host,
                ahead.abs()
            ));
        }
    }

    /// Says that the host is lost, if processes ran there.
    fn lose_all(&mut self) {
        if !self.running.is_empty() && !self.shared.is_closed.load(Ordering::Relaxed) {
            let reason = self.shared.reason();
            lines::say(&format!("the connection to {} was lost{reason}", self.host));
        }
        for place in std::mem::take(&mut self.running) {
            let _ = self.events.send(LaunchEvent::Lost(place));
        }
        self.answers = None;
    }
}

/// For how many beats nothing has come, since the progress was `seen`.
struct SilenceCount {
    seen: u64,
    beats: u32,
}

/// The thread that writes to an agent, and detects its silence.
struct AgentWriter {
    child: Arc<Child>,
    shared: Arc<SharedConnection>,
    patience: Duration,
}

impl AgentWriter {
    fn run(self, to_send: Receiver<Outgoing>, mut input: ChildStdin) {
        // An agent without orders may be a shell that waits for a program.
        let mut has_orders = false;
        let ticks = crossbeam_channel::tick(BEAT);
        let mut silence = SilenceCount { seen: 0, beats: 0 };
        loop {
            let written = select! {
                recv(to_send) -> what => match what {
                    Ok(Outgoing::Program(bytes)) => self.write_program(&bytes, &mut input),
                    Ok(Outgoing::Order(text)) => {
                        has_orders = true;
                        input.write_all(text.as_bytes())
                    }
                    Err(_) => return,
                },
                recv(ticks) -> _ => match has_orders {
                    true if self.is_lost(&mut silence) => return,
                    // An agent that has greeted waits for orders, and ends without a heartbeat.
                    _ if has_orders || self.shared.is_greeted.load(Ordering::Relaxed) => {
                        input.write_all(line(&Order::Beat).as_bytes())
                    }
                    _ => Ok(()),
                },
            };
            // The reader detects the end of the connection.
            if written.is_err() {
                return;
            }
        }
    }

    /// Drops the host if it has been silent for too long. Counts beats of this thread, so that a
    /// stop of the whole launcher is no silence of the host.
    fn is_lost(&self, silence: &mut SilenceCount) -> bool {
        let heard = self.shared.progress.load(Ordering::Relaxed);
        // A slow reader of the launcher's output delays the host's messages.
        let is_silent = heard == silence.seen && !lines::are_being_written();
        *silence = SilenceCount { seen: heard, beats: u32::from(is_silent) * (silence.beats + 1) };
        let is_lost = BEAT * silence.beats >= self.patience;
        if is_lost {
            *lock(&self.shared.silence) = Some(self.patience);
            let _ = process::signal_group(&self.child, SIGKILL);
        }
        is_lost
    }

    fn write_program(&self, bytes: &[u8], input: &mut ChildStdin) -> io::Result<()> {
        bytes.chunks(PIECE).try_for_each(|piece| {
            self.shared.progress.fetch_add(1, Ordering::Relaxed);
            input.write_all(piece)
        })
    }
}

/// Calls `take` with every line, with its end, until the stream ends.
fn each_line(stream: impl Read, mut take: impl FnMut(&[u8])) {
    let mut stream = BufReader::with_capacity(64 << 10, stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        match stream.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line) {
            Ok(0) => return,
            Ok(_) => take(&line),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

fn spawn(work: impl FnOnce() + Send + 'static) -> Result<()> {
    let thread = thread::Builder::new().stack_size(256 << 10).spawn(work);
    thread
        .map(drop)
        .context("cannot start a thread for a host; raise `ulimit -u`, or name fewer hosts")
}

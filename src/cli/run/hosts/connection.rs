//! One ssh to the launcher of another host: its messages become events, and orders go through a queue,
//! so that this launcher never waits for a host that has stopped to read.

use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::process::{self, ProcessEnd};
use anyhow::{Context, Result};
use crossbeam_channel::{Receiver, Sender, select};
use signal_hook::consts::SIGKILL;

use super::messages::{Answer, BEAT, MESSAGE, OUTPUT, Order, line};
use super::shared::{LONGEST_WORDS, SharedConnection, lock};
use super::ssh;
use crate::output::visible;
use crate::run::lines::{self, OutputStream};
use crate::run::ranks::LaunchEvent;
use crate::run::start_thread;

/// The most bytes of a line that is kept whole; a rank's longer lines are cut before they are sent.
const LONGEST_LINE: u64 = 32 << 20;
/// How long the last words of an ssh that has ended may take.
const LAST_WORDS_TIME: Duration = Duration::from_secs(1);

/// A host that ssh has been started for. Dropping it kills ssh.
pub(super) struct Connection {
    pub(super) host: Arc<str>,
    child: Arc<Child>,
    /// `None` after the order to end.
    orders: Option<Sender<String>>,
    /// Disconnected when the connection has ended.
    pub(super) answers: Receiver<Answer>,
    pub(super) shared: Arc<SharedConnection>,
}

impl Connection {
    /// Starts `ssh`, and the threads that read and write. Sends the
    /// events of the host's processes to `events`. A host that is silent for `patience` is lost.
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
        let reader = HostReader {
            host: Arc::clone(&host),
            child: Arc::clone(&child),
            shared: Arc::clone(&shared),
            answers: Some(sender),
            events,
            running: BTreeSet::new(),
            output_failed: false,
        };
        let writer =
            HostWriter { child: Arc::clone(&child), shared: Arc::clone(&shared), patience };
        let (name, words) = (Arc::clone(&host), Arc::clone(&shared));
        let (told, all_told) = crossbeam_channel::bounded::<()>(0);
        spawn(move || {
            let _told = told;
            read_errors(&words, &name, error);
        })?;
        spawn(move || reader.run(output, &all_told))?;
        spawn(move || writer.run(to_send, input))?;
        Ok(Self { host, child, orders: Some(orders), answers, shared })
    }

    /// Sends the host an order, in turn. A host that is gone is noticed elsewhere.
    pub(super) fn order(&self, order: &Order) {
        if let Some(orders) = &self.orders {
            let _ = orders.send(line(order));
        }
    }

    /// Closes the input of the host's launcher, which then ends its ranks, and itself.
    pub(super) fn close(&mut self) {
        self.shared.is_closed.store(true, Ordering::Relaxed);
        self.orders = None;
    }

    /// Kills ssh. The host's launcher then reads the end of its input.
    pub(super) fn kill(&self) {
        let _ = process::signal_group(&self.child, SIGKILL);
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

/// Forwards the lines of ranks, and keeps those of ssh and of the shell. The lines of the host's
/// launcher are shown as well.
fn read_errors(shared: &SharedConnection, host: &str, error: impl Read) {
    let mut can_write = true;
    each_line(error, |line| {
        let shown = match line.strip_prefix(&[OUTPUT]).filter(|_| shared.is_greeted()) {
            Some(of_rank) => of_rank.to_vec(),
            None if line.starts_with(b"maypole: ") && line.len() <= LONGEST_WORDS => {
                let text = String::from_utf8_lossy(line);
                format!("[{host}] {}\n", visible(text.trim_end())).into_bytes()
            }
            None => return shared.keep(line),
        };
        can_write = can_write && OutputStream::Error.write(&shown).is_ok();
    });
}

/// The thread that reads the output of a host's launcher.
struct HostReader {
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

impl HostReader {
    /// `all_told` is disconnected when ssh has closed its standard error.
    fn run(mut self, output: impl Read, all_told: &Receiver<()>) {
        each_line(output, |line| {
            let answer = match line.split_first() {
                Some((&OUTPUT, of_rank)) if self.shared.is_greeted() => {
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
                None => self.shared.keep(line),
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
                LaunchEvent::Ended(place, end)
            }
            answer => {
                match &answer {
                    Answer::Started(place) => drop(self.running.insert(*place)),
                    Answer::Hello(_) | Answer::Unfit(_) => {
                        self.shared.is_greeted.store(true, Ordering::Relaxed);
                    }
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

/// The thread that writes to a host's launcher, and detects its silence.
struct HostWriter {
    child: Arc<Child>,
    shared: Arc<SharedConnection>,
    patience: Duration,
}

impl HostWriter {
    fn run(self, to_send: Receiver<String>, mut input: ChildStdin) {
        let ticks = crossbeam_channel::tick(BEAT);
        let mut silence = (0, 0);
        loop {
            let text = select! {
                recv(to_send) -> order => match order {
                    Ok(order) => order,
                    Err(_) => return,
                },
                recv(ticks) -> _ => match self.shared.is_greeted() {
                    false => continue,
                    true if self.is_lost(&mut silence) => return,
                    true => line(&Order::Beat),
                },
            };
            if input.write_all(text.as_bytes()).is_err() {
                return;
            }
        }
    }

    /// Drops the host if it has been silent for too long. Counts beats of this thread without progress
    /// since it was `seen`, so that a stop of the whole launcher is no silence of the host.
    fn is_lost(&self, (seen, beats): &mut (u64, u32)) -> bool {
        let heard = self.shared.progress();
        // A slow reader of the launcher's output delays the host's messages.
        let is_silent = heard == *seen && !lines::are_being_written();
        (*seen, *beats) = (heard, u32::from(is_silent) * (*beats + 1));
        let is_lost = BEAT * *beats >= self.patience;
        if is_lost {
            *lock(&self.shared.silence) = Some(self.patience);
            let _ = process::signal_group(&self.child, SIGKILL);
        }
        is_lost
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
    start_thread("host", work)
        .context("cannot start a thread for a host; raise `ulimit -u`, or name fewer hosts")
}

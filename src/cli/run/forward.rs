//! Forwards the output of all ranks to the launcher's own streams, on one thread.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use crossbeam_channel::{Receiver, Sender, TryRecvError};
use maypole_transports::watch::{Waker, Watch};

use super::lines::{LineTagger, OutputStream};
use super::ranks::LaunchEvent;
use crate::output::OutputError;

/// The number of the waker in the set of descriptors; pipes count from the next.
const WAKER: u64 = 0;
/// How long to sleep where nothing happens. The end of the sleep has no effect.
const SLEEP: Duration = Duration::from_secs(3600);

/// Forwards pipes until all of them are closed.
pub(super) struct OutputForwarder {
    waker: Arc<Waker>,
    /// `None` once no pipe will be added.
    pipes: Option<Sender<TaggedPipe>>,
    /// Disconnected when all pipes are closed and none will be added.
    all_read: Receiver<()>,
}

/// A pipe that a rank writes to.
struct TaggedPipe {
    pipe: File,
    to: OutputStream,
    lines: LineTagger,
}

impl OutputForwarder {
    /// Starts the thread. The first failure to write to a stream is sent to `events`.
    pub(super) fn start(events: Sender<LaunchEvent>) -> Result<Self> {
        let waker = Arc::new(Waker::new()?);
        let watch = Watch::new()?;
        watch.add(waker.as_ref(), WAKER, false)?;
        let (pipes, added) = crossbeam_channel::unbounded();
        let (reading, all_read) = crossbeam_channel::bounded(0);
        let seen = Arc::clone(&waker);
        let work = move || {
            let _reading: Sender<()> = reading;
            let mut thread = ForwardingThread {
                watch,
                waker: seen,
                added,
                closing: false,
                pipes: BTreeMap::new(),
                next: WAKER + 1,
                events,
            };
            // Without memory for the set of descriptors nothing can be forwarded any more.
            let _ = thread.run();
        };
        let thread = thread::Builder::new().name("output".to_owned()).spawn(work);
        thread.context("cannot start the thread that forwards output")?;
        Ok(Self { waker, pipes: Some(pipes), all_read })
    }

    /// Forwards the lines of `pipe`, each with `tag` before it.
    pub(super) fn add(&self, pipe: OwnedFd, tag: String, to: OutputStream) {
        let pipe = TaggedPipe { pipe: pipe.into(), to, lines: LineTagger::new(tag) };
        if let Some(pipes) = &self.pipes {
            // The thread receives as long as this sender exists.
            let _ = pipes.send(pipe);
            self.waker.wake();
        }
    }

    /// Says that no pipe will be added. Returns a channel that is disconnected once all output was
    /// forwarded.
    pub(super) fn close(&mut self) -> &Receiver<()> {
        self.pipes = None;
        self.waker.wake();
        &self.all_read
    }
}

/// The state of the thread.
struct ForwardingThread {
    watch: Watch,
    waker: Arc<Waker>,
    added: Receiver<TaggedPipe>,
    /// No pipe will be added.
    closing: bool,
    pipes: BTreeMap<u64, TaggedPipe>,
    next: u64,
    events: Sender<LaunchEvent>,
}

impl ForwardingThread {
    fn run(&mut self) -> io::Result<()> {
        let mut ready = Vec::new();
        let mut bytes = vec![0; 16 << 10];
        while !(self.closing && self.pipes.is_empty()) {
            self.watch.wait(&mut ready, SLEEP)?;
            for number in ready.drain(..) {
                if number == WAKER {
                    self.waker.clear();
                    self.take_added()?;
                } else {
                    self.read(number, &mut bytes);
                }
            }
        }
        Ok(())
    }

    fn take_added(&mut self) -> io::Result<()> {
        loop {
            match self.added.try_recv() {
                Ok(pipe) => {
                    self.watch.add(&pipe.pipe, self.next, false)?;
                    self.pipes.insert(self.next, pipe);
                    self.next += 1;
                }
                Err(TryRecvError::Empty) => return Ok(()),
                Err(TryRecvError::Disconnected) => {
                    self.closing = true;
                    return Ok(());
                }
            }
        }
    }

    /// Forwards the contents of a pipe, or its end.
    fn read(&mut self, number: u64, bytes: &mut [u8]) {
        // A pipe whose stream has failed may still be among the ready ones.
        let Some(from) = self.pipes.get_mut(&number) else { return };
        let to = from.to;
        let (written, is_open) = match from.pipe.read(bytes) {
            Err(error) if error.kind() == ErrorKind::Interrupted => return,
            Ok(0) | Err(_) => (write(to, from.lines.finish()), false),
            Ok(read) => (write(to, from.lines.feed(&bytes[..read])), true),
        };
        if !is_open {
            self.close(number);
        }
        if let Err(error) = written {
            // The launcher receives this before a rank can fail because of it.
            let _ = self.events.send(LaunchEvent::OutputFailed(error));
            self.give_up(to);
        }
    }

    /// Closes all pipes to a stream that cannot be written. The next write of a rank then fails, as
    /// it would without a launcher.
    fn give_up(&mut self, to: OutputStream) {
        let failed = self.pipes.iter().filter(|(_, pipe)| pipe.to == to);
        let failed: Vec<u64> = failed.map(|(number, _)| *number).collect();
        failed.into_iter().for_each(|number| self.close(number));
    }

    fn close(&mut self, number: u64) {
        if let Some(closed) = self.pipes.remove(&number) {
            self.watch.remove(&closed.pipe);
        }
    }
}

fn write(to: OutputStream, lines: &[u8]) -> Result<(), OutputError> {
    if lines.is_empty() { Ok(()) } else { to.write(lines) }
}

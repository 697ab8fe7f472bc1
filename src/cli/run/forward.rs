//! Forwards the output of ranks to the launcher's own streams, on a thread for each pipe.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::OwnedFd;

use crossbeam_channel::{Receiver, Sender};

use super::lines::{LineTagger, OutputStream};
use super::ranks::LaunchEvent;
use super::start_thread;
use crate::output::OutputError;

/// Forwards pipes until all of them are closed.
pub(super) struct OutputForwarder {
    events: Sender<LaunchEvent>,
    /// Held by each thread; `None` once no pipe will be added.
    reading: Option<Sender<()>>,
    /// Disconnected when all pipes are closed and none will be added.
    all_read: Receiver<()>,
}

impl OutputForwarder {
    /// A failure to write to a stream is sent to `events`.
    pub(super) fn new(events: Sender<LaunchEvent>) -> Self {
        let (reading, all_read) = crossbeam_channel::bounded(0);
        Self { events, reading: Some(reading), all_read }
    }

    /// Forwards the lines of `pipe`, each with `tag` before it. Where the stream cannot be written, the pipe
    /// is closed: the next write of the rank then fails, as it would without a launcher.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(super) fn add(&self, pipe: OwnedFd, tag: String, to: OutputStream) -> io::Result<()> {
        let (events, reading) = (self.events.clone(), self.reading.clone());
        let mut pipe = File::from(pipe);
        start_thread("output", move || {
            let _reading = reading;
            if let Err(error) = forward(&mut pipe, LineTagger::new(tag), to) {
                // The launcher receives this before the rank can fail because of it.
                let _ = events.send(LaunchEvent::OutputFailed(error));
            }
        })
    }

    /// Says that no pipe will be added. Returns a channel that is disconnected once all output was
    /// forwarded.
    pub(super) fn close(&mut self) -> &Receiver<()> {
        self.reading = None;
        &self.all_read
    }
}

fn forward(pipe: &mut File, mut lines: LineTagger, to: OutputStream) -> Result<(), OutputError> {
    let mut bytes = vec![0; 16 << 10];
    loop {
        match pipe.read(&mut bytes) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => return write(to, lines.finish()),
            Ok(read) => write(to, lines.feed(&bytes[..read]))?,
        }
    }
}

fn write(to: OutputStream, lines: &[u8]) -> Result<(), OutputError> {
    if lines.is_empty() { Ok(()) } else { to.write(lines) }
}

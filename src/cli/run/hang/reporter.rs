//! A process that reports the status of its ranks to the launcher.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;

use maypole::comm::status::StatusMessage;

/// The most bytes of one line. The statuses of a program with many groups are long.
const LONGEST_LINE: usize = 64 << 20;

/// A process of the job that is connected.
pub(super) struct Reporter {
    pub(super) stream: UnixStream,
    /// Bytes of a line that is not whole yet.
    partial: Vec<u8>,
    /// The ranks of the process.
    pub(super) ranks: BTreeSet<usize>,
    /// True until the reply to the last request.
    pub(super) asked: bool,
}

impl Reporter {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self { stream, partial: Vec::new(), ranks: BTreeSet::new(), asked: false }
    }

    /// Reads the available bytes. Returns the messages, and false if the process is gone or breaks
    /// the protocol.
    pub(super) fn read(&mut self) -> (Vec<StatusMessage>, bool) {
        let mut bytes = vec![0; 64 << 10];
        let mut messages = Vec::new();
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return (messages, false),
                Ok(read) => self.partial.extend_from_slice(&bytes[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return (messages, true),
                Err(_) => return (messages, false),
            }
            while let Some(end) = self.partial.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.partial.drain(..=end).collect();
                let Ok(message) = serde_json::from_slice::<StatusMessage>(&line) else {
                    return (messages, false);
                };
                self.ranks.insert(message.status.rank);
                self.asked = false;
                messages.push(message);
            }
            if self.partial.len() > LONGEST_LINE {
                return (messages, false);
            }
        }
    }
}

//! What a command does while it prints nothing for long.

use crate::output;
use std::fmt::Display;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// When the first line is printed. Each later one comes after three times as long.
const FIRST: Duration = Duration::from_secs(1);

/// Until this is dropped, lines on standard error show the command's progress.
pub(crate) struct Progress {
    parts: Sender<String>,
}

impl Progress {
    /// Begins to watch a command that now does `part`, as `drawing 4 ranks`.
    pub(crate) fn start(part: impl Display) -> Self {
        let (parts, told) = mpsc::channel();
        let first = part.to_string();
        std::thread::spawn(move || watch(first, &told));
        Self { parts }
    }

    /// Notes that the command now does `part`.
    pub(crate) fn at(&self, part: impl Display) {
        // If the other thread is gone, the line is lost.
        let _ = self.parts.send(part.to_string());
    }
}

fn watch(mut part: String, told: &Receiver<String>) {
    let begin = Instant::now();
    let mut pause = FIRST;
    loop {
        match told.recv_timeout(pause.saturating_sub(begin.elapsed())) {
            Ok(next) => part = next,
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                output::complain(format_args!("{part}, {} s so far", begin.elapsed().as_secs()));
                pause *= 3;
            }
        }
    }
}

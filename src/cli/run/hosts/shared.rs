//! The state that the threads of a connection to a host share, and the output of ssh.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::process::ProcessEnd;

use crate::run::first_failure::FirstFailure;

/// How many lines of ssh and of the host's shell are kept, as the reason why the host cannot be
/// used.
const LAST_WORDS: usize = 6;
/// The bytes of such a line that are looked at.
pub(super) const LONGEST_WORDS: usize = 4096;
/// What the threads of a connection share.
#[derive(Default)]
pub(super) struct SharedConnection {
    /// Grows with every message of the host.
    pub(super) progress: AtomicU64,
    /// The host has sent a message. Earlier lines are those of ssh and of the shell.
    pub(super) is_greeted: AtomicBool,
    pub(super) words: Mutex<VecDeque<String>>,
    /// How ssh has ended, and whether that was because the host was silent.
    pub(super) end: Mutex<Option<ProcessEnd>>,
    pub(super) silence: Mutex<Option<Duration>>,
    /// The launcher has ordered the host to end its part.
    pub(super) is_closed: AtomicBool,
    /// The rank that failed first, by the reports of this host's ranks.
    pub(super) first_failure: Mutex<Option<FirstFailure>>,
}

impl SharedConnection {
    /// The last lines of ssh and of the shell on the host.
    pub(super) fn last_words(&self) -> String {
        lock(&self.words).iter().map(String::as_str).collect::<Vec<_>>().join(" / ")
    }

    /// Why the connection was lost, as the end of a sentence.
    pub(super) fn reason(&self) -> String {
        let silence = lock(&self.silence).map(|it| format!(" (nothing came for {it:?})"));
        let words = self.last_words();
        let words = if words.is_empty() { String::new() } else { format!(": {words}") };
        silence.unwrap_or_default() + &words
    }

    /// A number that grows while the host does something.
    pub(super) fn progress(&self) -> u64 {
        self.progress.load(Ordering::Relaxed)
    }

    /// True after the first message of the host.
    pub(super) fn is_greeted(&self) -> bool {
        self.is_greeted.load(Ordering::Relaxed)
    }

    /// Keeps a line that is neither a message nor of a rank.
    pub(super) fn keep(&self, line: &[u8]) {
        let text = String::from_utf8_lossy(&line[..line.len().min(LONGEST_WORDS)]);
        let text = text.trim_matches(|char: char| char.is_whitespace() || char == '\0');
        let mut words = lock(&self.words);
        if !text.is_empty() {
            words.push_back(text.chars().take(300).collect());
        }
        if words.len() > LAST_WORDS {
            words.pop_front();
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

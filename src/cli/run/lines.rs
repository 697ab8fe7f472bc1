//! The output of ranks as whole lines, each tagged with its rank.

use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

use crate::output::OutputError;

/// Held during each write, so that lines stay whole even where standard output and standard error
/// go to the same terminal or file.
static WRITING: Mutex<()> = Mutex::new(());

/// Bytes after which an unfinished line is cut, so that a program that never ends its line does
/// not fill the memory.
const LONGEST: usize = 16 << 20;

/// The launcher's stream to which lines are forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputStream {
    Out,
    Error,
}

impl OutputStream {
    pub(super) fn write(self, lines: &[u8]) -> Result<(), OutputError> {
        let _whole = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
        match self {
            OutputStream::Out => {
                let mut out = io::stdout().lock();
                let written = out.write_all(lines).and_then(|()| out.flush());
                written.map_err(|error| OutputError::new("standard output", error))
            }
            OutputStream::Error => {
                let written = io::stderr().lock().write_all(lines);
                written.map_err(|error| OutputError::new("standard error", error))
            }
        }
    }
}

/// True while a write to one of the launcher's streams is in progress, possibly blocked by a slow
/// reader.
pub(super) fn are_being_written() -> bool {
    WRITING.try_lock().is_err()
}

/// Writes a line of the launcher itself to standard error. It does not wait for a write in
/// progress: the launcher may have ranks to stop, and a slow reader must not delay that.
pub(super) fn say(text: &str) {
    let _whole = WRITING.try_lock();
    crate::output::complain(text);
}

/// Cuts the output of a rank into lines, and puts the rank's tag before each.
pub(super) struct LineTagger {
    tag: String,
    longest: usize,
    unfinished: Vec<u8>,
    tagged: Vec<u8>,
}

impl LineTagger {
    pub(super) fn new(tag: String) -> Self {
        Self { tag, longest: LONGEST, unfinished: Vec::new(), tagged: Vec::new() }
    }

    /// Takes bytes of the rank, and returns the lines that they end.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> &[u8] {
        self.tagged.clear();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.unfinished.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.unfinished.len() >= self.longest {
                self.end_line();
            }
        }
        &self.tagged
    }

    /// Returns the last line, if it is unfinished, with a newline.
    pub(super) fn finish(&mut self) -> &[u8] {
        self.tagged.clear();
        if !self.unfinished.is_empty() {
            self.end_line();
        }
        &self.tagged
    }

    fn end_line(&mut self) {
        self.tagged.extend_from_slice(self.tag.as_bytes());
        self.tagged.append(&mut self.unfinished);
        if !self.tagged.ends_with(b"\n") {
            self.tagged.push(b'\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares all that is written, with a `/` after each write.
    fn check(pieces: &[&str], expected: &str) {
        let mut tagger = LineTagger { longest: 8, ..LineTagger::new("> ".to_owned()) };
        let mut written = String::new();
        let mut write = |lines: &[u8]| {
            if !lines.is_empty() {
                written += std::str::from_utf8(lines).unwrap();
                written += "/";
            }
        };
        pieces.iter().for_each(|piece| write(tagger.feed(piece.as_bytes())));
        write(tagger.finish());
        assert_eq!(written, expected, "{pieces:?}");
    }

    #[test]
    fn lines_are_tagged_whole_and_the_last_is_finished() {
        check(&[], "");
        check(&["a\nb\n"], "> a\n> b\n/");
        check(&["a", "b", "\n"], "> ab\n/");
        check(&["a\nb", "c\n\nd"], "> a\n/> bc\n> \n/> d\n/");
        check(&["\n"], "> \n/");
    }

    #[test]
    fn an_endless_line_is_cut() {
        check(&["12345", "6789", "x\n"], "> 123456789\n/> x\n/");
    }
}

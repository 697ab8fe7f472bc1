//! Output of many ranks, told apart: whole lines, each with its rank.

use std::io::{self, Read, Write};
use std::sync::{Mutex, PoisonError};

/// Held while something is written, so that lines stay whole even where both streams go to one
/// place.
static WRITING: Mutex<()> = Mutex::new(());

/// A line longer than this is cut: a program that never ends its line must not fill the memory.
const LONGEST: usize = 16 << 20;

/// Which of the launcher's own streams to write to.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stream {
    Out,
    Error,
}

impl Stream {
    fn write(self, text: &[u8]) -> io::Result<()> {
        let _whole = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
        match self {
            Stream::Out => {
                let mut out = io::stdout().lock();
                out.write_all(text)?;
                out.flush()
            }
            Stream::Error => io::stderr().lock().write_all(text),
        }
    }
}

/// Copies all lines to a stream until the rank closes its end. Returns early where the launcher's
/// own stream is closed: the rank then meets a closed pipe in turn, as it would alone.
pub(super) fn forward(from: impl Read, tag: &str, to: Stream) {
    let _ = tag_lines(from, tag, LONGEST, |lines| to.write(lines));
}

/// Whether lines wait right now for someone to read them.
pub(super) fn are_waiting() -> bool {
    WRITING.try_lock().is_err()
}

/// Says something as the launcher. Tidily between other lines where that needs no waiting: whoever
/// speaks may have ranks to stop, and a reader who does not read must not keep them alive.
pub(super) fn say(text: &str) {
    let _whole = WRITING.try_lock();
    let _ = io::stderr().lock().write_all(format!("maypole: {text}\n").as_bytes());
}

/// Gives `write` whole lines, each with the tag before it; several at once where they came at once.
/// An unfinished last line is finished.
fn tag_lines(
    mut from: impl Read,
    tag: &str,
    longest: usize,
    mut write: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let (mut unfinished, mut bytes, mut tagged) = (Vec::new(), vec![0; 16 << 10], Vec::new());
    loop {
        let read = match from.read(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        for piece in bytes[..read].split_inclusive(|byte| *byte == b'\n') {
            unfinished.extend_from_slice(piece);
            if piece.ends_with(b"\n") || unfinished.len() >= longest {
                finish(&mut unfinished, tag, &mut tagged);
            }
        }
        if read == 0 && !unfinished.is_empty() {
            finish(&mut unfinished, tag, &mut tagged);
        }
        if !tagged.is_empty() {
            write(&tagged)?;
            tagged.clear();
        }
        if read == 0 {
            return Ok(());
        }
    }
}

/// Moves a line to the others, with its tag before and one newline after it.
fn finish(line: &mut Vec<u8>, tag: &str, tagged: &mut Vec<u8>) {
    tagged.extend_from_slice(tag.as_bytes());
    tagged.append(line);
    if !tagged.ends_with(b"\n") {
        tagged.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives its pieces one a read.
    struct Pieces<'a>(std::slice::Iter<'a, &'a str>);

    impl Read for Pieces<'_> {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            self.0.next().map_or(Ok(0), |piece| piece.as_bytes().read(bytes))
        }
    }

    /// What is written, a `/` after each write.
    fn check(pieces: &[&str], expected: &str) {
        let mut written = String::new();
        let write = |lines: &[u8]| {
            written += std::str::from_utf8(lines).unwrap();
            written += "/";
            Ok(())
        };
        tag_lines(Pieces(pieces.iter()), "> ", 8, write).unwrap();
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

    #[test]
    fn a_closed_stream_ends_the_copying() {
        let closed = tag_lines(Pieces(["a\n", "b\n"].iter()), "", 8, |_| {
            Err(io::ErrorKind::BrokenPipe.into())
        });
        assert_eq!(closed.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}

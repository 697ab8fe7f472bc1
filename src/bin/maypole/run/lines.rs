//! Forwards the output of ranks: whole lines, each tagged with its rank.

use std::io::{self, Read, Write};
use std::sync::{Mutex, PoisonError};

/// Held during each write, so that lines stay whole even where standard output and standard error
/// go to the same terminal or file.
static WRITING: Mutex<()> = Mutex::new(());

/// Bytes after which an unfinished line is cut, so that a program that never ends its line does
/// not fill the memory.
const LONGEST: usize = 16 << 20;

/// The launcher's stream to which lines are forwarded.
#[derive(Debug, Clone, Copy)]
pub(super) enum OutputStream {
    Out,
    Error,
}

impl OutputStream {
    fn write(self, text: &[u8]) -> io::Result<()> {
        let _whole = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
        match self {
            OutputStream::Out => {
                let mut out = io::stdout().lock();
                out.write_all(text)?;
                out.flush()
            }
            OutputStream::Error => io::stderr().lock().write_all(text),
        }
    }
}

/// Copies all lines of a rank to one of the launcher's streams until the rank closes its end.
/// Returns early where the launcher's stream is closed; the rank's next write then fails with a
/// broken pipe, as it would without a launcher.
pub(super) fn forward(from: impl Read, tag: &str, to: OutputStream) {
    let _ = tag_lines(from, tag, LONGEST, |lines| to.write(lines));
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
    let _ = io::stderr().lock().write_all(format!("maypole: {text}\n").as_bytes());
}

/// Passes whole lines to `write`, each with the tag before it. Lines that arrive in one read are
/// passed in one call. An unfinished last line gets a newline.
fn tag_lines(
    mut from: impl Read,
    tag: &str,
    longest: usize,
    mut write: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut bytes = vec![0; 16 << 10];
    let mut unfinished = Vec::new();
    let mut tagged = Vec::new();
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

/// Appends the tag, `line` and a newline to `tagged`, and empties `line`.
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

    /// Returns one piece on each read.
    struct Pieces<'a>(std::slice::Iter<'a, &'a str>);

    impl Read for Pieces<'_> {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            self.0.next().map_or(Ok(0), |piece| piece.as_bytes().read(bytes))
        }
    }

    /// Compares all that is written, with a `/` after each write.
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

//! Writes standard output and saved files. No other page writes to standard output or to a file
//! that the user has named.
//!
//! A reader may close its end of a pipe early, as in `maypole draw broadcast | head -1`. That is no
//! error: the program then ends without a word, with the exit code [`CLOSED_PIPE`]. Every other
//! failure, such as a full disk, is an [`OutputError`] that names the file.

use std::borrow::Cow;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use thiserror::Error;

/// The exit code of a program whose output no process reads any more: 128 + SIGPIPE, which shells
/// report for tools that this signal kills.
pub(crate) const CLOSED_PIPE: u8 = 141;

const STANDARD_OUTPUT: &str = "standard output";

/// A file, or standard output, cannot be written.
#[derive(Debug, Error)]
#[error("cannot write {name}: {source}{}", remedy(source))]
pub(crate) struct OutputError {
    name: String,
    source: io::Error,
}

/// The remedy for a write error, to be appended to its sentence; empty if there is none.
pub(crate) fn remedy(source: &io::Error) -> &'static str {
    match source.kind() {
        ErrorKind::FileTooLarge => "; raise the limit of file sizes with `ulimit -f`",
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "; free some space there",
        _ => "",
    }
}

impl OutputError {
    pub(crate) fn new(name: impl Into<String>, source: io::Error) -> Self {
        Self { name: name.into(), source }
    }

    /// True if the reader of a pipe has closed its end.
    pub(crate) fn is_closed_pipe(&self) -> bool {
        self.source.kind() == ErrorKind::BrokenPipe
    }
}

/// A file that is written piece by piece, or standard output.
pub(crate) struct Output {
    /// As the user typed it: `standard output`, or an option with its path.
    name: String,
    /// `None` is standard output.
    file: Option<File>,
}

impl Output {
    /// Makes the file `path` that `option` names; `-` is standard output.
    pub(crate) fn create(option: &str, path: &Path) -> Result<Self, OutputError> {
        if path.as_os_str() == "-" {
            return Ok(Self { name: STANDARD_OUTPUT.to_owned(), file: None });
        }
        let name = format!("{option} {}", path.display());
        match File::create(path) {
            Ok(file) => Ok(Self { name, file: Some(file) }),
            Err(source) => Err(OutputError::new(name, source)),
        }
    }

    /// Writes all of `text`. Afterwards none of it waits in a buffer of this process.
    pub(crate) fn write(&mut self, text: impl Display) -> Result<(), OutputError> {
        let written = match &mut self.file {
            Some(file) => file.write_all(text.to_string().as_bytes()),
            None => write_standard(&text.to_string()),
        };
        written.map_err(|source| OutputError::new(self.name.clone(), source))
    }
}

fn write_standard(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// `text` with escapes for invisible characters that a terminal obeys: control characters but line
/// feeds and tabs, and marks that change the direction of text. Text of files and of other hosts
/// cannot do anything to the terminal then. The escapes are those of JSON.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    escaped(text, |char| is_invisible(char) && !matches!(char, '\n' | '\t'))
}

/// As [`visible`], and in one line.
pub(crate) fn one_line(text: &str) -> Cow<'_, str> {
    escaped(text, is_invisible)
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let escape = |char: char| match char {
        char if !is_escaped(char) => char.to_string(),
        '\n' => "\\n".to_owned(),
        '\t' => "\\t".to_owned(),
        char => format!("\\u{:04x}", u32::from(char)),
    };
    text.chars().map(escape).collect::<String>().into()
}

fn is_invisible(char: char) -> bool {
    let is_direction = matches!(char, '\u{61c}' | '\u{200e}' | '\u{200f}')
        || matches!(char, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    char.is_control() || is_direction || matches!(char, '\u{2028}' | '\u{2029}')
}

/// Writes `text` to standard output, [visible](visible) to the last character.
pub(crate) fn print(text: impl Display) -> Result<(), OutputError> {
    print_as_is(visible(&text.to_string()))
}

/// Writes `text` of this program alone to standard output.
pub(crate) fn print_as_is(text: impl Display) -> Result<(), OutputError> {
    let written = write_standard(&text.to_string());
    written.map_err(|source| OutputError::new(STANDARD_OUTPUT, source))
}

/// Writes `text` and a newline to standard output.
pub(crate) fn print_line(text: impl Display) -> Result<(), OutputError> {
    print(format_args!("{text}\n"))
}

/// Writes `text` to the file `path` that `option` names; `-` is standard output.
pub(crate) fn save(option: &str, path: &Path, text: impl Display) -> Result<(), OutputError> {
    Output::create(option, path)?.write(text)
}

/// Writes a line to standard error, [visible] to the last character. A failure is ignored, because
/// no place is left to report it.
pub(crate) fn complain(text: impl Display) {
    let text = text.to_string();
    let line = format!("maypole: {}\n", visible(&text));
    let _ = io::stderr().lock().write_all(line.as_bytes());
}

/// True if `error` means that the reader of a pipe has closed its end.
pub(crate) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<OutputError>().is_some_and(OutputError::is_closed_pipe)
}

/// `error` and its causes in one sentence. Many errors print their cause themselves; such a cause
/// is not repeated.
pub(crate) fn sentence(error: &anyhow::Error) -> String {
    let mut sentence = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if sentence.is_empty() {
            sentence = cause;
        } else if !sentence.contains(&cause) {
            sentence = format!("{sentence}: {cause}");
        }
    }
    sentence
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn a_cause_is_told_once() {
        let source = || io::Error::from(ErrorKind::NotFound);
        let error = anyhow::Error::new(OutputError::new("--svg x", source()));
        assert_eq!(sentence(&error), "cannot write --svg x: entity not found");
        let error = Err::<(), _>(source()).context("cannot read x").unwrap_err();
        assert_eq!(sentence(&error), "cannot read x: entity not found");
        assert_eq!(sentence(&anyhow::anyhow!("alone")), "alone");
    }

    #[test]
    fn what_a_terminal_obeys_is_shown_as_an_escape() {
        let evil = "a\u{1b}[31m\u{202e}b\u{9b}c\r\u{7f}\u{2066}\td\ne";
        let shown = "a\\u001b[31m\\u202eb\\u009bc\\u000d\\u007f\\u2066\td\ne";
        assert_eq!(visible(evil), shown);
        assert_eq!(one_line("a\tb\nc"), "a\\tb\\nc");
        for kept in ["", "plain", "µs, ├─ 漢字 🎉 e\u{301}\n\t"] {
            assert!(matches!(visible(kept), Cow::Borrowed(text) if text == kept));
        }
    }

    #[test]
    fn a_full_disk_is_an_error_that_names_the_file_and_the_remedy() {
        let error = save("--json", Path::new("/dev/full"), "text").unwrap_err();
        assert!(!error.is_closed_pipe());
        let text = error.to_string();
        assert!(text.starts_with("cannot write --json /dev/full: No space left"), "{text}");
        assert!(text.ends_with("; free some space there"), "{text}");
    }

    #[test]
    fn a_closed_pipe_is_told_from_other_failures() {
        let closed = OutputError::new("standard output", ErrorKind::BrokenPipe.into());
        assert!(is_closed_pipe(&anyhow::Error::new(closed).context("measuring")));
        assert!(!is_closed_pipe(&anyhow::anyhow!("Broken pipe")));
    }
}

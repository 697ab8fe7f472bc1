//! Pasted text as characters with their line and column, without the control codes of terminals.

use std::fmt;

/// The place of unparsed text, the text found there, and the expected text.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ReadError {
    /// The line, counted from 1.
    pub line: usize,
    /// The column in characters, counted from 1.
    pub column: usize,
    /// The text found there; empty at an end.
    pub found: String,
    /// The expected text.
    pub expected: String,
}

impl fmt::Display for ReadError {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let ReadError { line, column, found, expected } = self;
        match found.as_str() {
            "" => {
                write!(out, "line {line}, column {column}: expected {expected}, but found nothing")
            }
            found => {
                write!(out, "line {line}, column {column}: found {found:?}, expected {expected}")
            }
        }
    }
}

impl std::error::Error for ReadError {}

/// The most bytes of a description. The largest machines have a few hundred devices, and their
/// descriptions some hundred kilobytes.
pub(crate) const LONGEST: usize = 2 << 20;

/// Refuses a text that is longer than any description, before a parser spends time and memory on
/// it.
pub(crate) fn check_length(text: &str) -> Result<(), ReadError> {
    if text.len() <= LONGEST {
        return Ok(());
    }
    let end = (0..=LONGEST).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let line_start = text[..end].rfind('\n').map_or(0, |newline| newline + 1);
    let rest = text[end..].split_whitespace().next().unwrap_or_default();
    Err(ReadError {
        line: 1 + text[..end].matches('\n').count(),
        column: 1 + text[line_start..end].chars().count(),
        found: rest.chars().take(40).collect(),
        expected: format!("the end: a description has at most {} MiB", LONGEST >> 20),
    })
}

/// One character and its place in the text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocatedChar {
    pub(crate) char: char,
    pub(crate) line: usize,
    pub(crate) column: usize,
}

impl LocatedChar {
    /// Whether it is white space or a bar of a table in a document.
    pub(crate) fn is_blank(&self) -> bool {
        self.char.is_whitespace() || self.char == '|'
    }
}

/// The lines of `text`, without the escape codes of a terminal.
pub(crate) fn lines(text: &str) -> Vec<Vec<LocatedChar>> {
    let line = |(number, line): (usize, &str)| {
        let at = |(column, char)| LocatedChar { char, line: number + 1, column: column + 1 };
        without_codes(&line.chars().enumerate().map(at).collect::<Vec<_>>())
    };
    text.lines().enumerate().map(line).collect()
}

/// Drops escape codes such as `ESC [ 4 m`. Also drops their printed forms `^[[4m` and `\x1b[4m`,
/// and `[4m` without the escape character.
fn without_codes(glyphs: &[LocatedChar]) -> Vec<LocatedChar> {
    let mut kept = Vec::new();
    let mut at = 0;
    while at < glyphs.len() {
        match code(&glyphs[at..]) {
            0 if is_invisible(glyphs[at].char) => at += 1,
            0 => {
                kept.push(glyphs[at]);
                at += 1;
            }
            length => at += length,
        }
    }
    kept
}

/// True for a byte-order mark, a zero-width blank, or a control character other than the tab.
fn is_invisible(char: char) -> bool {
    matches!(char, '\u{feff}' | '\u{200b}') || (char.is_control() && char != '\t')
}

/// The length of the escape code at the beginning of `glyphs`; 0 if there is none.
fn code(glyphs: &[LocatedChar]) -> usize {
    const ESCAPES: [&str; 7] = ["\u{1b}", "^[", "\u{241b}", "\\x1b", "\\033", "\\e", "\\u001b"];
    let escapes = ESCAPES.iter().filter(|word| begins_with(glyphs, word));
    let escape = escapes.map(|word| word.chars().count()).max().unwrap_or(0);
    let mut rest = glyphs[escape..].iter().map(|glyph| glyph.char).peekable();
    match rest.next() {
        Some('(') if escape > 0 && rest.next().is_some() => escape + 2,
        Some('[') => {
            let mut numbers = 0;
            while rest.next_if(|char| char.is_ascii_digit() || *char == ';').is_some() {
                numbers += 1;
            }
            // Without the escape character, only `[...m` is surely a code.
            let end = rest.next().filter(|char| char.is_ascii_alphabetic());
            let ends = if escape > 0 { end.is_some() } else { end == Some('m') && numbers > 0 };
            if ends { escape + 2 + numbers } else { usize::from(escape == 1) }
        }
        _ if escape == 1 => 1,
        _ => 0,
    }
}

/// The characters as text.
pub(crate) fn plain(glyphs: &[LocatedChar]) -> String {
    glyphs.iter().map(|glyph| glyph.char).collect()
}

pub(crate) fn begins_with(glyphs: &[LocatedChar], word: &str) -> bool {
    let mut glyphs = glyphs.iter();
    word.chars().all(|char| glyphs.next().is_some_and(|glyph| glyph.char == char))
}

/// The text from `at` to the next blank, for an error.
pub(crate) fn word_at(glyphs: &[LocatedChar], at: usize) -> String {
    let rest = glyphs.get(at..).unwrap_or_default();
    rest.iter().take_while(|glyph| !glyph.is_blank()).map(|glyph| glyph.char).take(40).collect()
}

/// An error at character `at`, or after the last one.
pub(crate) fn error_at(
    glyphs: &[LocatedChar],
    at: usize,
    expected: impl Into<String>,
) -> ReadError {
    let (line, column) = match (glyphs.get(at), glyphs.last()) {
        (Some(glyph), _) => (glyph.line, glyph.column),
        (None, Some(last)) => (last.line, last.column + 1),
        (None, None) => (1, 1),
    };
    ReadError { line, column, found: word_at(glyphs, at), expected: expected.into() }
}

/// A word without blanks, and the index of its first character.
#[derive(Clone, Debug)]
pub(crate) struct LocatedWord {
    pub(crate) text: String,
    pub(crate) at: usize,
}

/// The words between blanks.
pub(crate) fn words(glyphs: &[LocatedChar]) -> Vec<LocatedWord> {
    let mut found: Vec<LocatedWord> = Vec::new();
    let mut inside = false;
    for (at, glyph) in glyphs.iter().enumerate() {
        match (glyph.is_blank(), inside) {
            (true, _) => inside = false,
            (false, true) => found.last_mut().expect("inside a word").text.push(glyph.char),
            (false, false) => {
                found.push(LocatedWord { text: glyph.char.to_string(), at });
                inside = true;
            }
        }
    }
    found
}

/// Whether a word stands for text that was left out: `...`, `..`, `…`, also in brackets.
pub(crate) fn is_ellipsis(word: &str) -> bool {
    let dots = word.trim_matches(['[', ']', '(', ')']);
    dots == "…" || (dots.len() > 1 && dots.chars().all(|char| char == '.'))
}

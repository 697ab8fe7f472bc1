//! Text that people pasted: characters that remember where they stood, without what terminals left
//! between them.

use std::fmt;

/// A description that cannot be understood: where, what is there, and what should be.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ReadError {
    /// The line, counted from 1.
    pub line: usize,
    /// The column in characters, counted from 1.
    pub column: usize,
    /// The text found there; empty at an end.
    pub found: String,
    /// What would have been understood.
    pub expected: String,
}

impl fmt::Display for ReadError {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let ReadError { line, column, found, expected } = self;
        match found.as_str() {
            "" => write!(
                out,
                "line {line}, column {column}: expected {expected}, but nothing is there"
            ),
            found => {
                write!(out, "line {line}, column {column}: found {found:?}, expected {expected}")
            }
        }
    }
}

impl std::error::Error for ReadError {}

/// One character and where it stood.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocatedChar {
    pub(crate) char: char,
    pub(crate) line: usize,
    pub(crate) column: usize,
}

impl LocatedChar {
    /// Blanks of every kind, and the bars of a table in a document.
    pub(crate) fn is_blank(&self) -> bool {
        self.char.is_whitespace() || self.char == '|'
    }
}

/// The lines of `text`, without the codes that colour a terminal.
pub(crate) fn lines(text: &str) -> Vec<Vec<LocatedChar>> {
    let line = |(number, line): (usize, &str)| {
        let at = |(column, char)| LocatedChar { char, line: number + 1, column: column + 1 };
        without_codes(&line.chars().enumerate().map(at).collect::<Vec<_>>())
    };
    text.lines().enumerate().map(line).collect()
}

/// Drops `ESC [ 4 m` and its like, also as `^[[4m`, as `\x1b[4m`, and as `[4m` where the escape
/// itself was lost.
fn without_codes(glyphs: &[LocatedChar]) -> Vec<LocatedChar> {
    let (mut kept, mut at) = (Vec::new(), 0);
    while at < glyphs.len() {
        match code(&glyphs[at..]) {
            0 if is_nothing(glyphs[at].char) => at += 1,
            0 => {
                kept.push(glyphs[at]);
                at += 1;
            }
            length => at += length,
        }
    }
    kept
}

/// A byte-order mark, a zero-width blank, a control character other than the tab.
fn is_nothing(char: char) -> bool {
    matches!(char, '\u{feff}' | '\u{200b}') || (char.is_control() && char != '\t')
}

/// How many glyphs a code has that begins here; 0 if none does.
fn code(glyphs: &[LocatedChar]) -> usize {
    const ESCAPES: [&str; 7] = ["\u{1b}", "^[", "\u{241b}", "\\x1b", "\\033", "\\e", "\\u001b"];
    let starts =
        |word: &str| word.chars().zip(glyphs).filter(|(char, glyph)| *char == glyph.char).count();
    let escape = ESCAPES.iter().map(|word| word.chars().count()).zip(ESCAPES);
    let escape = escape
        .filter(|(length, word)| starts(word) == *length)
        .map(|(length, _)| length)
        .max()
        .unwrap_or(0);
    let mut rest = glyphs[escape..].iter().map(|glyph| glyph.char).peekable();
    match rest.next() {
        Some('(') if escape > 0 && rest.next().is_some() => escape + 2,
        Some('[') => {
            let mut numbers = 0;
            while rest.next_if(|char| char.is_ascii_digit() || *char == ';').is_some() {
                numbers += 1;
            }
            // Without its escape only a colour is surely a code.
            let end = rest.next().filter(|char| char.is_ascii_alphabetic());
            let ends = if escape > 0 { end.is_some() } else { end == Some('m') && numbers > 0 };
            if ends { escape + 2 + numbers } else { usize::from(escape == 1) }
        }
        _ if escape == 1 => 1,
        _ => 0,
    }
}

/// The glyphs from `at` to the next blank, as text; for an error.
pub(crate) fn word_at(glyphs: &[LocatedChar], at: usize) -> String {
    let rest = glyphs.get(at..).unwrap_or_default();
    rest.iter().take_while(|glyph| !glyph.is_blank()).map(|glyph| glyph.char).take(40).collect()
}

/// An error at the glyph `at`, or behind the last one.
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

/// A word without blanks, and where it begins among the glyphs.
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

//! The cells of one row, also where they have run together or were wrapped.

use crate::read::printed::PrintedClass;
use crate::read::text::{LocatedChar, begins_with, plain};

/// One way to read the beginning of a row: its cells, and the position of the rest.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct RowReading {
    pub(super) cells: Vec<PrintedClass>,
    pub(super) end: usize,
}

/// True if a cell begins at offset `at`, after blanks.
pub(super) fn begins(line: &[LocatedChar], at: usize) -> bool {
    let start = skip_blanks(line, at);
    // `SYSTEM` and `XYZ` are no cells; `SYSSYS` and `SYS0-7` begin with one.
    let whole = |(class, end): &(PrintedClass, usize)| match line.get(*end) {
        Some(next) if !next.is_blank() => {
            is_cell(line, *end) || (*class != PrintedClass::Same && next.char.is_ascii_digit())
        }
        _ => true,
    };
    classes(line, start).iter().any(whole)
}

fn is_cell(line: &[LocatedChar], at: usize) -> bool {
    !classes(line, at).is_empty()
}

/// Whether `text` is made of cells alone. A wrapped line may begin with such a text, a label
/// cannot.
pub(super) fn is_cells(text: &str) -> bool {
    let glyphs: Vec<_> =
        text.chars().map(|char| LocatedChar { char, line: 0, column: 0 }).collect();
    let mut at = 0;
    while let Some((_, end)) = classes(&glyphs, at).first() {
        at = *end;
    }
    at == glyphs.len() && at > 0
}

/// All ways to read at most `count` cells from `start` on, longest first. There are several only
/// where digits have run together.
pub(super) fn read(row: &[LocatedChar], start: usize, count: usize) -> Vec<RowReading> {
    let mut readings = vec![RowReading { cells: Vec::new(), end: start }];
    for _ in 0..count {
        let longer: Vec<_> =
            readings.iter().flat_map(|reading| one_more(row, reading)).take(64).collect();
        if longer.is_empty() {
            break;
        }
        readings = longer;
    }
    readings
}

fn one_more(row: &[LocatedChar], reading: &RowReading) -> Vec<RowReading> {
    let start = skip_blanks(row, reading.end);
    let longer =
        |(class, end)| RowReading { cells: [reading.cells.as_slice(), &[class]].concat(), end };
    classes(row, start).into_iter().map(longer).collect()
}

pub(super) fn skip_blanks(row: &[LocatedChar], at: usize) -> usize {
    at + row.get(at..).unwrap_or_default().iter().take_while(|glyph| glyph.is_blank()).count()
}

/// The classes that may begin at offset `at`, each with its end.
fn classes(row: &[LocatedChar], at: usize) -> Vec<(PrintedClass, usize)> {
    let word = |(word, class): (&str, PrintedClass)| Some((class, end_of(row, at, word)?));
    let plain = PrintedClass::WORDS.into_iter().find_map(word);
    plain
        .into_iter()
        .chain(end_of(row, at, "NV").into_iter().flat_map(|digits| nvlinks(row, digits)))
        .collect()
}

/// The end offset of `word` if it begins at `at`. A wrapped line may break inside it.
fn end_of(row: &[LocatedChar], at: usize, word: &str) -> Option<usize> {
    begins_with(row.get(at..)?, word).then_some(at + word.len())
}

/// The readings of `NV12`, whose number is at `at`. The number ends at the last digit at the
/// latest. It may end before if the next field is a number too (`NV120-23`), or begins on the next
/// line.
fn nvlinks(row: &[LocatedChar], at: usize) -> Vec<(PrintedClass, usize)> {
    let digits = row[at..].iter().take_while(|glyph| glyph.char.is_ascii_digit()).take(6).count();
    let next = row.get(at + digits).map(|glyph| glyph.char);
    let runs_on = digits > 2 || matches!(next, Some('-' | ',' | 'N'));
    let breaks = |length: usize| row[at + length].line != row[at + length - 1].line;
    let may_end = |length: &usize| *length == digits || runs_on || breaks(*length);
    let class = |length: usize| {
        let links =
            plain(&row[at..at + length]).parse().ok().filter(|links| (1..=64).contains(links))?;
        Some((PrintedClass::NvLink(links), at + length))
    };
    (1..=digits).rev().filter(may_end).filter_map(class).collect()
}

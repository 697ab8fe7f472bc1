//! Columns and rows that were left out of a pasted report, marked by `...`.
//!
//! ```text
//!       GPU0  GPU1  ...  GPU7
//! GPU0   X    NV12  ...  NV12
//! GPU1  NV12   X    ...  NV12
//! ...
//! GPU7  NV12  NV12  ...   X
//! ```
//!
//! The reader keeps the devices that are named and have classes. A note names the others.

use crate::read::matrix::cells;
use crate::read::matrix::header::{Columns, is_gpu};
use crate::read::printed::PrintedClass;
use crate::read::text::{LocatedChar, LocatedWord, ReadError, error_at, is_ellipsis, words};

/// A line with blanks in the place of each ellipsis.
pub(super) struct BlankedLine {
    pub(super) glyphs: Vec<LocatedChar>,
    /// Where each ellipsis begins.
    pub(super) ellipses: Vec<usize>,
}

impl BlankedLine {
    pub(super) fn new(line: &[LocatedChar]) -> Self {
        let mut glyphs = line.to_vec();
        let mut ellipses = Vec::new();
        for word in words(line).into_iter().filter(|word| is_ellipsis(&word.text)) {
            let length = word.text.chars().count();
            glyphs[word.at..word.at + length].iter_mut().for_each(|glyph| glyph.char = ' ');
            ellipses.push(word.at);
        }
        Self { glyphs, ellipses }
    }
}

/// Checks that a row leaves out the columns that the header leaves out, or only its own end.
///
/// # Errors
/// The ellipsis after which a cell cannot be assigned to a column.
pub(super) fn check(
    glyphs: &[LocatedChar],
    ellipses: &[usize],
    columns: &Columns,
) -> Result<(), ReadError> {
    for &at in ellipses {
        let readings = cells::read(&glyphs[..at], 0, columns.labels.len());
        let before = readings.iter().map(|reading| reading.cells.len()).max().unwrap_or(0);
        let ends_row = !cells::begins(glyphs, at);
        if !ends_row && !columns.elided.contains(&before) {
            let expected = "a cell: the header leaves out no columns here";
            return Err(error_at(glyphs, cells::skip_blanks(glyphs, at), expected));
        }
    }
    Ok(())
}

/// One note for each place where the header leaves out columns.
pub(super) fn column_notes(columns: &Columns) -> Vec<String> {
    let note = |&at: &usize| {
        let before = at.checked_sub(1).map(|before| columns.labels[before].text.as_str());
        let after = columns.labels.get(at).map(|label| label.text.as_str());
        let place = match (before, after) {
            (Some(before), Some(after)) => format!("between {before} and {after}"),
            (Some(before), None) => format!("behind {before}"),
            (None, Some(after)) => format!("before {after}"),
            (None, None) => String::new(),
        };
        match before.zip(after).and_then(|(before, after)| numbers_between(before, after)) {
            Some(missing) => format!("the columns {place} are elided: {missing} left out"),
            None => format!("the columns {place} are elided and left out"),
        }
    };
    columns.elided.iter().map(note).collect()
}

/// `GPU3 to GPU6 are`, between `GPU2` and `GPU7`; `None` if labels are not of one kind or nothing
/// is between them.
fn numbers_between(before: &str, after: &str) -> Option<String> {
    let split = |label: &str| {
        let prefix = label.trim_end_matches(|char: char| char.is_ascii_digit()).to_owned();
        let number: usize = label[prefix.len()..].parse().ok()?;
        Some((prefix, number))
    };
    let (prefix, low) = split(before)?;
    let (other_prefix, high) = split(after)?;
    let first = low + 1;
    let last = high.checked_sub(1)?;
    match prefix == other_prefix {
        true if first == last => Some(format!("{prefix}{first} is")),
        true if first < last => Some(format!("{prefix}{first} to {prefix}{last} are")),
        _ => None,
    }
}

/// The devices whose rows were left out and whose classes are in no other row, by column.
pub(super) fn unknown_devices(
    known: &[Vec<Option<PrintedClass>>],
    has_row: impl Fn(usize) -> bool,
    labels: &[LocatedWord],
) -> Vec<usize> {
    let unknown = |a: usize, b: usize| known[a][b].is_none() && known[b][a].is_none();
    let all = || 0..labels.len();
    let gpus: Vec<usize> = all().filter(|&device| is_gpu(&labels[device].text)).collect();
    let is_lost = |device: &usize| {
        !has_row(*device) && gpus.iter().any(|&gpu| gpu != *device && unknown(*device, gpu))
    };
    let lost_gpus: Vec<usize> = gpus.iter().copied().filter(is_lost).collect();
    let is_lost_card = |device: &usize| {
        let mut kept = gpus.iter().filter(|gpu| !lost_gpus.contains(gpu));
        !gpus.contains(device) && !has_row(*device) && kept.any(|&gpu| unknown(*device, gpu))
    };
    let lost_cards: Vec<usize> = all().filter(is_lost_card).collect();
    [lost_gpus, lost_cards].concat()
}

/// The note on the devices of [`unknown_devices`]; none if there are none.
pub(super) fn row_note(left_out: &[usize], labels: &[LocatedWord]) -> Option<String> {
    let names: Vec<&str> = left_out.iter().map(|&device| labels[device].text.as_str()).collect();
    let names = names.join(", ");
    (!names.is_empty()).then(|| format!("left out, because their rows are elided: {names}"))
}

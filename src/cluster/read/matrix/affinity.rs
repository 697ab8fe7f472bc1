//! The fields after the cells: the CPUs and NUMA nodes near a GPU.

use super::header::Columns;
use crate::read::text::{LocatedChar, plain, words};

/// The affinity of one GPU, as printed. A field is `None` if it is empty, `N/A`, or cannot be
/// separated from its neighbour.
#[derive(Clone, Debug, Default)]
pub(super) struct Affinity {
    pub(super) cpus: Option<String>,
    pub(super) numa: Option<String>,
    pub(super) note: Option<String>,
}

/// Whether `text` is made of lists of numbers, `N/A` and blanks alone.
pub(super) fn is_affinity(text: &str) -> bool {
    text.replace("N/A", "")
        .chars()
        .all(|char| char.is_ascii_digit() || char.is_whitespace() || "-,|".contains(char))
}

impl Affinity {
    pub(super) fn read(rest: &[LocatedChar], columns: &Columns) -> Affinity {
        let names = [columns.cpu_affinity, columns.numa_affinity, columns.gpu_numa];
        let expected = names.into_iter().filter(|there| *there).count();
        let text = plain(rest);
        // A line may have been wrapped within a field or between two fields.
        let joined = fields(&[rest]);
        let separate = fields(&rest.chunk_by(|a, b| a.line == b.line).collect::<Vec<_>>());
        let fields = if joined.len() == expected { joined } else { separate };
        match fields.len() {
            0 => Affinity::default(),
            found if found == expected => Affinity::of(&fields, columns),
            // Tabs show which field is empty.
            _ if text.contains('\t') && expected > 0 => Affinity::of(&by_tabs(&text), columns),
            _ => {
                let line = rest.first().map_or(0, |glyph| glyph.line);
                let note = format!(
                    "line {line}: {:?} is left out: the header has {expected} columns of affinity",
                    text.trim()
                );
                Affinity { note: Some(note), ..Affinity::default() }
            }
        }
    }

    fn of(fields: &[String], columns: &Columns) -> Affinity {
        let mut fields = fields
            .iter()
            .map(|field| Some(field.trim().to_owned()).filter(|it| !it.is_empty() && it != "N/A"));
        let mut next = |there: bool| if there { fields.next().flatten() } else { None };
        let cpus = next(columns.cpu_affinity);
        let numa = next(columns.numa_affinity);
        Affinity { cpus, numa, note: None }
    }
}

fn fields(lines: &[&[LocatedChar]]) -> Vec<String> {
    lines.iter().flat_map(|line| words(line)).flat_map(|word| apart(&word.text)).collect()
}

/// Splits fields that have run together: `0-31N/A` is `0-31` and `N/A`.
fn apart(word: &str) -> Vec<String> {
    let parts = word.split("N/A").map(str::to_owned);
    let parts = parts.flat_map(|part| [part, "N/A".to_owned()]).collect::<Vec<_>>();
    parts[..parts.len() - 1].iter().filter(|part| !part.is_empty()).cloned().collect()
}

/// The fields between tabs. The first tab ends the last cell.
fn by_tabs(text: &str) -> Vec<String> {
    let text = text.trim_start_matches([' ', '|']);
    text.strip_prefix('\t')
        .unwrap_or(text)
        .split('\t')
        .map(|field| field.trim().to_owned())
        .collect()
}

//! The place of the report in the text, the prefix of its lines, and its columns.

use crate::read::matrix::cells;
use crate::read::text::{
    LocatedChar, LocatedWord, ReadError, begins_with, error_at, is_ellipsis, plain, words,
};

/// The lines of the text without the report's prefix, and the place of the report among them.
pub(super) struct ReportLines {
    pub(super) lines: Vec<Vec<LocatedChar>>,
    pub(super) first_row: usize,
    pub(super) columns: Columns,
}

#[derive(Debug)]
pub(super) struct Columns {
    /// In the report's order.
    pub(super) labels: Vec<LocatedWord>,
    /// Where columns are elided by `...`: the number of labels before each ellipsis.
    pub(super) elided: Vec<usize>,
    pub(super) cpu_affinity: bool,
    pub(super) numa_affinity: bool,
    pub(super) gpu_numa: bool,
    /// The header as one line.
    pub(super) glyphs: Vec<LocatedChar>,
}

pub(super) fn find(lines: &[Vec<LocatedChar>]) -> Result<ReportLines, ReadError> {
    let Some((first_row, at)) = first_row(lines) else {
        let end = lines.last().map_or(&[][..], |line| line);
        return Err(error_at(end, end.len(), "a row such as `GPU0  X  NV1` before the end"));
    };
    let prefix = trimmed(&lines[first_row][..at]);
    let lines: Vec<_> = lines.iter().map(|line| without_prefix(line, prefix).to_vec()).collect();
    let label = gpu_label(&lines[first_row], first_glyph(&lines[first_row]))
        .expect("the first row begins with a GPU");
    let label = plain(&lines[first_row][first_glyph(&lines[first_row])..label]);
    let is_header = |line: &&Vec<LocatedChar>| {
        words(line).iter().any(|word| begins_with_label(&word.text, &label))
    };
    let Some(start) = lines[..first_row].iter().rposition(|line| is_header(&line)) else {
        return Err(error_at(
            &lines[first_row],
            0,
            format!("a line above it that names the columns from {label} on"),
        ));
    };
    let columns = columns(&lines[start..first_row], &known_labels(&lines[first_row..]))?;
    Ok(ReportLines { lines, first_row, columns })
}

/// The first line that has the label of a GPU and then a class, and the position of the label.
pub(super) fn first_row(lines: &[Vec<LocatedChar>]) -> Option<(usize, usize)> {
    let row = |line: &Vec<LocatedChar>| {
        let starts = |at: &usize| {
            let behind = |it: char| it.is_alphanumeric() || "_.-".contains(it);
            let fresh = *at == 0 || !behind(line[at - 1].char);
            fresh && gpu_label(line, *at).is_some_and(|end| cells::begins(line, end))
        };
        (0..line.len()).find(starts)
    };
    lines.iter().enumerate().find_map(|(number, line)| Some((number, row(line)?)))
}

/// The end offset of a label such as `GPU7` that begins at `at`.
fn gpu_label(line: &[LocatedChar], at: usize) -> Option<usize> {
    let is_gpu = begins_with(line.get(at..)?, "GPU");
    let digits = line.get(at + 3..)?.iter().take_while(|glyph| glyph.char.is_ascii_digit()).count();
    (is_gpu && digits > 0).then_some(at + 3 + digits)
}

fn is_of_label(char: char) -> bool {
    char.is_alphanumeric() || "_.:-".contains(char)
}

/// `GPU1` begins `GPU1` and `GPU1GPU2`, but not `GPU10`.
fn begins_with_label(word: &str, label: &str) -> bool {
    let rest = word.trim_start_matches(|char| !is_of_label(char)).strip_prefix(label);
    rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_digit() || next == ':'))
}

fn first_glyph(line: &[LocatedChar]) -> usize {
    line.iter().position(|glyph| !glyph.is_blank()).unwrap_or(line.len())
}

fn trimmed(line: &[LocatedChar]) -> &[LocatedChar] {
    let end = line.iter().rposition(|glyph| !glyph.is_blank()).map_or(0, |last| last + 1);
    &line[first_glyph(line).min(end)..end]
}

/// `line` without the prefix of every line of the report: `#`, `>`, `rank 0:` ...
fn without_prefix<'a>(line: &'a [LocatedChar], prefix: &[LocatedChar]) -> &'a [LocatedChar] {
    let start = first_glyph(line);
    let same = prefix.iter().zip(&line[start..]).filter(|(a, b)| a.char == b.char).count();
    if !prefix.is_empty() && same == prefix.len() { &line[start + prefix.len()..] } else { line }
}

/// The possible labels of rows: every beginning of a line that a cell follows. A label and a cell
/// may have run together.
fn known_labels(rows: &[Vec<LocatedChar>]) -> Vec<String> {
    let labels = |line: &Vec<LocatedChar>| {
        let start = first_glyph(line);
        let length = line[start..].iter().take_while(|glyph| !glyph.is_blank()).count();
        let ends = (start + 1..=start + length).filter(|end| cells::begins(line, *end));
        let label = |end: usize| plain(&line[start..end]);
        ends.map(label).filter(|label| !cells::is_cells(label)).collect::<Vec<_>>()
    };
    rows.iter().flat_map(labels).collect()
}

/// Reads the columns. The lines of a wrapped header are joined. A word that is not the label of
/// a row is split into labels of rows.
fn columns(lines: &[Vec<LocatedChar>], known: &[String]) -> Result<Columns, ReadError> {
    let joined = lines.concat();
    let text = plain(&joined);
    let affinity = ["CPU", "NUMA", "Affinity"].into_iter().filter_map(|word| text.find(word)).min();
    let affinity = affinity.map(|byte| text[..byte].chars().count());
    let tail: String = text
        .chars()
        .skip(affinity.unwrap_or(joined.len()))
        .filter(|it| !it.is_whitespace())
        .collect();
    let glyphs = joined[..affinity.unwrap_or(joined.len())].to_vec();
    let mut labels = Vec::new();
    let mut elided = Vec::new();
    let mut started = false;
    for word in words(&glyphs) {
        if started && is_ellipsis(&word.text) {
            elided.push(labels.len());
            continue;
        }
        let junk = word.text.chars().take_while(|char| !is_of_label(*char)).count();
        let word = LocatedWord { text: word.text.chars().skip(junk).collect(), at: word.at + junk };
        started |= is_numbered(&word.text)
            || known.iter().any(|label| begins_with_label(&word.text, label));
        if started && !word.text.is_empty() {
            labels.extend(
                split(&word, known)
                    .ok_or_else(|| error_at(&glyphs, word.at, "the label of a column"))?,
            );
        }
    }
    if labels.len() > MOST_COLUMNS {
        return Err(error_at(
            &glyphs,
            labels[MOST_COLUMNS].at,
            format!("at most {MOST_COLUMNS} columns"),
        ));
    }
    if let Some(twice) =
        labels.iter().enumerate().find(|(at, it)| labels[..*at].iter().any(|a| a.text == it.text))
    {
        return Err(error_at(&glyphs, twice.1.at, "every column once"));
    }
    let gpu_numa = tail.contains("GPUNUMA");
    let numa = tail.replace("GPUNUMA", "").contains("NUMA");
    Ok(Columns {
        labels,
        elided,
        cpu_affinity: tail.contains("CPU"),
        numa_affinity: numa,
        gpu_numa,
        glyphs,
    })
}

/// The largest number of columns: no machine has more devices.
const MOST_COLUMNS: usize = 1024;

/// The largest length of a word of labels that have run together.
const MOST_GLYPHS: usize = 512;
const LONGEST_LABEL: usize = 64;

/// The labels that a word is made of, the first one as long as possible; `None` if it is not made
/// of labels.
fn split(word: &LocatedWord, known: &[String]) -> Option<Vec<LocatedWord>> {
    let chars: Vec<char> = word.text.chars().take(MOST_GLYPHS + 1).collect();
    let count = chars.len();
    let text = |from: usize, to: usize| chars[from..to].iter().collect::<String>();
    let is_label = |from: usize, to: usize| {
        let part = text(from, to);
        let cut = chars.get(to).is_some_and(char::is_ascii_digit);
        known.contains(&part) || (is_numbered(&part) && !cut)
    };
    // By start of a rest of the word: the end of its first label. Filled from the back, so that
    // each rest is tried once.
    let mut ends: Vec<Option<usize>> = vec![None; count];
    for from in (0..count.min(MOST_GLYPHS)).rev() {
        let longest = count.min(from + LONGEST_LABEL);
        let fits = |to: &usize| (*to == count || ends[*to].is_some()) && is_label(from, *to);
        // A card whose row is missing is named only by the header.
        let alone = || is_plain(&chars[from..]).then_some(count);
        ends[from] = (from + 1..=longest).rev().find(fits).or_else(alone);
    }
    let mut labels = Vec::new();
    let mut from = 0;
    while from < count {
        let to = ends[from]?;
        labels.push(LocatedWord { text: text(from, to), at: word.at + from });
        from = to;
    }
    Some(labels)
}

/// Whether a name may be the label of a network card.
fn is_plain(name: &[char]) -> bool {
    let starts = name.first().is_some_and(|char| char.is_alphabetic())
        && !name.starts_with(&['G', 'P', 'U']);
    starts && name.len() <= LONGEST_LABEL && name.iter().all(|char| is_of_label(*char))
}

/// `GPU3` or `NIC12`.
fn is_numbered(text: &str) -> bool {
    let digits = text.strip_prefix("GPU").or_else(|| text.strip_prefix("NIC"));
    digits.is_some_and(|digits| {
        !digits.is_empty() && digits.chars().all(|char| char.is_ascii_digit())
    })
}

/// The names in the legend, such as `NIC0: mlx5_0`. The legend may be anywhere after the first row.
pub(super) fn nic_names(lines: &[Vec<LocatedChar>], nics: &[String]) -> Vec<Option<String>> {
    let text: Vec<String> = lines.iter().map(|line| plain(line)).collect();
    let named = |label: &String, line: &String| {
        let (before, after) = line.split_once(&format!("{label}:"))?;
        let name: String =
            after.trim_start().chars().take_while(|char| is_of_label(*char)).collect();
        let fresh = !before.ends_with(is_of_label) || is_numbered(label);
        (fresh && !name.is_empty() && !name.contains(':')).then_some(name)
    };
    nics.iter().map(|label| text.iter().find_map(|line| named(label, line))).collect()
}

/// Whether a label is the label of a GPU.
pub(super) fn is_gpu(label: &str) -> bool {
    label.starts_with("GPU") && is_numbered(label)
}

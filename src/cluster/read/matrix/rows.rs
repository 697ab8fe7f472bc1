//! The rows of a report: a label, one cell a column, and the affinity after the cells.

use super::affinity::{Affinity, is_affinity};
use super::cells::{self, RowReading};
use super::elision::{self, BlankedLine};
use super::header::{Columns, ReportLines, is_gpu};
use super::report::Matrix;
use crate::read::printed::PrintedClass;
use crate::read::text::{LocatedChar, ReadError, begins_with, error_at, plain};

/// The class of each pair of devices, by column; `None` where unknown.
type Cells = Vec<Vec<Option<PrintedClass>>>;

/// One row, its wrapped lines joined, and the ways in which it can be read.
struct MatrixRow<'a> {
    /// The column of the device that the row belongs to.
    device: usize,
    /// Everything after the label, with blanks instead of ellipses.
    glyphs: Vec<LocatedChar>,
    label: &'a str,
    readings: Vec<RowReading>,
    /// Where an ellipsis stood among the glyphs.
    ellipses: Vec<usize>,
}

struct Rows<'a> {
    rows: Vec<MatrixRow<'a>>,
    /// Whether a line of `...` stands for rows that were left out.
    elided: bool,
}

/// Reads the rows of `block` into a matrix.
pub(super) fn read(block: &ReportLines) -> Result<Matrix, ReadError> {
    let columns = &block.columns;
    let Rows { mut rows, elided } = collect(&block.lines[block.first_row..], columns)?;
    for row in &mut rows {
        elision::check(&row.glyphs, &row.ellipses, columns)?;
        row.readings = readings(row, columns)?;
    }
    settle(&mut rows, columns.labels.len());
    let mut cells = filled(&rows, columns)?;
    let mut notes = elision::column_notes(columns);
    let mut left_out = Vec::new();
    if elided || rows.iter().any(|row| !row.ellipses.is_empty()) {
        let has_row = |device| rows.iter().any(|row| row.device == device);
        left_out = elision::unknown_devices(&cells, has_row, &columns.labels);
        notes.extend(elision::row_note(&left_out, &columns.labels));
    }
    mend(&mut cells, &rows, columns, &left_out, &mut notes)?;
    let devices = (0..columns.labels.len()).filter(|device| !left_out.contains(device));
    Ok(assemble(columns, devices, &cells, &rows, notes))
}

/// Collects the lines of each row. A line that begins no row continues the row before it, as long
/// as that row lacks something. The first other line ends the report.
fn collect<'a>(lines: &[Vec<LocatedChar>], columns: &'a Columns) -> Result<Rows<'a>, ReadError> {
    let mut rows: Vec<MatrixRow> = Vec::new();
    let mut elided = false;
    for line in lines.iter().filter(|line| line.iter().any(|glyph| !glyph.is_blank())) {
        let BlankedLine { glyphs, ellipses } = BlankedLine::new(line);
        if !ellipses.is_empty() && glyphs.iter().all(LocatedChar::is_blank) {
            elided = true;
        } else if let Some((device, start)) = row_start(&glyphs, columns) {
            if rows.iter().any(|row| row.device == device) {
                return Err(error_at(line, cells::skip_blanks(line, 0), "every row once"));
            }
            rows.push(MatrixRow {
                device,
                glyphs: glyphs[start..].to_vec(),
                label: columns.labels[device].text.as_str(),
                readings: Vec::new(),
                ellipses: ellipses.iter().filter_map(|at| at.checked_sub(start)).collect(),
            });
        } else {
            match rows.last_mut() {
                Some(row) if continues(row, &glyphs, columns) => {
                    row.ellipses.extend(ellipses.iter().map(|at| at + row.glyphs.len()));
                    row.glyphs.extend(&glyphs);
                }
                _ => break,
            }
        }
    }
    Ok(Rows { rows, elided })
}

/// The device whose row begins on this line, and the position after its label.
fn row_start(line: &[LocatedChar], columns: &Columns) -> Option<(usize, usize)> {
    let start = cells::skip_blanks(line, 0);
    let end = |label: &str| {
        let end = start + label.chars().count();
        (begins_with(&line[start..], label) && cells::begins(line, end)).then_some(end)
    };
    let labels = columns.labels.iter().enumerate();
    let found = labels.filter_map(|(device, label)| Some((device, end(&label.text)?)));
    found.max_by_key(|(_, end)| *end)
}

/// Whether `line` continues `row`, because a window's edge has cut the row.
fn continues(row: &MatrixRow, line: &[LocatedChar], columns: &Columns) -> bool {
    if is_affinity(&plain(line)) {
        return true;
    }
    let joined = [row.glyphs.as_slice(), line].concat();
    let longest = |glyphs: &[LocatedChar]| {
        let readings = cells::read(glyphs, 0, columns.labels.len());
        readings.iter().map(|reading| reading.cells.len()).max().unwrap_or(0)
    };
    let before = longest(&row.glyphs);
    before < columns.labels.len() && longest(&joined) > before
}

/// The readings of a row that leave nothing but an affinity. A row may be shorter than the header,
/// never longer.
fn readings(row: &MatrixRow, columns: &Columns) -> Result<Vec<RowReading>, ReadError> {
    let all = cells::read(&row.glyphs, 0, columns.labels.len());
    let rest = |reading: &RowReading| plain(&row.glyphs[reading.end..]);
    let is_whole = |reading: &RowReading| reading.cells.len() == columns.labels.len();
    let fits = |reading: &&RowReading| match is_whole(reading) || !row.ellipses.is_empty() {
        true => is_affinity(&rest(reading)),
        false => rest(reading).trim().is_empty(),
    };
    let fitting: Vec<_> = all.iter().filter(fits).cloned().collect();
    if fitting.is_empty() { Err(not_a_cell(row, &all, columns)) } else { Ok(fitting) }
}

/// The error at the end of the longest reading.
fn not_a_cell(row: &MatrixRow, all: &[RowReading], columns: &Columns) -> ReadError {
    let longest = all.iter().max_by_key(|reading| reading.end);
    let longest = longest.expect("a row begins with a cell");
    let expected = match columns.labels.get(longest.cells.len()) {
        Some(column) => format!(
            "a class for {} and {}: X, NV#, PIX, PXB, PHB, NODE or SYS",
            row.label, column.text
        ),
        None => format!(
            "CPUs as in 0-7,16, or the end of the row: all {} columns are there",
            columns.labels.len()
        ),
    };
    error_at(&row.glyphs, cells::skip_blanks(&row.glyphs, longest.end), expected)
}

/// Chooses among several readings of a row. They differ in how digits that run together are cut;
/// the cell across the diagonal shows the correct one.
fn settle(rows: &mut [MatrixRow], columns: usize) {
    let mut known = vec![vec![None; columns]; columns];
    for row in rows.iter().filter(|row| row.readings.len() == 1) {
        let cells = &row.readings[0].cells;
        for (known, class) in known[row.device].iter_mut().zip(cells) {
            *known = Some(*class);
        }
    }
    for row in rows.iter_mut().filter(|row| row.readings.len() > 1) {
        let device = row.device;
        let agrees = |(column, class): (usize, &PrintedClass)| {
            known[column][device].is_none_or(|other| other == *class)
        };
        let agreeing = |reading: &&RowReading| {
            let diagonal = reading.cells.get(device);
            diagonal.is_none_or(|class| *class == PrintedClass::Same)
                && reading.cells.iter().enumerate().all(agrees)
        };
        let settled: Vec<_> = row.readings.iter().filter(agreeing).cloned().collect();
        if !settled.is_empty() {
            row.readings = settled;
        }
    }
}

/// The cells that the rows have, and `X` on the diagonal.
fn filled(rows: &[MatrixRow], columns: &Columns) -> Result<Cells, ReadError> {
    let count = columns.labels.len();
    let mut cells = vec![vec![None; count]; count];
    for row in rows {
        let [reading] = row.readings.as_slice() else { return Err(ambiguous(row)) };
        for (column, class) in reading.cells.iter().enumerate() {
            if (*class == PrintedClass::Same) != (column == row.device) {
                let expected = match column == row.device {
                    true => format!("X where the row and the column of {} meet", row.label),
                    false => format!(
                        "a class for {} and {}, not X",
                        row.label, columns.labels[column].text
                    ),
                };
                return Err(error_at(&row.glyphs, cell_start(row, column), expected));
            }
            cells[row.device][column] = Some(*class);
        }
    }
    for (device, row) in cells.iter_mut().enumerate() {
        row[device] = Some(PrintedClass::Same);
    }
    Ok(cells)
}

/// The error of a row with several readings, at its last `NV#`.
fn ambiguous(row: &MatrixRow) -> ReadError {
    let end = row.readings.iter().map(|reading| reading.end).min().unwrap_or(0);
    let start = (0..end).rev().find(|at| row.glyphs[*at].char == 'N').unwrap_or(0);
    error_at(&row.glyphs, start, "a blank between the number of NVLinks and that of a CPU")
}

/// Where the cell of `column` begins.
fn cell_start(row: &MatrixRow, column: usize) -> usize {
    let chosen = &row.readings[0].cells;
    let before = cells::read(&row.glyphs, 0, column);
    let same = before.iter().filter(|reading| chosen.starts_with(&reading.cells));
    let end = same.map(|reading| reading.end).max();
    cells::skip_blanks(&row.glyphs, end.unwrap_or(0))
}

/// Fills cells that a row lacks from across the diagonal, and notes contradictions. Devices that
/// are left out are skipped.
fn mend(
    cells: &mut Cells,
    rows: &[MatrixRow],
    columns: &Columns,
    left_out: &[usize],
    notes: &mut Vec<String>,
) -> Result<(), ReadError> {
    let label = |device: usize| columns.labels[device].text.as_str();
    let kept: Vec<usize> = (0..cells.len()).filter(|device| !left_out.contains(device)).collect();
    for (nth, &a) in kept.iter().enumerate() {
        for &b in &kept[nth + 1..] {
            match (cells[a][b], cells[b][a]) {
                (Some(class), Some(back)) if class.class() != back.class() => notes.push(format!(
                    "{} to {} is {class}, but the other direction is {back}",
                    label(a),
                    label(b)
                )),
                (Some(_), Some(_)) => {}
                (Some(class), None) | (None, Some(class)) => {
                    let (row, column) = if cells[a][b].is_none() { (a, b) } else { (b, a) };
                    cells[row][column] = Some(class);
                    notes.push(format!(
                        "{} to {} is missing: {class} is taken from the other direction",
                        label(row),
                        label(column)
                    ));
                }
                (None, None) if is_gpu(label(a)) || is_gpu(label(b)) => {
                    return Err(missing(a, b, rows, columns));
                }
                (None, None) => {
                    notes.push(format!(
                        "{} to {} is missing in both directions",
                        label(a),
                        label(b)
                    ));
                }
            }
        }
    }
    Ok(())
}

/// The error of a pair whose class is in neither row, at the end of one of the rows.
fn missing(a: usize, b: usize, rows: &[MatrixRow], columns: &Columns) -> ReadError {
    let a_label = &columns.labels[a].text;
    let b_label = &columns.labels[b].text;
    let expected = format!("a class for {a_label} and {b_label}, in one of their rows");
    let row = rows.iter().find(|row| row.device == a).or(rows.iter().find(|row| row.device == b));
    let glyphs = row.map_or(&columns.glyphs, |row| &row.glyphs);
    error_at(glyphs, glyphs.len(), expected)
}

/// The matrix of `devices`: GPUs first, then network cards, each in the order of the columns.
fn assemble(
    columns: &Columns,
    devices: impl Iterator<Item = usize>,
    cells: &Cells,
    rows: &[MatrixRow],
    mut notes: Vec<String>,
) -> Matrix {
    let label = |device: &usize| columns.labels[*device].text.clone();
    let (gpus, nics): (Vec<usize>, Vec<usize>) = devices.partition(|device| is_gpu(&label(device)));
    let order = [gpus.as_slice(), nics.as_slice()].concat();
    let row = |row: &usize| order.iter().map(|column| cells[*row][*column]).collect();
    let affinity = |device: &usize| {
        let row = rows.iter().find(|row| row.device == *device);
        row.map(|row| Affinity::read(&row.glyphs[row.readings[0].end..], columns))
            .unwrap_or_default()
    };
    let affinities: Vec<Affinity> = gpus.iter().map(affinity).collect();
    notes.extend(affinities.iter().filter_map(|affinity| affinity.note.clone()));
    Matrix {
        gpus: gpus.iter().map(label).collect(),
        nics: nics.iter().map(label).collect(),
        links: order.iter().map(row).collect(),
        cpu_affinity: affinities.iter().map(|affinity| affinity.cpus.clone()).collect(),
        numa_affinity: affinities.iter().map(|affinity| affinity.numa.clone()).collect(),
        nic_names: vec![None; nics.len()],
        notes,
    }
}

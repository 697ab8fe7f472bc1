//! The rows: one label, one cell a column, and the affinity behind them.

use super::affinity::{Affinity, is_affinity};
use super::cells::{self, RowReading};
use super::header::{Columns, ReportLines, is_gpu};
use crate::topology::read::matrix::Matrix;
use crate::topology::read::printed::PrintedClass;
use crate::topology::read::text::{LocatedChar, ReadError, error_at};

/// One row, unwrapped, and the ways in which it can be read.
struct MatrixRow<'a> {
    /// Which column has its label.
    device: usize,
    /// Everything behind the label.
    glyphs: Vec<LocatedChar>,
    label: &'a str,
    readings: Vec<RowReading>,
}

pub(super) fn read(block: &ReportLines) -> Result<Matrix, ReadError> {
    let columns = &block.columns;
    let mut rows = collect(&block.lines[block.first_row..], columns)?;
    for row in &mut rows {
        row.readings = readings(row, columns)?;
    }
    settle(&mut rows, columns.labels.len());
    let mut notes = Vec::new();
    let cells = complete(&rows, columns, &mut notes)?;
    assemble(columns, &cells, &rows, notes)
}

/// The lines as rows. What follows a row and does not begin another belongs to it while it lacks
/// something.
fn collect<'a>(
    lines: &[Vec<LocatedChar>],
    columns: &'a Columns,
) -> Result<Vec<MatrixRow<'a>>, ReadError> {
    let mut rows: Vec<MatrixRow> = Vec::new();
    for line in lines.iter().filter(|line| line.iter().any(|glyph| !glyph.is_blank())) {
        if let Some((device, start)) = starts(line, columns) {
            if rows.iter().any(|row| row.device == device) {
                return Err(error_at(line, cells::skip_blanks(line, 0), "every row once"));
            }
            let label = columns.labels[device].text.as_str();
            rows.push(MatrixRow {
                device,
                glyphs: line[start..].to_vec(),
                label,
                readings: Vec::new(),
            });
        } else {
            match rows.last_mut() {
                Some(row) if continues(row, line, columns) => row.glyphs.extend(line),
                _ => break,
            }
        }
    }
    Ok(rows)
}

/// Whose row begins on this line, and the glyph behind its label.
fn starts(line: &[LocatedChar], columns: &Columns) -> Option<(usize, usize)> {
    let start = cells::skip_blanks(line, 0);
    let end = |label: &str| {
        let same =
            label.chars().zip(&line[start..]).filter(|(char, glyph)| *char == glyph.char).count();
        let end = start + same;
        (same == label.chars().count() && cells::begins(line, end)).then_some(end)
    };
    let found =
        columns.labels.iter().enumerate().filter_map(|(at, label)| Some((at, end(&label.text)?)));
    found.max_by_key(|(_, end)| *end)
}

/// Whether `line` is the rest of `row`, which a window's edge has cut off.
fn continues(row: &MatrixRow, line: &[LocatedChar], columns: &Columns) -> bool {
    let text: String = line.iter().map(|glyph| glyph.char).collect();
    if is_affinity(&text) {
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

/// The readings whose rest is an affinity. A row may be shorter than the header, never longer.
fn readings(row: &MatrixRow, columns: &Columns) -> Result<Vec<RowReading>, ReadError> {
    let all = cells::read(&row.glyphs, 0, columns.labels.len());
    let rest = |reading: &RowReading| {
        row.glyphs[reading.end..].iter().map(|glyph| glyph.char).collect::<String>()
    };
    let is_whole = |reading: &RowReading| reading.cells.len() == columns.labels.len();
    let fits = |reading: &&RowReading| match is_whole(reading) {
        true => is_affinity(&rest(reading)),
        false => rest(reading).trim().is_empty(),
    };
    let fitting: Vec<_> = all.iter().filter(fits).cloned().collect();
    if fitting.is_empty() {
        let reading =
            all.iter().max_by_key(|reading| reading.end).expect("a row begins with a cell");
        let at = cells::skip_blanks(&row.glyphs, reading.end);
        let expected = match columns.labels.get(reading.cells.len()) {
            Some(column) => {
                format!(
                    "a class for {} and {}: X, NV#, PIX, PXB, PHB, NODE or SYS",
                    row.label, column.text
                )
            }
            None => format!(
                "CPUs as in 0-7,16, or the end of the row: all {} columns are there",
                columns.labels.len()
            ),
        };
        return Err(error_at(&row.glyphs, at, expected));
    }
    Ok(fitting)
}

/// Where digits have run together, the cell across the diagonal tells how to cut them.
fn settle(rows: &mut [MatrixRow], columns: usize) {
    let mut known = vec![vec![None; columns]; columns];
    for row in rows.iter().filter(|row| row.readings.len() == 1) {
        known[row.device][..row.readings[0].cells.len()]
            .iter_mut()
            .zip(&row.readings[0].cells)
            .for_each(|(known, class)| *known = Some(*class));
    }
    for row in rows.iter_mut().filter(|row| row.readings.len() > 1) {
        let agrees = |(column, class): (usize, &PrintedClass)| {
            known[column][row.device].is_none_or(|other| other == *class)
        };
        let device = row.device;
        let agreeing = |reading: &&RowReading| {
            let on_diagonal =
                reading.cells.get(device).is_none_or(|class| *class == PrintedClass::Same);
            on_diagonal && reading.cells.iter().enumerate().all(agrees)
        };
        let settled: Vec<_> = row.readings.iter().filter(agreeing).cloned().collect();
        if !settled.is_empty() {
            row.readings = settled;
        }
    }
}

/// The whole matrix: what a row lacks is taken from across the diagonal.
fn complete(
    rows: &[MatrixRow],
    columns: &Columns,
    notes: &mut Vec<String>,
) -> Result<Vec<Vec<Option<PrintedClass>>>, ReadError> {
    let count = columns.labels.len();
    let mut cells = vec![vec![None; count]; count];
    for row in rows {
        let [reading] = row.readings.as_slice() else {
            let end = row.readings.iter().map(|reading| reading.end).min().unwrap_or(0);
            let start = (0..end).rev().find(|at| row.glyphs[*at].char == 'N').unwrap_or(0);
            return Err(error_at(
                &row.glyphs,
                start,
                "a blank between the number of NVLinks and that of a CPU",
            ));
        };
        for (column, class) in reading.cells.iter().enumerate() {
            if (*class == PrintedClass::Same) != (column == row.device) {
                let expected = match column == row.device {
                    true => format!("X where the row and the column of {} meet", row.label),
                    false => format!(
                        "a class for {} and {}, not X",
                        row.label, columns.labels[column].text
                    ),
                };
                let at = cell_start(row, column);
                return Err(error_at(&row.glyphs, at, expected));
            }
            cells[row.device][column] = Some(*class);
        }
    }
    cells.iter_mut().enumerate().for_each(|(device, row)| row[device] = Some(PrintedClass::Same));
    mend(&mut cells, rows, columns, notes)?;
    Ok(cells)
}

/// Where the cell of `column` begins.
fn cell_start(row: &MatrixRow, column: usize) -> usize {
    let before = cells::read(&row.glyphs, 0, column);
    let end = before
        .iter()
        .filter(|reading| row.readings[0].cells.starts_with(&reading.cells))
        .map(|it| it.end)
        .max();
    cells::skip_blanks(&row.glyphs, end.unwrap_or(0))
}

fn mend(
    cells: &mut [Vec<Option<PrintedClass>>],
    rows: &[MatrixRow],
    columns: &Columns,
    notes: &mut Vec<String>,
) -> Result<(), ReadError> {
    let label = |device: usize| columns.labels[device].text.as_str();
    let count = cells.len();
    for (a, b) in (0..count).flat_map(|a| (a + 1..count).map(move |b| (a, b))) {
        match (cells[a][b], cells[b][a]) {
            (Some(class), Some(other)) if class.class() != other.class() => {
                notes.push(format!(
                    "{} to {} is {class}, but back it is {other}",
                    label(a),
                    label(b)
                ));
            }
            (Some(_), Some(_)) => {}
            (Some(class), None) | (None, Some(class)) => {
                let (row, column) = if cells[a][b].is_none() { (a, b) } else { (b, a) };
                cells[row][column] = Some(class);
                notes.push(format!(
                    "{} to {} is missing: taken as {class}, as it is back",
                    label(row),
                    label(column)
                ));
            }
            (None, None) if is_gpu(label(a)) || is_gpu(label(b)) => {
                return Err(missing(a, b, rows, columns));
            }
            (None, None) => {
                notes.push(format!("{} to {} is missing, both ways", label(a), label(b)))
            }
        }
    }
    Ok(())
}

fn missing(a: usize, b: usize, rows: &[MatrixRow], columns: &Columns) -> ReadError {
    let (a_label, b_label) = (&columns.labels[a].text, &columns.labels[b].text);
    let expected = format!("a class for {a_label} and {b_label}, in one of their rows");
    let row = rows.iter().find(|row| row.device == a).or(rows.iter().find(|row| row.device == b));
    let glyphs = row.map_or(&columns.glyphs, |row| &row.glyphs);
    error_at(glyphs, glyphs.len(), expected)
}

/// GPUs first, then network cards, each in the order of the columns.
fn assemble(
    columns: &Columns,
    cells: &[Vec<Option<PrintedClass>>],
    rows: &[MatrixRow],
    mut notes: Vec<String>,
) -> Result<Matrix, ReadError> {
    let devices = 0..columns.labels.len();
    let (gpus, nics): (Vec<_>, Vec<_>) =
        devices.partition(|device| is_gpu(&columns.labels[*device].text));
    let order = [gpus.as_slice(), nics.as_slice()].concat();
    let labels = |of: &[usize]| {
        of.iter().map(|device| columns.labels[*device].text.clone()).collect::<Vec<_>>()
    };
    let affinity = |device: &usize| {
        let row = rows.iter().find(|row| row.device == *device);
        row.map(|row| Affinity::read(&row.glyphs[row.readings[0].end..], columns))
            .unwrap_or_default()
    };
    let affinities: Vec<_> = gpus.iter().map(affinity).collect();
    notes.extend(affinities.iter().filter_map(|affinity| affinity.note.clone()));
    Ok(Matrix {
        gpus: labels(&gpus),
        nics: labels(&nics),
        links: order
            .iter()
            .map(|row| order.iter().map(|column| cells[*row][*column]).collect())
            .collect(),
        cpu_affinity: affinities.iter().map(|affinity| affinity.cpus.clone()).collect(),
        numa_affinity: affinities.iter().map(|affinity| affinity.numa.clone()).collect(),
        nic_names: vec![None; nics.len()],
        notes,
    })
}

//! The tour as one page: a table, and pictures of the ranks' memory and of pipelines.
//!
//! What it does: writes HTML that names no other file and runs no script. What is sharded, which
//! collective runs where, cost: nothing.

use crate::report::draw;
use crate::tour::row::{NOTE, TourRow};
use maypole_pictures::writer::{SvgWriter, escaped};
use std::fmt::Write;

const STYLE: &str = "body{font:14px sans-serif;margin:2em auto;max-width:1100px;color:#222}\
    table{border-collapse:collapse;width:100%}th,td{padding:2px 6px;text-align:right}\
    th:first-child,td:first-child{text-align:left}tr.theory td{color:#777;\
    border-bottom:1px solid #ddd}.no{color:#fff;background:#b3261e}svg{width:100%;height:auto}\
    figcaption{color:#555}";

/// The kinds of memory, their colours, and the values of a row: measured and by theory, in bytes.
fn kinds(row: &TourRow) -> [(&'static str, &'static str, [u64; 2]); 5] {
    let [weights, gradients, optimizer, activations, units, _] = row.bytes;
    [
        ("weights", "#3b6fb6", weights),
        ("gradients", "#3f8f5b", gradients),
        ("optimizer", "#8a6bb0", optimizer),
        ("activations", "#e0a526", activations),
        ("units held for a moment", "#c8553d", units),
    ]
}

/// The page of these rows.
///
/// ```
/// let page = maypole_lab::tour::page::html(&[]);
/// assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
/// ```
pub fn html(rows: &[TourRow]) -> String {
    let good = rows.iter().filter(|row| row.pass).count();
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <title>Every axis of parallelism</title><style>{STYLE}</style></head><body>\n\
         <h1>Every axis of parallelism</h1>\n<p>{good} of {} configurations agree with one process \
         and with theory.</p>\n",
        rows.len()
    );
    table(&mut out, rows);
    let _ = writeln!(out, "<pre>{}</pre>", escaped(NOTE));
    memory(&mut out, rows);
    out += "<h2>How pipelines ran</h2>\n<p>The passes of the last step in the order in which they \
            ran, replayed with the least processor time of each kind of pass.</p>\n";
    for row in rows {
        let Some(trace) = &row.pipeline else { continue };
        let title = format!("{}, {}", row.axis, row.mesh);
        let picture = draw::svg(trace, &title);
        let _ = writeln!(out, "<figure>{picture}</figure>");
    }
    out + "</body></html>\n"
}

fn table(out: &mut String, rows: &[TourRow]) {
    let heads = [
        "axis, and mesh",
        "difference",
        "pass",
        "weights",
        "gradients",
        "optimizer",
        "activations",
        "units",
        "sent",
        "bubble",
        "overlap",
        "s",
    ];
    let heads: String = heads.iter().map(|head| format!("<th>{head}</th>")).collect();
    let _ = writeln!(out, "<table><tr>{heads}</tr>");
    for row in rows {
        let mark = if row.pass { "<td>yes</td>" } else { "<td class=\"no\">NO</td>" };
        let line = |first: &str, second: &str, third: &str, nth: usize| {
            let kib = |bytes: u64| format!("<td>{:.1} KiB</td>", bytes as f64 / 1024.0);
            let bytes: String = kinds(row).iter().map(|kind| kib(kind.2[nth])).collect();
            let wire = kib(row.bytes[5][nth]);
            let bubble = [row.bubble, row.bubble_theory][nth];
            let overlap = [row.overlapped, row.overlapped_theory][nth];
            format!(
                "<td>{first}</td><td>{second}</td>{third}{bytes}{wire}<td>{:.0} %</td>\
                 <td>{overlap}/{}</td>",
                100.0 * bubble,
                row.passes
            )
        };
        let measured = line(&escaped(&row.axis), &format!("{:.1e}", row.difference), mark, 0);
        let theory = line(&escaped(&row.mesh), &escaped(&row.criterion), "<td>theory</td>", 1);
        let _ = writeln!(out, "<tr>{measured}<td>{:.1}</td></tr>", row.seconds);
        let _ = writeln!(out, "<tr class=\"theory\">{theory}<td></td></tr>");
    }
    *out += "</table>\n";
}

/// Bars of the memory of rank 0, measured and by theory.
fn memory(out: &mut String, rows: &[TourRow]) {
    let most = rows.iter().map(|row| total(row, 0).max(total(row, 1))).max().unwrap_or(0).max(1);
    let left = 260.0;
    let wide = 640.0;
    let row_height = 26.0;
    let height = 60.0 + row_height * rows.len() as f64;
    *out += "<h2>Memory of rank 0</h2>\n<p>Upper bar: measured; lower bar: theory. Activations and \
             units are the most of a step, and need not come at one time.</p>\n";
    let mut picture = SvgWriter::page(1000.0, height);
    for (nth, row) in rows.iter().enumerate() {
        let y = 30.0 + row_height * nth as f64;
        let name = format!("{}, {}", row.axis, row.mesh);
        picture.text([left - 8.0, y + 15.0], "text-anchor=end", name);
        for (side, tall) in [(0, 13.0), (1, 6.0)] {
            let y = y + 14.0 * side as f64;
            let mut x = left;
            for (_, colour, values) in kinds(row) {
                let long = wide * values[side] as f64 / most as f64;
                picture.rect([x, y, long, tall], format_args!("fill={colour}"));
                x += long;
            }
        }
    }
    if let Some(row) = rows.first() {
        let mut x = left;
        for (name, colour, _) in kinds(row) {
            picture.rect([x, 8.0, 10.0, 10.0], format_args!("fill={colour}"));
            picture.text([x + 14.0, 17.0], "", name);
            x += 40.0 + 6.5 * name.len() as f64;
        }
    }
    let most = format!("{:.1} MiB", most as f64 / f64::from(1 << 20));
    picture.text([left + wide, height - 8.0], "text-anchor=end", most);
    *out += &picture.finish();
}

fn total(row: &TourRow, side: usize) -> u64 {
    kinds(row).iter().map(|kind| kind.2[side]).sum()
}

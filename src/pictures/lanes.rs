//! Lanes for a terminal: one line each, time from left to right.

use maypole::schedule::trace::{Slice, SliceKind, Trace};
use std::fmt::Write;

/// A slice of at least this many columns shows its beginning as `|`.
const SEPARATED: u64 = 3;

/// Every lane in `columns` characters of time, below an axis.
///
/// A column shows the mark of the slice that fills most of it, `|` where a long slice begins, and a
/// dot where there is no slice. So a short slice looks longer than it is. Calls are left out,
/// because the slices inside them are shown.
///
/// # Panics
/// If there are no columns.
pub fn text(trace: &Trace, columns: usize) -> String {
    assert!(columns > 0, "time needs room");
    let start = trace.slices.iter().map(|slice| slice.start).min().unwrap_or(0);
    let end = trace.slices.iter().map(|slice| slice.end).max().unwrap_or(0);
    let scale = TimeAxis { start, length: (end - start).max(1), columns: columns as u64 };
    let owners = trace.lanes.iter().map(|lane| lane.owner.chars().count()).max().unwrap_or(0);
    let parts = trace.lanes.iter().map(|lane| lane.part.chars().count()).max().unwrap_or(0);
    let mut text = format!("{:owners$} {:parts$}  {}\n", "", "", scale.axis());
    let mut before = "";
    for (at, lane) in trace.lanes.iter().enumerate() {
        let owner = if lane.owner == before { "" } else { &lane.owner };
        before = &lane.owner;
        let slices =
            trace.slices.iter().filter(|slice| slice.lane == at && slice.kind != SliceKind::Call);
        let _ = writeln!(text, "{owner:owners$} {:parts$}  {}", lane.part, scale.row(slices));
    }
    text
}

struct TimeAxis {
    start: u64,
    length: u64,
    columns: u64,
}

impl TimeAxis {
    fn row<'a>(&self, slices: impl Iterator<Item = &'a Slice>) -> String {
        // By column: the mark of the slice that fills most of it, and how much that slice fills.
        let mut row = vec![('.', 0); self.columns as usize];
        for slice in slices {
            let first = self.column(slice.start);
            let last = self.column(slice.end.saturating_sub(1).max(slice.start));
            for column in first..=last {
                let fills = self
                    .edge(column + 1)
                    .min(slice.end)
                    .saturating_sub(self.edge(column).max(slice.start))
                    + 1;
                let here = &mut row[column as usize];
                if fills > here.1 {
                    let begins = column == first && last - first + 1 >= SEPARATED;
                    *here = (if begins { '|' } else { slice.mark }, fills);
                }
            }
        }
        row.into_iter().map(|(mark, _)| mark).collect()
    }

    fn column(&self, time: u64) -> u64 {
        let column =
            u128::from(time - self.start) * u128::from(self.columns) / u128::from(self.length);
        (column as u64).min(self.columns - 1)
    }

    /// When a column begins.
    fn edge(&self, column: u64) -> u64 {
        self.start
            + (u128::from(column) * u128::from(self.length) / u128::from(self.columns)) as u64
    }

    /// The axis: four times, each at its column, and the end.
    fn axis(&self) -> String {
        let mut axis = String::new();
        for quarter in 0..4 {
            let column = self.columns * quarter / 4;
            let room = self.columns * (quarter + 1) / 4 - column;
            let since = self.edge(column) - self.start;
            let label = if quarter == 0 { "0".to_owned() } else { length(since) };
            let fits = (label.len() as u64) < room;
            let _ = write!(axis, "{:<room$}", if fits { &label } else { "" }, room = room as usize);
        }
        format!("{axis}{}", length(self.length))
    }
}

/// A length of time in the unit that suits it.
fn length(nanoseconds: u64) -> String {
    let time = nanoseconds as f64;
    match nanoseconds {
        0..10_000 => format!("{nanoseconds} ns"),
        10_000..10_000_000 => format!("{:.1} us", time / 1e3),
        10_000_000..10_000_000_000 => format!("{:.1} ms", time / 1e6),
        _ => format!("{:.1} s", time / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use maypole::schedule::trace::TraceLane;

    fn trace(slices: &[(usize, u64, u64, char)]) -> Trace {
        let lane = |thread| TraceLane {
            process: 0,
            process_name: "test".to_owned(),
            thread,
            owner: format!("rank {}", thread / 2),
            part: ["sends", "receives"][thread as usize % 2].to_owned(),
        };
        let slice = |&(lane, start, end, mark): &(usize, u64, u64, char)| Slice {
            lane,
            kind: SliceKind::Send,
            name: String::new(),
            start,
            end,
            mark,
            facts: Vec::new(),
        };
        Trace {
            lanes: (0..3).map(lane).collect(),
            slices: slices.iter().map(slice).collect(),
            ends: Vec::new(),
        }
    }

    #[test]
    fn columns_show_what_fills_them() {
        let trace = trace(&[
            (0, 0, 40, '1'),
            (0, 40, 80, '2'),
            (1, 60, 61, '3'),
            (2, 79, 80, '4'),
            (2, 0, 0, '5'),
        ]);
        let expected = "
                 0     20 ns 40 ns 60 ns 80 ns
rank 0 sends     |11111111111|22222222222
       receives  ..................3.....
rank 1 sends     5......................4
";
        assert_eq!(text(&trace, 24), expected.trim_start_matches('\n'));
    }

    #[test]
    fn nothing_takes_no_time() {
        assert!(text(&trace(&[]), 8).ends_with("rank 1 sends     ........\n"));
    }
}

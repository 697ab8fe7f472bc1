//! Tables of percentiles: times of most batches and of the slowest.

use super::{percent_of_limit, three_digits};
use crate::perf::benchmark::BufferPlacement;
use crate::perf::measure::limits::MachineLimit;
use crate::perf::measure::summary::Summary;
use crate::perf::messages::row::MessageRow;
use crate::perf::output::row::PerfRow;
use crate::sizes;

const HEAD: &str = "<th>p50</th><th>p90</th><th>p99</th><th>stdev</th>";

/// A line for each row and placement of the calls of one collective over one transport.
pub(super) fn of_calls(rows: &[&PerfRow], limits: &[MachineLimit]) -> String {
    let lines = rows.iter().flat_map(|row| {
        row.measured().map(move |(place, measured)| {
            let place = match place {
                BufferPlacement::InPlace => "in place",
                BufferPlacement::OutOfPlace => "out of place",
            };
            let (size, name, time) = (sizes::name(row.bytes()), row.series_name(), measured.time);
            let bus = three_digits(row.bandwidths(measured).bus);
            let limit = percent_of_limit(row, time.p50, limits).unwrap_or_default();
            let cells = cells(&time);
            format!(
                "<tr><th>{size}</th><th>{name}</th><th>{place}</th>{cells}<td>{bus}</td>\
                 <td>{limit}</td></tr>\n"
            )
        })
    });
    let columns = format!("<th>algorithm</th><th></th>{HEAD}<th>GB/s</th><th>% of limit</th>");
    let over = rows.first().map_or_else(String::new, |row| row.transport.to_string());
    table(&over, &columns, lines.collect())
}

/// A line for each row of one test of messages over one transport.
pub(super) fn of_messages(rows: &[&MessageRow]) -> String {
    let lines = rows.iter().map(|row| {
        let (size, pairs, rate) = (sizes::name(row.bytes), row.pairs(), three_digits(row.rate()));
        let cells = cells(&row.measured.time);
        format!("<tr><th>{size}</th><th>{pairs}</th>{cells}<td>{rate}</td></tr>\n")
    });
    let columns = format!("<th>pairs</th>{HEAD}<th>GB/s</th>");
    let over = rows.first().map_or_else(String::new, |row| row.transport.to_string());
    table(&over, &columns, lines.collect())
}

fn cells(time: &Summary) -> String {
    let figures = [time.p50, time.p90, time.p99, time.stdev];
    figures.map(|us| format!("<td>{}</td>", three_digits(us))).concat()
}

/// Microseconds, below a line that opens the table.
fn table(over: &str, columns: &str, lines: String) -> String {
    format!(
        "<details>\n<summary>percentiles</summary>\n<div class=\"wide\">\
         <table class=\"percentiles\" data-over=\"{over}\">\n<tr><th>size</th>{columns}</tr>\n\
         {lines}</table></div>\n<p class=\"small\">Microseconds.</p>\n</details>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::measure::limits::tests::example as limit;
    use crate::perf::output::row::tests::example;

    #[test]
    fn every_placement_has_its_percentiles_and_its_part_of_the_limit() {
        let row = example();
        let limits = [MachineLimit { points: vec![(1.0, 60.0), (1e9, 60.0)], ..limit() }];
        let html = of_calls(&[&row], &limits);
        let line = "<td>100</td><td>120</td><td>150</td><td>12.0</td><td>15.7</td><td>60</td>";
        assert_eq!(html.matches(line).count(), 2, "{html}");
        assert!(html.contains("<th>1M</th><th>auto</th><th>in place</th>"), "{html}");
        assert!(of_calls(&[&row], &[]).contains("<td>15.7</td><td></td></tr>"));
    }
}

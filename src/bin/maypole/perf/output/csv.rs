//! The same as a table for other programs.

use crate::perf::benchmark::{Place, bus_factor};
use crate::perf::measure::Measured;
use crate::perf::measure::limits::Limit;
use crate::perf::output::row::Row;

const HEAD: &str = "collective,transport,ranks,algorithm,tuners_choice,in_place,bytes,count,type,op,root,\
    min_us,p50_us,p90_us,p99_us,mean_us,algbw_GBps,busbw_GBps,predicted_us,limit_us,wrong,calls";

/// One line for each size in and out of place. What is not known is empty.
pub(crate) fn text(rows: &[Row], limits: &[Limit]) -> String {
    let lines = rows.iter().flat_map(|row| {
        row.measured().map(|(place, measured)| line(row, place, &measured, limits))
    });
    std::iter::once(HEAD.to_owned()).chain(lines).map(|line| line + "\n").collect()
}

fn line(row: &Row, place: Place, measured: &Measured, limits: &[Limit]) -> String {
    let (collective, time, given) = (row.point.collective, measured.time, row.given);
    let (algorithm_bandwidth, bus_bandwidth) = row.bandwidths(measured);
    let limit = limits.iter().find(|limit| limit.transport == row.transport);
    let limit = limit.and_then(|limit| limit.us(row.bytes(), bus_factor(collective, given.world)));
    let known = |number: Option<f64>| number.map_or_else(String::new, |number| number.to_string());
    let fields = [
        collective.name().to_owned(),
        row.transport.to_string(),
        given.world.to_string(),
        row.algorithm.to_string(),
        row.prediction.map_or_else(String::new, |it| it.choice.to_string()),
        (place == Place::Same).to_string(),
        row.bytes().to_string(),
        row.point.count.to_string(),
        given.kind.name().to_owned(),
        if collective.reduces() { given.op.name().to_owned() } else { String::new() },
        collective.root().map_or_else(String::new, |root| root.to_string()),
        time.min.to_string(),
        time.p50.to_string(),
        time.p90.to_string(),
        time.p99.to_string(),
        time.mean.to_string(),
        algorithm_bandwidth.to_string(),
        bus_bandwidth.to_string(),
        known(row.prediction.map(|it| it.us)),
        known(limit),
        measured.wrong.map_or_else(String::new, |wrong| wrong.to_string()),
        measured.calls.to_string(),
    ];
    fields.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::measure::limits::tests::example as limit;
    use crate::perf::output::row::tests::example as row;

    #[test]
    fn every_line_has_every_field() {
        let text = text(&[row(), row()], &[limit()]);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
        assert_eq!(lines.len(), 1 + 4);
        assert!(lines.iter().all(|line| line.len() == lines[0].len()), "{text}");
        let field = |name: &str| lines[1][lines[0].iter().position(|it| *it == name).unwrap()];
        assert_eq!(
            (field("p50_us"), field("algorithm"), field("in_place")),
            ("100", "two-shot", "false")
        );
    }
}

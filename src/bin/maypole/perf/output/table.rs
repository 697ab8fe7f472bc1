//! The table, in the spirit of nccl-tests.

use crate::names;
use crate::perf::benchmark::bus_factor;
use crate::perf::measure::Measured;
use crate::perf::output::row::Row;
use maypole::schedule::collective::Collective;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The lines above the rows.
pub(crate) fn head() -> String {
    let places = format!("{:<35}", "out-of-place");
    let columns = format!("{:>9} {:>8} {:>8} {:>7}", "time", "algbw", "busbw", "#wrong");
    let units = format!("{:>9} {:>8} {:>8} {:>7}", "(us)", "(GB/s)", "(GB/s)", "");
    let percentiles = format!("{:>9} {:>9} {:>9}", "p50", "p90", "p99");
    format!(
        "#{:>60}| {places} | {:<35} | {}\n\
         #{:>10} {:>11} {:>5} {:>7} {:>5} {:>16} | {columns} | {columns} | {percentiles}\n\
         #{:>10} {:>11} {:>36} | {units} | {units} | {:>9} {:>9} {:>9}",
        "",
        "in-place",
        "batches",
        "size",
        "count",
        "type",
        "op",
        "root",
        "algorithm",
        "(B)",
        "(elements)",
        "",
        "(us)",
        "(us)",
        "(us)"
    )
}

/// The line above the rows of one collective.
pub(crate) fn section(row: &Row) -> String {
    let mode =
        if row.deterministic && row.point.collective.reduces() { ", deterministic" } else { "" };
    format!("# {} over {}{mode}", names::dashed(row.point.collective), row.transport)
}

/// One row.
pub(crate) fn line(row: &Row) -> String {
    let collective = row.point.collective;
    let op = if collective.reduces() { row.given.op.name() } else { "-" };
    let root = collective.root().map_or_else(|| "-".to_owned(), |root| root.to_string());
    let percentiles = row.measured().next().map(|(_, measured)| measured.time);
    let percentile =
        |pick: fn(crate::perf::measure::summary::Summary) -> f64| time(percentiles.map(pick));
    format!(
        " {:>10} {:>11} {:>5} {op:>7} {root:>5} {:>16} | {} | {} | {} {} {}",
        row.bytes(),
        row.point.count,
        row.given.kind.name(),
        row.algorithm,
        place(row, row.apart),
        place(row, row.same),
        percentile(|time| time.p50),
        percentile(|time| time.p90),
        percentile(|time| time.p99),
    )
}

fn place(row: &Row, measured: Option<Measured>) -> String {
    let Some(measured) = measured else {
        return format!("{:>9} {:>8} {:>8} {:>7}", "-", "-", "-", "-");
    };
    let wrong = measured.wrong.map_or_else(|| "-".to_owned(), |wrong| wrong.to_string());
    let (algorithm, bus) = row.bandwidths(&measured);
    format!(
        "{} {} {} {wrong:>7}",
        time(Some(measured.time.p50)),
        bandwidth(row, algorithm),
        bandwidth(row, bus)
    )
}

/// Three digits or more.
fn time(us: Option<f64>) -> String {
    let Some(us) = us else { return format!("{:>9}", "-") };
    let digits = if us < 10.0 {
        3
    } else if us < 100.0 {
        2
    } else {
        1
    };
    format!("{us:>9.digits$}")
}

fn bandwidth(row: &Row, bandwidth: f64) -> String {
    if row.point.collective == Collective::Barrier {
        return format!("{:>8}", "-");
    }
    let digits = match bandwidth {
        ..0.01 => 6,
        ..1.0 => 4,
        _ => 2,
    };
    format!("{bandwidth:>8.digits$}")
}

/// What the rows come to, and what the numbers mean.
#[derive(Default)]
pub(crate) struct Totals {
    /// Bus bandwidths, by transport.
    buses: BTreeMap<String, Vec<f64>>,
    factors: BTreeMap<String, f64>,
    results: u64,
    unchecked: u64,
    pub(crate) wrong: u64,
}

impl Totals {
    pub(crate) fn add(&mut self, row: &Row) {
        for (_, measured) in row.measured() {
            match measured.wrong {
                Some(wrong) => (self.results, self.wrong) = (self.results + 1, self.wrong + wrong),
                None => self.unchecked += 1,
            }
            if row.point.collective != Collective::Barrier {
                let (transport, bus) = (row.transport.to_string(), row.bandwidths(&measured).1);
                self.buses.entry(transport).or_default().push(bus);
                let factor = bus_factor(row.point.collective, row.given.world);
                self.factors.insert(names::dashed(row.point.collective), factor);
            }
        }
    }

    /// The lines below the rows.
    pub(crate) fn text(&self, one_clock: bool) -> String {
        let mut text = String::new();
        let clock = if one_clock {
            "from the first rank's start to the last rank's end, averaged over a batch of back-to-back calls"
        } else {
            "on the rank that took longest (hosts have clocks of their own), averaged over a batch of back-to-back calls"
        };
        let _ = writeln!(text, "# time    one call, {clock}; the median of the batches");
        let _ = writeln!(
            text,
            "# p50...  percentiles of the batches, out of place; in place where that is all there is"
        );
        let _ = writeln!(
            text,
            "# size    the whole: the vector, or all ranks' blocks together; count: of the vector, or of one block"
        );
        let _ = writeln!(text, "# algbw   size / time; 1 GB/s is 10^9 bytes a second");
        if !self.factors.is_empty() {
            let _ = writeln!(
                text,
                "# busbw   algbw x factor, to be compared with what a link carries: {}",
                self.factors()
            );
        }
        let _ = writeln!(
            text,
            "# #wrong  elements that were not, to the bit, what they should be, on all ranks; must be 0"
        );
        for (transport, buses) in &self.buses {
            let average = buses.iter().sum::<f64>() / buses.len() as f64;
            let _ = writeln!(text, "# average busbw over {transport}: {average:.3} GB/s");
        }
        let _ = write!(text, "# #wrong total: {}", self.verdict());
        text
    }

    fn factors(&self) -> String {
        let mut by_factor: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for (collective, factor) in &self.factors {
            by_factor.entry(format!("{factor:.4}")).or_default().push(collective);
        }
        names::listed(
            by_factor
                .into_iter()
                .map(|(factor, collectives)| format!("{factor} for {}", collectives.join(" "))),
        )
    }

    fn verdict(&self) -> String {
        match (self.wrong, self.results, self.unchecked) {
            (_, 0, 0) => "nothing was measured".to_owned(),
            (_, 0, _) => "nothing was checked".to_owned(),
            (0, results, _) => format!("0 in {results} measurements: OK"),
            (wrong, results, _) => format!("{wrong} in {results} measurements: NOT OK"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::output::row::tests::example;

    #[test]
    fn rows_stand_under_their_heads() {
        let (head, line) = (head(), line(&example()));
        let bars = |line: &str| line.match_indices('|').map(|(at, _)| at).collect::<Vec<_>>();
        for head in head.lines() {
            assert_eq!(bars(head), bars(&line), "\n{head}\n{line}");
        }
        assert!(
            line.contains("10.49") && line.contains("15.73") && line.contains("two-shot"),
            "{line}"
        );
    }

    #[test]
    fn totals_say_what_is_wrong_and_what_factors_were_used() {
        let mut totals = Totals::default();
        totals.add(&example());
        let text = totals.text(true);
        assert!(text.contains("average busbw over shm: 15.729 GB/s"), "{text}");
        assert!(text.contains("1.5000 for all-reduce"), "{text}");
        assert!(text.ends_with("# #wrong total: 3 in 2 measurements: NOT OK"), "{text}");
    }

    #[test]
    fn nothing_measured_is_not_called_ok() {
        assert!(Totals::default().text(true).ends_with("nothing was measured"));
    }
}

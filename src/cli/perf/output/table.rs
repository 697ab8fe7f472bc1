//! The table of results, with the columns of nccl-tests.

use crate::names;
use crate::perf::benchmark::bus_factor;
use crate::perf::counts;
use crate::perf::measure::Measurement;
use crate::perf::measure::rank_times::RankSpread;
use crate::perf::measure::summary::Summary;
use crate::perf::messages::row::figure;
use crate::perf::output::row::PerfRow;
use maypole::schedule::collective::Collective;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The lines above the rows.
pub(crate) fn head() -> String {
    let out_of_place = format!("{:<35}", "out-of-place");
    let columns = format!("{:>9} {:>8} {:>8} {:>7}", "time", "algbw", "busbw", "#wrong");
    let units = format!("{:>9} {:>8} {:>8} {:>7}", "(us)", "(GB/s)", "(GB/s)", "");
    let percentiles = format!("{:>9} {:>9} {:>9}", "p50", "p90", "p99");
    format!(
        "#{:>60}| {out_of_place} | {:<35} | {}\n\
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
pub(crate) fn section(row: &PerfRow) -> String {
    let mode =
        if row.deterministic && row.point.collective.reduces() { ", deterministic" } else { "" };
    let encrypted = if row.is_encrypted { ", encrypted" } else { "" };
    let requests = if row.overlap.is_some() { ", beside computing" } else { "" };
    let shares = row.point.shares.as_ref();
    let form = shares.map(|shares| format!(", blocks of {} shares", counts::listed(shares)));
    let form = form.unwrap_or_default();
    let collective = names::dashed(row.point.collective);
    format!("# {collective} over {}{encrypted}{mode}{requests}{form}", row.transport)
}

pub(crate) fn line(row: &PerfRow) -> String {
    let collective = row.point.collective;
    let op = if collective.reduces() { row.parameters.op.name() } else { "-" };
    let root = collective.root().map_or_else(|| "-".to_owned(), |root| root.to_string());
    let measured = row.measured().next().map(|(_, measured)| measured);
    // One batch has a time, and no percentiles.
    let percentiles = measured.filter(|measured| measured.batches > 1);
    let percentile = |pick: fn(Summary) -> f64| time(percentiles.map(|it| pick(it.time)));
    format!(
        " {:>10} {:>11} {:>5} {op:>7} {root:>5} {:>16} | {} | {} | {} {} {}",
        row.bytes(),
        row.point.count,
        row.parameters.kind.name(),
        row.ran(),
        figures(row, row.out_of_place.as_ref()),
        figures(row, row.in_place.as_ref()),
        percentile(|time| time.p50),
        percentile(|time| time.p90),
        percentile(|time| time.p99),
    )
}

/// The line below a row of schedules of a file, or of calls on GPUs: the tuner's prediction.
pub(crate) fn prediction(row: &PerfRow) -> Option<String> {
    let predicted = row.prediction.filter(|_| row.is_own || row.transport.is_on_gpus())?;
    let us = time(Some(predicted.us));
    Some(format!(
        "#  predicted: {} us; the tuner would choose {}",
        us.trim_start(),
        predicted.choice
    ))
}

/// The line below a row of requests: how much of a request was hidden.
pub(crate) fn overlap(row: &PerfRow) -> Option<String> {
    let overlap = row.overlap.as_ref()?;
    let [call, compute, both] =
        [&overlap.call, &overlap.compute, &overlap.both].map(|it| time(Some(it.time.p50)));
    Some(format!(
        "#  overlap {:.0} %: call {} us, compute {} us, both {} us",
        overlap.part() * 100.0,
        call.trim_start(),
        compute.trim_start(),
        both.trim_start()
    ))
}

/// The line below a row with the time of each rank.
pub(crate) fn ranks(measured: &Measurement) -> Option<String> {
    let RankSpread { min, mean, max, slowest } = measured.ranks.spread()?;
    let [min, mean, max] = [min, mean, max].map(|us| time(Some(us)).trim_start().to_owned());
    let mut text =
        format!("#  ranks: {min} to {max} us, mean {mean} us; slowest is rank {slowest}");
    if let Some(skew) = measured.ranks.skew_us() {
        let _ = write!(text, "; they began {skew:.2} us apart");
    }
    let each = measured.ranks.us().iter().map(|us| time(*us).trim_start().to_owned());
    let _ = write!(text, "\n#  each rank (us): {}", each.collect::<Vec<_>>().join(" "));
    Some(text)
}

fn figures(row: &PerfRow, measured: Option<&Measurement>) -> String {
    let Some(measured) = measured else {
        return format!("{:>9} {:>8} {:>8} {:>7}", "-", "-", "-", "-");
    };
    let wrong = measured.wrong.map_or_else(|| "-".to_owned(), |wrong| wrong.to_string());
    let bandwidths = row.bandwidths(measured);
    format!(
        "{} {} {} {wrong:>7}",
        time(Some(measured.time.p50)),
        bandwidth(row, bandwidths.algorithm),
        bandwidth(row, bandwidths.bus)
    )
}

/// Microseconds with three significant digits or more.
fn time(us: Option<f64>) -> String {
    us.map_or_else(|| format!("{:>9}", "-"), figure)
}

fn bandwidth(row: &PerfRow, bandwidth: f64) -> String {
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

/// The lines below the rows: a legend of the columns, averages, and the count of wrong elements.
#[derive(Default)]
pub(crate) struct Totals {
    /// Bus bandwidths in GB/s, by transport.
    buses: BTreeMap<String, Vec<f64>>,
    /// Bus bandwidth by algorithm bandwidth, by collective.
    factors: BTreeMap<String, f64>,
    checked: u64,
    unchecked: u64,
    pub(crate) wrong: u64,
}

impl Totals {
    pub(crate) fn add(&mut self, row: &PerfRow) {
        for (_, measured) in row.measured() {
            self.count(measured.wrong);
            if row.point.collective != Collective::Barrier {
                let transport = row.transport.to_string();
                let bus = row.bandwidths(measured).bus;
                self.buses.entry(transport).or_default().push(bus);
                let factor = bus_factor(row.point.collective, row.parameters.world);
                self.factors.insert(names::dashed(row.point.collective), factor);
            }
        }
    }

    /// Counts the wrong elements of a measurement; `None` if it was not checked.
    pub(crate) fn count(&mut self, wrong: Option<u64>) {
        match wrong {
            Some(wrong) => (self.checked, self.wrong) = (self.checked + 1, self.wrong + wrong),
            None => self.unchecked += 1,
        }
    }

    /// The lines below the rows, but for the judgement.
    pub(crate) fn text(&self, one_clock: bool) -> String {
        let mut text = String::new();
        let clock = if one_clock {
            "from the first rank's start to the last rank's end"
        } else {
            "on the rank that took longest (each host has its own clock)"
        };
        text +=
            "# time    microseconds of one call, averaged over a batch of back-to-back calls;\n";
        text += "#         the median of the batches\n";
        let _ = writeln!(text, "#         a batch is timed {clock}");
        text +=
            "# p50...  percentiles of the batches, out of place, or in place where there is no\n";
        text += "#         other measurement; - where there was one batch\n";
        text += "# size    bytes of the whole: of the vector, or of all ranks' blocks together\n";
        text += "# count   elements of the vector, or of one rank's block\n";
        text += "# algbw   size / time; 1 GB/s is 10^9 bytes a second\n";
        if !self.factors.is_empty() {
            let _ = writeln!(
                text,
                "# busbw   algbw x factor, comparable with the bandwidth of a link; factors: {}",
                self.factors()
            );
        }
        text += "# #wrong  elements on all ranks that differ from the expected bits; must be 0\n";
        for (transport, buses) in &self.buses {
            let average = buses.iter().sum::<f64>() / buses.len() as f64;
            let _ = writeln!(text, "# average busbw over {transport}: {average:.3} GB/s");
        }
        text.truncate(text.trim_end().len());
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

    /// How many elements were wrong, and whether that is as it should be.
    pub(crate) fn judgement(&self) -> String {
        match (self.wrong, self.checked, self.unchecked) {
            (_, 0, 0) => "nothing was measured".to_owned(),
            (_, 0, _) => "nothing was checked".to_owned(),
            (0, checked, _) => format!("0 in {checked} measurements: OK"),
            (wrong, checked, _) => format!("{wrong} in {checked} measurements: NOT OK"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::output::row::tests::example;

    #[test]
    fn rows_align_with_the_head() {
        let head = head();
        let line = line(&example());
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
    fn one_batch_has_no_percentiles() {
        let mut row = example();
        row.out_of_place.as_mut().unwrap().batches = 1;
        let line = line(&row);
        assert!(line.contains("| ") && line.ends_with("        -         -         -"), "{line}");
        assert!(line.contains("100.00 "), "the time stays: {line}");
    }

    #[test]
    fn totals_count_wrong_elements_and_list_the_factors() {
        let mut totals = Totals::default();
        totals.add(&example());
        let text = totals.text(true);
        assert!(text.contains("average busbw over shm: 15.729 GB/s"), "{text}");
        assert!(text.contains("1.5000 for all-reduce"), "{text}");
        assert!(totals.judgement().ends_with("3 in 2 measurements: NOT OK"));
    }

    #[test]
    fn a_run_without_measurements_is_not_ok() {
        assert!(Totals::default().judgement() == "nothing was measured");
    }
}

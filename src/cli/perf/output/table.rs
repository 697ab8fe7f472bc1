//! The table of results for readers: columns of the objects of `--json`.

use crate::names;
use crate::table::{Column, field, figure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;

pub(crate) const COLLECTIVES: &[Column] = &[
    ("size", "(B)", 11, "/bytes"),
    ("count", "", 11, "/count"),
    ("type", "", 4, "/type"),
    ("op", "", 7, "/op"),
    ("root", "", 4, "/root"),
    ("algorithm", "", 18, "/algorithm"),
    ("place", "", 5, "/in_place"),
    ("time", "(us)", 9, "/time_us/p50"),
    ("min", "(us)", 9, "/time_us/min"),
    ("p99", "(us)", 9, "/time_us/p99"),
    ("algbw", "(GB/s)", 8, "/algbw_GBps"),
    ("busbw", "(GB/s)", 8, "/busbw_GBps"),
    ("#wrong", "", 6, "/wrong"),
];

pub(crate) const MESSAGES: &[Column] = &[
    ("size", "(B)", 11, "/bytes"),
    ("window", "", 6, "/window"),
    ("time", "(us)", 9, "/time_us/p50"),
    ("min", "(us)", 9, "/time_us/min"),
    ("p99", "(us)", 9, "/time_us/p99"),
    ("stdev", "(us)", 9, "/time_us/stdev"),
    ("rate", "(GB/s)", 9, "/rate_GBps"),
    ("messages", "(per us)", 9, "/messages_per_us"),
    ("batches", "", 7, "/batches"),
    ("#wrong", "", 6, "/wrong"),
    ("pairs", "", 12, "/pairs"),
];

/// `all-reduce` or `latency`.
fn subject(object: &Value) -> String {
    let name = object["collective"].as_str().or(object["test"].as_str());
    name.unwrap_or_default().replace('_', "-")
}

/// The line above the rows of one collective or test.
pub(crate) fn section(object: &Value) -> String {
    let mut text = format!("# {} over {}", subject(object), field(Some(&object["transport"])));
    let is_deterministic = object["deterministic"] == true && !object["op"].is_null();
    for (is_so, words) in [
        (object["encrypted"] == true, ", encrypted"),
        (is_deterministic, ", deterministic"),
        (object["overlapped"] == true, ", beside computing"),
    ] {
        text += if is_so { words } else { "" };
    }
    text
}

/// The lines below a row: the tuner's prediction for schedules of a file and calls on GPUs, the hidden
/// part of a request, what each rank took, and what made the samples noisy.
pub(crate) fn notes(object: &Value, per_rank: bool) -> Vec<String> {
    let us = |value: &Value| value.as_f64().map_or_else(|| "-".to_owned(), figure);
    let mut lines = Vec::new();
    let is_explained = object["algorithm"] == "own" || object["transport"] == "cuda";
    if let Some(choice) = object["tuners_choice"].as_str().filter(|_| is_explained) {
        let predicted = us(&object["predicted_us"]);
        lines.push(format!("#  predicted: {predicted} us; the tuner would choose {choice}"));
    }
    if let Some(part) = object["overlap"]["part"].as_f64() {
        let [call, compute, both] =
            ["call_us", "compute_us", "both_us"].map(|key| us(&object["overlap"][key]));
        let part = part * 100.0;
        lines.push(format!(
            "#  overlap {part:.0} %: call {call} us, compute {compute} us, both {both} us"
        ));
    }
    let ranks = &object["rank_us"];
    if let Some(slowest) = ranks["slowest"].as_u64().filter(|_| per_rank) {
        let [min, max, mean] = ["min", "max", "mean"].map(|key| us(&ranks[key]));
        let mut text =
            format!("#  ranks: {min} to {max} us, mean {mean} us; slowest is rank {slowest}");
        if let Some(skew) = object["arrival_skew_us"].as_f64() {
            let _ = write!(text, "; they began {skew:.2} us apart");
        }
        let each = ranks["each"].as_array().into_iter().flatten().map(us);
        let _ = write!(text, "\n#  each rank (us): {}", each.collect::<Vec<_>>().join(" "));
        lines.push(text);
    }
    lines.extend(object["noisy"].as_str().map(|words| format!("#  noisy: {words}")));
    lines
}

/// The lines below the rows: a legend of the columns, averages, and the count of wrong elements.
#[derive(Default)]
pub(crate) struct Totals {
    /// Bus bandwidths in GB/s, by transport.
    buses: BTreeMap<String, Vec<f64>>,
    /// Bus bandwidth by algorithm bandwidth, and the collectives with that factor.
    factors: BTreeMap<String, Vec<String>>,
    checked: u64,
    unchecked: u64,
    pub(crate) wrong: u64,
}

impl Totals {
    pub(crate) fn add(&mut self, object: &Value) {
        match object["wrong"].as_u64() {
            Some(wrong) => (self.checked, self.wrong) = (self.checked + 1, self.wrong + wrong),
            None => self.unchecked += 1,
        }
        let [algorithm, bus] = ["algbw_GBps", "busbw_GBps"].map(|key| object[key].as_f64());
        if let Some((algorithm, bus)) = algorithm.zip(bus).filter(|(algorithm, _)| *algorithm > 0.0)
        {
            self.buses.entry(field(Some(&object["transport"]))).or_default().push(bus);
            let of_factor = self.factors.entry(format!("{:.4}", bus / algorithm)).or_default();
            let collective = subject(object);
            if !of_factor.contains(&collective) {
                of_factor.push(collective);
            }
        }
    }

    /// The lines below the rows, but for the judgement.
    pub(crate) fn text(&self, one_clock: bool) -> String {
        let clock = if one_clock {
            "from the first rank's start to the last rank's end"
        } else {
            "on the rank that took longest (each host has its own clock)"
        };
        let mut text = format!(
            "# time    microseconds of one call, averaged over a batch of back-to-back calls; the median\n\
             #         of the batches, their least (min) and the 99th of 100 (p99). A batch is timed\n\
             #         {clock}\n\
             # size    bytes of the whole: of the vector, or of all ranks' blocks together\n\
             # count   elements of the vector, or of one rank's block\n\
             # place   in: input and output are one buffer; out: they are two\n\
             # algbw   size / time; 1 GB/s is 10^9 bytes a second\n"
        );
        if !self.factors.is_empty() {
            let factors = self.factors.iter();
            let factors = factors.map(|(factor, of)| format!("{factor} for {}", of.join(" ")));
            let _ = writeln!(
                text,
                "# busbw   algbw x factor, comparable with the bandwidth of a link; factors: {}",
                names::listed(factors)
            );
        }
        text += "# #wrong  elements on all ranks that differ from the expected bits; must be 0";
        for (transport, buses) in &self.buses {
            let average = buses.iter().sum::<f64>() / buses.len() as f64;
            let _ = write!(text, "\n# average busbw over {transport}: {average:.3} GB/s");
        }
        text
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
    use crate::perf::output::json::tests::example;
    use crate::table::{head, line};

    #[test]
    fn rows_align_with_the_head_and_name_what_ran() {
        let [mut row, in_place] = example();
        let head = head(COLLECTIVES);
        let names = head.lines().next().unwrap();
        let shown = line(COLLECTIVES, &row);
        assert_eq!(shown.len(), names.len(), "\n{head}\n{shown}");
        assert!(shown.contains(" two-shot   out    100.00     90.00"), "{shown}");
        assert!(shown.contains("10.49") && shown.contains("15.73"), "{shown}");
        assert!(line(COLLECTIVES, &in_place).contains(" two-shot    in "));
        row["path"] = "registered".into();
        assert!(line(COLLECTIVES, &row).contains(" two-shot/reg "));
        row["bytes"] = 0.into();
        assert!(line(COLLECTIVES, &row).ends_with("        -        -      0"), "a barrier");
    }

    #[test]
    fn totals_count_wrong_elements_and_list_the_factors() {
        let mut totals = Totals::default();
        example().iter().for_each(|object| totals.add(object));
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

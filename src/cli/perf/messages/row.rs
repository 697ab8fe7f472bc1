//! A result of a test between ranks: as a line of the table, JSON and CSV.

use super::MessageTest;
use super::matrix::PairMatrix;
use super::verdict::LinkVerdict;
use crate::names;
use crate::perf::communicators::PerfTransport;
use crate::perf::measure::Measurement;
use crate::perf::output::header::RunHeader;
use crate::perf::output::json;
use serde_json::{Value, json};

/// The pairs that a row lists by name in the table.
const MOST_LISTED: usize = 4;

/// What was measured between some pairs of ranks at the same time, or between all ranks of a ring.
#[derive(Clone, Debug)]
pub(crate) struct MessageRow {
    pub(crate) test: MessageTest,
    pub(crate) transport: PerfTransport,
    pub(crate) is_encrypted: bool,
    pub(crate) world: usize,
    /// The pairs that sent at the same time; empty in a ring.
    pub(crate) pairs: Vec<(usize, usize)>,
    /// Bytes of a message.
    pub(crate) bytes: usize,
    /// The bytes of the region in which messages have other buffers each.
    pub(crate) off_cache: Option<usize>,
    pub(crate) measured: Measurement,
}

/// The figures of all pairs at one size.
#[derive(Clone, Debug)]
pub(crate) struct MatrixRow {
    pub(crate) test: MessageTest,
    pub(crate) transport: PerfTransport,
    pub(crate) bytes: usize,
    pub(crate) matrix: PairMatrix,
    pub(crate) verdict: LinkVerdict,
}

/// The lines above the rows.
pub(crate) fn head() -> String {
    format!(
        "#{:>10} {:>6} {:>9} {:>9} {:>9} | {:>9} {:>9} {:>9} {:>9} | {:>7} {:>7}  pairs\n\
         #{:>10} {:>6} {:>9} {:>9} {:>9} | {:>9} {:>9} {:>9} {:>9} | {:>7} {:>7}",
        "size",
        "window",
        "time",
        "rate",
        "messages",
        "p50",
        "p90",
        "p99",
        "stdev",
        "batches",
        "#wrong",
        "(B)",
        "",
        "(us)",
        "(GB/s)",
        "(per us)",
        "(us)",
        "(us)",
        "(us)",
        "(us)",
        "",
        ""
    )
}

/// The lines below the rows.
pub(crate) fn legend(tests: &[MessageTest]) -> String {
    let mut text = String::new();
    for test in tests {
        text += &format!("# {:<13} time: {}\n", test.name(), test.definition());
    }
    text += "# size     bytes of a message; window: messages that are in flight at once\n";
    text += "# time     the median of the batches; a batch is a row of back-to-back calls\n";
    text += "# rate     bytes that all these ranks send together, divided by the time; 1 GB/s is\n";
    text += "#          10^9 bytes a second; messages: as many as they send together in 1 us\n";
    text += "# #wrong   bytes on all ranks that differ from those sent; must be 0";
    text
}

impl MessageRow {
    /// Bytes in a second, of all ranks together, divided by 10^9.
    pub(crate) fn rate(&self) -> f64 {
        self.messages_per_us() * self.bytes as f64 / 1e3
    }

    pub(crate) fn messages_per_us(&self) -> f64 {
        self.test.messages(self.pairs.len(), self.world) / self.measured.time.p50
    }

    /// The line above the rows of one test.
    pub(crate) fn section(&self) -> String {
        let encrypted = if self.is_encrypted { ", encrypted" } else { "" };
        format!("# {} over {}{encrypted}", self.test.name(), self.transport)
    }

    pub(crate) fn line(&self) -> String {
        let time = self.measured.time;
        let window = self.test.window(self.bytes);
        let wrong = self.measured.wrong.map_or_else(|| "-".to_owned(), |wrong| wrong.to_string());
        let figures = [time.p50, self.rate(), self.messages_per_us()].map(figure).join(" ");
        let spread = [time.p50, time.p90, time.p99, time.stdev].map(figure).join(" ");
        let (bytes, batches, pairs) = (self.bytes, self.measured.batches, self.pairs());
        format!(" {bytes:>10} {window:>6} {figures} | {spread} | {batches:>7} {wrong:>7}  {pairs}")
    }

    /// The pairs in words.
    pub(crate) fn pairs(&self) -> String {
        if self.pairs.is_empty() {
            return "ring of all".to_owned();
        }
        let listed = self.pairs.iter().take(MOST_LISTED);
        let listed = names::listed(listed.map(|(from, to)| format!("{from}-{to}")));
        let rest = self.pairs.len().saturating_sub(MOST_LISTED);
        if rest > 0 { format!("{listed} and {rest} more") } else { listed }
    }

    pub(crate) fn json(&self, header: &RunHeader) -> Value {
        let mut object = json!({
            "test": self.test.name(),
            "ranks": self.world,
            "pairs": self.pairs,
            "transport": self.transport.to_string(),
            "encrypted": self.is_encrypted,
            "bytes": self.bytes,
            "window": self.test.window(self.bytes),
            "off_cache_bytes": self.off_cache,
            "rate_GBps": self.rate(),
            "messages_per_us": self.messages_per_us(),
        });
        json::add_measurement(&mut object, &self.measured, header);
        object
    }
}

impl MatrixRow {
    /// The lines of the table.
    pub(crate) fn text(&self) -> String {
        let Self { test, transport, bytes, matrix, verdict } = self;
        let name = test.name();
        let mut text = format!("# {name} of {bytes} bytes over {transport}, us (lower quartile)\n");
        text += &matrix.text(|us| us);
        if *test != MessageTest::Latency {
            let both = if *test == MessageTest::Bidirectional { 2.0 } else { 1.0 };
            text += &format!("\n# {name} of {bytes} bytes over {transport}, GB/s\n");
            text += &matrix.text(|us| both * *bytes as f64 / us / 1e3);
        }
        for line in verdict.text().lines() {
            text += &format!("\n# {line}");
        }
        text
    }

    pub(crate) fn json(&self, header: &RunHeader) -> Value {
        let ranks = self.verdict.odd_ranks.iter().map(|(rank, times)| json!([rank, times]));
        let links = self.verdict.slow_links.iter().map(|(a, b, times)| json!([a, b, times]));
        let mut object = json!({
            "test": self.test.name(),
            "ranks": self.matrix.world(),
            "transport": self.transport.to_string(),
            "bytes": self.bytes,
            "matrix_us": self.matrix.rows(),
            "odd_ranks": ranks.collect::<Vec<_>>(),
            "slow_links": links.collect::<Vec<_>>(),
            "verdict": self.verdict.text(),
        });
        json::add_run(&mut object, header);
        object
    }
}

/// Three significant digits or more, in nine columns.
pub(crate) fn figure(value: f64) -> String {
    let digits = match value {
        ..0.01 => 6,
        ..10.0 => 3,
        ..1000.0 => 2,
        _ => 1,
    };
    format!("{value:>9.digits$}")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::perf::output::row::tests::example as collective;

    /// 64 messages of 1 MiB between two ranks, 100 us each.
    pub(crate) fn example() -> MessageRow {
        MessageRow {
            test: MessageTest::Bandwidth,
            transport: PerfTransport::Tcp,
            is_encrypted: false,
            world: 4,
            pairs: vec![(0, 2), (1, 3)],
            bytes: 1 << 20,
            off_cache: None,
            measured: collective().out_of_place.unwrap(),
        }
    }

    #[test]
    fn rates_are_those_of_all_pairs_together() {
        let row = example();
        assert!((row.rate() - 20.97152).abs() < 1e-9);
        assert!((row.messages_per_us() - 0.02).abs() < 1e-12);
    }

    #[test]
    fn rows_align_with_the_head() {
        let bars = |line: &str| line.match_indices('|').map(|(at, _)| at).collect::<Vec<_>>();
        let line = example().line();
        for head in head().lines() {
            assert_eq!(bars(head), bars(&line), "\n{head}\n{line}");
        }
        assert!(line.contains("0-2, 1-3") && line.contains(" 64 "), "{line}");
    }
}

//! A result of a test between ranks: as JSON, and all pairs as text.

use super::MessageTest;
use super::matrix::PairMatrix;
use super::verdict::LinkVerdict;
use crate::perf::communicators::TransportName;
use crate::perf::measure::Measurement;
use crate::perf::output::json;
use serde_json::{Value, json};

/// The object of what was measured between `pairs` at the same time, or, without any, between all
/// ranks of a ring: a test with messages of `bytes` bytes.
pub(crate) fn object(
    test: MessageTest,
    bytes: usize,
    (transport, is_encrypted): (TransportName, bool),
    (world, pairs): (usize, &[(usize, usize)]),
    measured: &Measurement,
) -> Value {
    let messages_per_us = test.messages(pairs.len(), world) / measured.time.p50;
    let mut object = json!({
        "test": test.name(),
        "ranks": world,
        "pairs": pairs,
        "transport": transport,
        "encrypted": is_encrypted,
        "bytes": bytes,
        "window": test.window(bytes),
        // Bytes in a second, of all ranks together.
        "rate_GBps": messages_per_us * bytes as f64 / 1e3,
        "messages_per_us": messages_per_us,
    });
    json::add_measurement(&mut object, measured);
    object
}

/// The figures of all pairs at one size.
#[derive(Clone, Debug)]
pub(crate) struct MatrixRow {
    pub(crate) test: MessageTest,
    pub(crate) transport: TransportName,
    pub(crate) bytes: usize,
    pub(crate) matrix: PairMatrix,
    pub(crate) verdict: LinkVerdict,
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

    pub(crate) fn json(&self) -> Value {
        let ranks = self.verdict.odd_ranks.iter().map(|(rank, times)| json!([rank, times]));
        let links = self.verdict.slow_links.iter().map(|(a, b, times)| json!([a, b, times]));
        json!({
            "test": self.test.name(),
            "ranks": self.matrix.world(),
            "transport": self.transport,
            "bytes": self.bytes,
            "matrix_us": self.matrix.rows(),
            "odd_ranks": ranks.collect::<Vec<_>>(),
            "slow_links": links.collect::<Vec<_>>(),
            "verdict": self.verdict.text(),
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::perf::output::json::tests::measured;

    /// 64 messages of 1 MiB between two ranks, 100 us each, of two pairs.
    pub(crate) fn example() -> Value {
        let pairs = [(0, 2), (1, 3)];
        let over = ("tcp", false);
        object(MessageTest::Bandwidth, 1 << 20, over, (4, &pairs), &measured(0))
    }

    #[test]
    fn rates_are_those_of_all_pairs_together() {
        let row = example();
        let of = |key: &str| row[key].as_f64().unwrap();
        assert!((of("rate_GBps") - 20.97152).abs() < 1e-9);
        assert!((of("messages_per_us") - 0.02).abs() < 1e-12);
    }
}

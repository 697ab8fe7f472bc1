//! The messages of the options, checked together.

use super::{MessageBenchmark, MessageTest};
use crate::perf::args::PerfArgs;
use crate::perf::benchmark::Benchmark;
use crate::perf::choices::{PairSelection, Selected, Subject};
use crate::perf::settings::distinct;
use anyhow::{Result, ensure};

impl PerfArgs {
    /// The tests of messages, each once.
    pub(crate) fn tests(&self) -> Vec<MessageTest> {
        let chosen = self.subjects.iter().flat_map(|subject| match subject {
            Subject::Messages(Selected::All) => MessageTest::PAIRS.to_vec(),
            Subject::Messages(Selected::One(test)) => vec![*test],
            Subject::Collectives(_) => Vec::new(),
        });
        distinct(chosen.collect())
    }

    /// The messages to measure, if there are any. Options of collectives contradict them.
    pub(crate) fn messages(
        &self,
        world: usize,
        benchmark: &Benchmark,
    ) -> Result<Option<MessageBenchmark>> {
        let tests = self.tests();
        let all_pairs = self.pairs == PairSelection::All;
        if tests.is_empty() {
            ensure!(!all_pairs, "--pairs all: only messages have pairs; measure p2p");
            return Ok(None);
        }
        let has_collective = |subject: &Subject| matches!(subject, Subject::Collectives(_));
        ensure!(
            !self.subjects.iter().any(has_collective),
            "messages and collectives have different tables: measure them in two runs"
        );
        ensure!(world > 1, "-n 1: a message has two ranks; start two or more");
        for (is_given, option) in [
            (!self.algorithm.is_empty(), "--algorithm"),
            (self.overlap, "--overlap"),
            (self.counts.is_some(), "--counts"),
            (self.has_registered(), "--registered"),
            (self.sampling.off_cache.is_some(), "--off-cache"),
        ] {
            ensure!(!is_given, "{option} is about collectives; leave it out for messages");
        }
        let (sizes, offset) = (benchmark.sizes.clone(), benchmark.parameters.offset);
        Ok(Some(MessageBenchmark { tests, sizes, all_pairs, offset }))
    }
}

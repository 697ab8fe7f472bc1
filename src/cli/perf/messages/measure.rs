//! Leads one rank through the tests of messages.

use super::matrix::PairMatrix;
use super::row::{self, MatrixRow};
use super::verdict::LinkVerdict;
use super::work::{MessageRole, MessageWork, oracle};
use super::{MessageBenchmark, MessageTest, rounds};
use crate::perf::check::oracle::Oracle;
use crate::perf::communicators::{TransportName, is_encrypted};
use crate::perf::mapping::RankMapping;
use crate::perf::measure::{Measurement, Sampler};
use crate::perf::output::PerfOutput;
use crate::sizes;
use anyhow::Result;
use serde_json::Value;

/// How often all pairs are gone through. A disturbance that lasts for one of these rounds changes a
/// third of the samples of a pair, and not the median.
pub(crate) const SWEEPS: u32 = 3;

/// The tests of one rank over one transport.
pub(crate) struct MessageRun<'a, 'b> {
    pub(crate) benchmark: &'a MessageBenchmark,
    pub(crate) transport: TransportName,
    pub(crate) mapping: &'a RankMapping,
    pub(crate) sampler: &'a mut Sampler<'b>,
}

impl MessageRun<'_, '_> {
    /// Measures every test at every size, and writes the results on rank 0. Collective.
    pub(crate) fn measure(&mut self, mut report: Option<&mut PerfOutput<'_>>) -> Result<()> {
        let oracle = oracle(self.sampler.comm.world(), self.benchmark.offset);
        for &test in &self.benchmark.tests {
            for &bytes in &self.benchmark.sizes {
                if self.sampler.stopped {
                    return Ok(());
                }
                if let Some(report) = &report {
                    let (name, size) = (test.name(), sizes::name(bytes));
                    report.begin(format!("{name} of {size} over {}", self.transport));
                }
                let report = report.as_deref_mut();
                if self.benchmark.all_pairs && test.is_of_pairs() {
                    self.all_pairs(test, bytes, &oracle, report)?;
                } else {
                    self.at_once(test, bytes, &oracle, report)?;
                }
            }
        }
        Ok(())
    }

    /// Measures pairs that send at the same time, or the ring of all ranks.
    fn at_once(
        &mut self,
        test: MessageTest,
        bytes: usize,
        oracle: &Oracle,
        report: Option<&mut PerfOutput<'_>>,
    ) -> Result<()> {
        let world = self.sampler.comm.world();
        let pairs = if test.is_of_pairs() { rounds::halves(world) } else { Vec::new() };
        let measured = self.pairs(test, bytes, &pairs, oracle)?;
        if let (Some(report), Some(measured)) = (report, measured) {
            report.add(self.object(test, bytes, &pairs, &measured));
        }
        Ok(())
    }

    /// Measures each pair alone.
    fn all_pairs(
        &mut self,
        test: MessageTest,
        bytes: usize,
        oracle: &Oracle,
        mut report: Option<&mut PerfOutput<'_>>,
    ) -> Result<()> {
        let mut matrix = PairMatrix::of(self.mapping);
        for (pair, measured) in self.sweep(test, bytes, oracle)? {
            // Other programs only add time.
            let us = measured.time.p25;
            matrix.set(pair.0, pair.1, us);
            if test.is_symmetric() {
                matrix.set(pair.1, pair.0, us);
            }
            if let Some(report) = &mut report {
                report.note_result(self.object(test, bytes, &[pair], &measured));
            }
        }
        if let Some(report) = report.filter(|_| !self.sampler.stopped) {
            let verdict = LinkVerdict::of(&matrix);
            let transport = self.transport;
            report.add_matrix(&MatrixRow { test, transport, bytes, matrix, verdict });
        }
        Ok(())
    }

    /// The pairs in the order of their numbers, each with the samples of all sweeps.
    fn sweep(
        &mut self,
        test: MessageTest,
        bytes: usize,
        oracle: &Oracle,
    ) -> Result<Vec<((usize, usize), Measurement)>> {
        let one_way = rounds::tournament(self.sampler.comm.world());
        let both_ways = one_way.iter().flat_map(|(low, high)| [(*low, *high), (*high, *low)]);
        let pairs: Vec<_> = if test.is_symmetric() { one_way.clone() } else { both_ways.collect() };
        let mut measured: Vec<((usize, usize), Option<Measurement>)> =
            pairs.into_iter().map(|pair| (pair, None)).collect();
        for _ in 0..SWEEPS {
            for (pair, before) in &mut measured {
                let Some(now) = self.pairs(test, bytes, &[*pair], oracle)? else { break };
                *before = Some(match before.take() {
                    Some(before) => before.joined(now),
                    None => now,
                });
            }
        }
        measured.sort_by_key(|(pair, _)| *pair);
        Ok(measured.into_iter().filter_map(|(pair, measured)| Some((pair, measured?))).collect())
    }

    fn pairs(
        &mut self,
        test: MessageTest,
        bytes: usize,
        pairs: &[(usize, usize)],
        oracle: &Oracle,
    ) -> Result<Option<Measurement>> {
        if self.sampler.stopped {
            return Ok(None);
        }
        let (rank, world) = (self.sampler.comm.rank(), self.sampler.comm.world());
        let role = match test.is_of_pairs() {
            true => MessageRole::in_pairs(rank, pairs),
            false => MessageRole::in_ring(rank, world),
        };
        let mut work = MessageWork::new(test, bytes, role, rank, self.benchmark.offset, oracle)?;
        #[cfg(feature = "cuda")]
        if let Some(gpu) = &self.sampler.gpu {
            work.buffers.on_device(gpu, Some(bytes))?;
        }
        Ok(self.sampler.measure(&mut work)?)
    }

    fn object(
        &self,
        test: MessageTest,
        bytes: usize,
        pairs: &[(usize, usize)],
        measured: &Measurement,
    ) -> Value {
        let comm = &self.sampler.comm;
        let over = (self.transport, is_encrypted(comm, self.transport));
        row::object(test, bytes, over, (comm.world(), pairs), measured)
    }
}

//! Several groups of the same ranks, each with a call under way at the same time.
//!
//! The groups are duplicates of one communicator, so their calls do not wait for one another. Each
//! call is a request: it runs on a thread of its group. A round starts one in each group and ends when
//! all of them are done.

use crate::perf::measure::batch::{CallBatch, SampledWork, Times};
use crate::perf::measure::workload::Workload;
use maypole::{CallPath, Communicator, Result};
use maypole_transports::clock::monotonic_ns;

/// A collective in each of several groups. A call of a batch is a round.
pub(crate) struct StreamsWork<'a> {
    comms: &'a mut [Communicator],
    /// One of each group.
    works: Vec<Workload<'a>>,
}

impl<'a> StreamsWork<'a> {
    pub(crate) fn new(comms: &'a mut [Communicator], works: Vec<Workload<'a>>) -> Self {
        for (comm, work) in comms.iter_mut().zip(&works) {
            comm.set_algorithm(work.algorithm());
        }
        Self { comms, works }
    }

    /// Each rank begins with another group. So no group's call could end if they were not all under
    /// way.
    fn round(&mut self, is_checked: bool) -> Result<()> {
        let groups = self.works.len();
        let first = self.comms.first().map_or(0, Communicator::rank) % groups.max(1);
        let order = || (0..groups).map(|nth| (nth + first) % groups);
        let start = |group: usize| self.works[group].start(&mut self.comms[group], is_checked);
        let started: Vec<_> = order().map(start).collect();
        for (request, group) in started.into_iter().zip(order()) {
            self.works[group].put_back(request.wait()?, is_checked);
        }
        Ok(())
    }
}

impl SampledWork for StreamsWork<'_> {
    fn fill(&mut self, batch: &CallBatch) {
        for (nth, work) in self.works.iter_mut().enumerate() {
            work.fill(&batch.beside(nth));
        }
    }

    fn run(&mut self, _comm: &mut Communicator, batch: &CallBatch) -> Result<Times> {
        let start = monotonic_ns();
        for index in 0..batch.calls {
            if batch.begins(index) {
                self.round(index == batch.checked)?;
            }
        }
        Ok((start, monotonic_ns()))
    }

    fn wrong(&self, batch: &CallBatch) -> u64 {
        let works = self.works.iter().enumerate();
        works.map(|(nth, work)| work.wrong(&batch.beside(nth))).sum()
    }

    fn kind(&self) -> Option<(&'static str, CallPath)> {
        self.comms.first()?.last_call().map(|last| (last.algorithm, last.path))
    }
}

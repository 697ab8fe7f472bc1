//! The settings of a measurement: the options of the command line, completed and checked together.
//! [`points`] has those of the points.

mod points;

use super::args::PerfArgs;
use super::benchmark::Benchmark;
use super::choices::TransportSelection;
use super::compare::Baseline;
use super::messages::MessageBenchmark;
use crate::names;
use crate::schedules::{NamedSchedules, in_words};
use anyhow::{Context, Result, bail, ensure};
use maypole::schedule::Placement;
use maypole::schedule::verify::verify;
pub(crate) use points::distinct;
use points::{listed, nothing_to_measure};
use std::sync::Arc;

/// The settings for a world of given size. No two of them contradict each other.
#[derive(Clone, Debug)]
pub(crate) struct PerfSettings {
    pub(crate) world: usize,
    /// One for each type, operation and root, as far as they make a difference; one at least.
    pub(crate) benchmarks: Vec<Benchmark>,
    /// Messages between ranks, which are measured instead of collectives.
    pub(crate) messages: Option<MessageBenchmark>,
    /// The schedules of a file, which are measured instead of the library's.
    pub(crate) own: Option<Arc<NamedSchedules>>,
    pub(crate) transport: TransportSelection,
    /// The options themselves, for all that they decide alone.
    pub(crate) options: PerfArgs,
}

/// How many ranks are started without `-n`.
const DEFAULT_RANKS: usize = 4;
/// How many ranks are started for messages between two ranks.
const DEFAULT_PAIR: usize = 2;
impl PerfSettings {
    /// The earlier run to compare with.
    pub(crate) fn baseline(&self) -> Result<Option<Baseline>> {
        self.options.compare.as_deref().map(|path| Baseline::read("--compare", path)).transpose()
    }
}

impl PerfArgs {
    /// How many ranks to start where no launcher has started this process as one.
    ///
    /// # Errors
    ///
    /// If the file of `--schedule` cannot be read.
    pub(crate) fn ranks(&self) -> Result<usize> {
        let own = self.schedule.as_deref().map(NamedSchedules::of_file).transpose()?;
        let usual = if self.tests().is_empty() { DEFAULT_RANKS } else { DEFAULT_PAIR };
        let default = own.map_or(usual, |own| own.schedules.len());
        Ok(self.ranks.unwrap_or(default))
    }

    /// The settings for a world of `world` ranks.
    ///
    /// # Errors
    ///
    /// Fails where options contradict each other or the world; the message names the options.
    pub(crate) fn settings(&self, world: usize) -> Result<PerfSettings> {
        if let Some(ranks) = self.ranks
            && ranks != world
        {
            bail!(
                "-n asks for {ranks} ranks, but the launcher has started {world}; leave -n out \
                 under a launcher (the number of timed calls is -i)"
            );
        }
        ensure!(
            self.fail_below.is_none() || self.compare.is_some() || self.alternates(),
            "--fail-below: there is nothing to compare with; add --compare FILE or --alternate \
             PROGRAM"
        );
        let roots = listed(&self.roots, || (0..world).collect());
        if let Some(root) = roots.iter().find(|root| **root >= world) {
            bail!(names::no_such_root(*root, world));
        }
        let own = self.own(world)?.map(Arc::new);
        let collective = own.as_ref().map(|own| own.collective);
        let benchmarks = self.benchmarks(world, collective, &roots)?;
        let benchmark = benchmarks.first().context("no type has such an operation")?;
        let messages = self.messages(world, benchmark)?;
        ensure!(
            messages.is_some() || !benchmark.points().is_empty(),
            nothing_to_measure(benchmark)
        );
        Ok(PerfSettings {
            world,
            benchmarks,
            messages,
            own,
            transport: self.transport(world)?,
            options: self.clone(),
        })
    }

    /// True if points are measured on registered memory.
    pub(crate) fn has_registered(&self) -> bool {
        self.registered || self.registered_too
    }

    /// True if two programs or settings are measured in turn.
    pub(crate) fn alternates(&self) -> bool {
        self.alternate.is_some() || !self.alternate_env.is_empty()
    }

    /// The schedules of `--schedule`, proved.
    fn own(&self, world: usize) -> Result<Option<NamedSchedules>> {
        let Some(path) = &self.schedule else { return Ok(None) };
        let own = NamedSchedules::of_file(path)?;
        let (name, ranks) = (path.display(), own.schedules.len());
        ensure!(
            ranks == world,
            "--schedule {name} has the steps of {ranks} ranks, and there are {world}: start {ranks}"
        );
        #[cfg(feature = "cuda")]
        ensure!(
            self.transport != TransportSelection::Cuda,
            "--schedule: calls on GPUs run the library's schedules alone; use another --transport"
        );
        if let Err(flaw) = verify(own.collective, &own.schedules, Placement::Apart) {
            bail!("--schedule {name} has a flaw: {}", in_words(&flaw, &own.schedules));
        }
        Ok(Some(own))
    }

    /// The transports to measure. Memory can be registered where ranks share it, and nowhere else.
    fn transport(&self, world: usize) -> Result<TransportSelection> {
        #[cfg(feature = "cuda")]
        for (is_given, option) in [
            (self.sampling.off_cache.is_some(), "--off-cache"),
            (self.counts.is_some(), "--counts"),
        ] {
            ensure!(
                !is_given || self.transport != TransportSelection::Cuda,
                "{option} is about calls on memory of hosts; use another --transport"
            );
        }
        if !self.has_registered() {
            return Ok(self.transport);
        }
        ensure!(
            world > 1,
            "--registered: one rank has no other rank that could reach its memory; start two or \
             more with -n"
        );
        ensure!(
            !matches!(self.transport, TransportSelection::Tcp | TransportSelection::Ib),
            "--registered: ranks reach one another's memory only where they share it, never over \
             --transport tcp or ib; use --transport shm, or leave --transport out"
        );
        Ok(TransportSelection::Shm)
    }
}

#[cfg(test)]
mod tests;

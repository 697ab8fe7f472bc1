//! Leads one rank through the whole measurement.

mod points;

use crate::perf::buffer;
use crate::perf::communicators::{RankCommunicators, TransportName};
use crate::perf::counts;
use crate::perf::mapping::RankMapping;
#[cfg(feature = "cuda")]
use crate::perf::measure::device;
use crate::perf::measure::overlap;
use crate::perf::measure::{Sampler, SamplingOptions};
use crate::perf::messages::measure::{MessageRun, SWEEPS};
use crate::perf::messages::row as message_row;
use crate::perf::output::PerfOutput;
use crate::perf::output::header::RunHeader;
use crate::perf::output::machine;
use crate::perf::settings::PerfSettings;
use anyhow::{Context, Result};
use maypole::Communicator;
use maypole::tuner::CostTable;
use std::sync::atomic::AtomicBool;

/// How the measurement ended, on rank 0; the default on all other ranks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PerfOutcome {
    pub(crate) wrong: u64,
    pub(crate) interrupted: bool,
    /// Rows that are slower than `--fail-below` allows.
    pub(crate) slower: usize,
}

/// Measures all points over all transports. Collective: every rank calls it, and all ranks return
/// after the same point. Setting `stop` on any rank ends the measurement after the current sample.
pub(crate) fn run(
    mut communicators: RankCommunicators,
    settings: &PerfSettings,
    stop: &AtomicBool,
) -> Result<PerfOutcome> {
    let (_, first) = communicators
        .comms
        .first_mut()
        .context("no transport joins these ranks; see `maypole topo`")?;
    let report = match first.rank() {
        0 => Some(PerfOutput::new(settings, stop)?),
        _ => None,
    };
    let mapping = RankMapping::exchange(first, settings.options.bind)?;
    let costs = first.costs();
    let is_encrypted = first.is_encrypted();
    let mut perf_run = PerfRun { settings, mapping, stop, report };
    perf_run.describe(&costs, is_encrypted);
    let mut stopped = false;
    for (transport, comm) in communicators.comms {
        stopped = stopped || perf_run.measure(transport, comm)?;
    }
    let Some(mut report) = perf_run.report else { return Ok(PerfOutcome::default()) };
    let mut legend = match &settings.messages {
        Some(messages) => message_row::legend(&messages.tests),
        None => report.totals.text(perf_run.mapping.is_one_machine()),
    };
    if settings.options.overlap {
        legend = format!("{legend}\n{}", overlap::DEFINITION);
    }
    let slower = report.end(&legend, stopped)?;
    Ok(PerfOutcome { wrong: report.totals.wrong, interrupted: stopped, slower })
}

/// The line above the table about encryption.
fn encryption(is_encrypted: bool) -> String {
    let plain = "not encrypted; MAYPOLE_ENCRYPT=1 encrypts it";
    format!("# tcp is {} with AES-256-GCM", if is_encrypted { "encrypted" } else { plain })
}

struct PerfRun<'a> {
    settings: &'a PerfSettings,
    mapping: RankMapping,
    stop: &'a AtomicBool,
    /// On rank 0 only.
    report: Option<PerfOutput<'a>>,
}

impl PerfRun<'_> {
    /// Prints the call, the ranks and the method of the measurement.
    fn describe(&mut self, costs: &CostTable, is_encrypted: bool) {
        let Some(report) = &mut self.report else { return };
        let (settings, mapping) = (self.settings, &self.mapping);
        let header = RunHeader::read(mapping, costs);
        let first = &settings.benchmarks[0];
        let (options, offset) = (&settings.options, first.parameters.offset);
        let sampling = &options.sampling;
        let mut buffers = buffer::describe(options.has_registered(), sampling, offset);
        if sampling.together {
            buffers += "\n# each call is timed by itself: all ranks begin it together (--together)";
        }
        let shares = first.shares.as_deref();
        if let Some((rule, shares)) = options.counts.as_ref().zip(shares) {
            buffers += &format!("\n{}", counts::describe(rule, shares));
        }
        if let Some(own) = &settings.own {
            let title = own.title();
            buffers += &format!(
                "\n# own: {title}; each call also compares them with those that it has proved"
            );
        }
        let head = report.head();
        let machine = machine::describe(&header, mapping);
        report.say(&[machine, encryption(is_encrypted), buffers, head].join("\n"));
        report.describe(header);
    }

    /// Measures all points over one transport. Returns true if the user stopped the measurement.
    fn measure(&mut self, transport: TransportName, comm: Communicator) -> Result<bool> {
        let options = self.settings.options.sampling;
        let in_a_row = options.in_a_row.div_ceil(self.sweeps() as usize);
        let budget = options.budget / self.sweeps();
        let options = SamplingOptions { budget, in_a_row, ..options };
        let mut sampler = Sampler::new(comm, options, &self.mapping, self.stop)?;
        #[cfg(feature = "cuda")]
        if transport == "cuda" {
            let gpu = device::join(&mut sampler.comm)?;
            gpu.set_deterministic(sampler.comm.is_deterministic());
            if let (Some(report), Some(why)) = (&mut self.report, gpu.host_mailboxes()) {
                report.say(&format!("# mailboxes are in memory of the host: {why}"));
            }
            sampler.gpu = Some(std::sync::Arc::new(gpu));
        }
        let settings = self.settings;
        match &settings.messages {
            Some(benchmark) => {
                let (mapping, sampler) = (&self.mapping, &mut sampler);
                MessageRun { benchmark, transport, mapping, sampler }
                    .measure(self.report.as_mut())?;
            }
            None => {
                for benchmark in &settings.benchmarks {
                    self.benchmark(&mut sampler, transport, benchmark)?;
                }
            }
        }
        let stopped = sampler.stopped;
        #[cfg(feature = "cuda")]
        drop(sampler.gpu);
        sampler.comm.close()?;
        Ok(stopped)
    }

    /// How often each point is measured: of all pairs, each in every sweep.
    fn sweeps(&self) -> u32 {
        self.settings.messages.as_ref().filter(|it| it.all_pairs).map_or(1, |_| SWEEPS)
    }
}

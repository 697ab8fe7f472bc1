//! Leads one rank through the whole measurement.

use crate::perf::benchmark::{BenchmarkPoint, BufferPlacement};
use crate::perf::buffer;
use crate::perf::check::oracle::Oracle;
use crate::perf::communicators::{PerfTransport, RankCommunicators};
use crate::perf::encryption;
use crate::perf::mapping::RankMapping;
#[cfg(feature = "cuda")]
use crate::perf::measure::device;
use crate::perf::measure::distance::{CoreDistance, barrier_us};
use crate::perf::measure::limits::MachineLimit;
use crate::perf::measure::workload::{Workload, arena_bytes};
use crate::perf::measure::{Measurement, Sampler, SamplingOptions};
use crate::perf::output::PerfOutput;
use crate::perf::output::machine;
use crate::perf::output::prediction::TunerPrediction;
use crate::perf::output::row::PerfRow;
use crate::perf::output::table;
use crate::perf::settings::PerfSettings;
use crate::{names, sizes};
use anyhow::{Context, Result};
use maypole::{Arena, Communicator};
use maypole_transports::secure::EncryptionRate;
use std::sync::atomic::AtomicBool;

/// How the measurement ended, as rank 0 knows it; the default on all other ranks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PerfOutcome {
    pub(crate) wrong: u64,
    pub(crate) interrupted: bool,
}

/// Measures all points over all transports. Collective: every rank calls it, and all ranks return
/// after the same point. Setting `stop` on any rank ends the measurement after the current sample.
pub(crate) fn run(
    mut communicators: RankCommunicators,
    settings: &PerfSettings,
    stop: &AtomicBool,
) -> Result<PerfOutcome> {
    let points = settings.benchmark.points();
    let transports = communicators.comms.len();
    let (_, first) = communicators
        .comms
        .first_mut()
        .context("no transport joins these ranks; see `maypole topo`")?;
    let report = match first.rank() {
        0 => Some(PerfOutput::new(points.len() * transports, settings, stop)?),
        _ => None,
    };
    let mapping = RankMapping::exchange(first, settings.bind)?;
    let costs = first.costs();
    let encryption = report.as_ref().and_then(|_| encryption::rate(first));
    let mut perf_run = PerfRun { settings, mapping, encryption, stop, report };
    perf_run.say(|mapping| {
        let machine = machine::describe(mapping);
        let offset = settings.benchmark.parameters.offset;
        let mut buffers = buffer::describe(settings.registered, settings.reuse_buffers, offset);
        if let Some(own) = &settings.own {
            let title = own.title();
            buffers += &format!(
                "\n# own: {title}; each call also compares them with those that it has proved"
            );
        }
        [machine, encryption::describe(encryption), buffers, table::head()].join("\n")
    });
    if let Some(report) = &mut perf_run.report {
        report.describe(|| machine::facts(&perf_run.mapping, &costs, encryption));
    }
    let mut stopped = false;
    for (transport, mut comm) in communicators.comms {
        if settings.deterministic {
            comm.set_deterministic(true);
        }
        stopped = stopped || perf_run.measure(transport, comm, &points)?;
    }
    let Some(mut report) = perf_run.report else { return Ok(PerfOutcome::default()) };
    report.end(perf_run.mapping.is_one_machine(), stopped)?;
    Ok(PerfOutcome { wrong: report.totals.wrong, interrupted: stopped })
}

struct PerfRun<'a> {
    settings: &'a PerfSettings,
    mapping: RankMapping,
    /// How fast this rank encrypts, if links are encrypted. On rank 0 only.
    encryption: Option<EncryptionRate>,
    stop: &'a AtomicBool,
    /// On rank 0 only.
    report: Option<PerfOutput<'a>>,
}

impl PerfRun<'_> {
    fn say(&mut self, text: impl FnOnce(&RankMapping) -> String) {
        if let Some(report) = &mut self.report {
            report.say(&text(&self.mapping));
        }
    }

    /// Measures all points over one transport. Returns true if the user stopped the measurement.
    fn measure(
        &mut self,
        transport: PerfTransport,
        comm: Communicator,
        points: &[BenchmarkPoint],
    ) -> Result<bool> {
        let options = SamplingOptions {
            iters: self.settings.iters,
            warmup: self.settings.warmup,
            budget: self.settings.budget,
            check: self.settings.check,
            reuse: self.settings.reuse_buffers,
            leave_out: self.settings.sabotage,
        };
        let mut sampler = Sampler::new(comm, options, &self.mapping, self.stop);
        #[cfg(feature = "cuda")]
        if transport == PerfTransport::Cuda {
            let gpu = device::join(&mut sampler.comm)?;
            gpu.set_deterministic(self.settings.deterministic);
            sampler.gpu = Some(std::sync::Arc::new(gpu));
        }
        if self.settings.report.is_some() && self.mapping.is_one_machine() {
            let limit =
                MachineLimit::measure(&mut sampler.comm, transport, &self.settings.benchmark)?;
            if let (Some(report), Some(limit)) = (&mut self.report, limit) {
                report.limit(limit);
            }
        }
        let arena = self.arena(&mut sampler.comm, points)?;
        // Where ranks share a core, a barrier waits for their turns.
        let shows_distance = transport == PerfTransport::Shm
            && sampler.comm.world() > 1
            && self.mapping.has_core_for_each();
        let before = shows_distance.then(|| barrier_us(&mut sampler.comm)).transpose()?;
        let mut oracle = None;
        for point in points {
            let fresh = || {
                (
                    point.collective,
                    Oracle::new(self.settings.benchmark.parameters, point.collective),
                )
            };
            if oracle.as_ref().is_none_or(|(collective, _)| *collective != point.collective) {
                oracle = Some(fresh());
            }
            let (_, oracle) = oracle.as_ref().expect("just made");
            let row = self.point(&mut sampler, transport, *point, oracle, arena.as_ref())?;
            if let Some(report) = &mut self.report {
                report.add(&row);
            }
            if sampler.stopped {
                break;
            }
        }
        if let Some(before) = before {
            let after = barrier_us(&mut sampler.comm)?;
            self.say(|_| CoreDistance { before, after }.to_string());
        }
        let stopped = sampler.stopped;
        #[cfg(feature = "cuda")]
        drop(sampler.gpu);
        sampler.comm.close()?;
        Ok(stopped)
    }

    /// The memory of all buffers, if they are to be registered. Collective.
    fn arena(&self, comm: &mut Communicator, points: &[BenchmarkPoint]) -> Result<Option<Arena>> {
        if !self.settings.registered {
            return Ok(None);
        }
        let bytes = arena_bytes(self.settings.benchmark.parameters, points, comm.rank());
        Ok(Some(comm.arena(bytes)?))
    }

    fn point(
        &self,
        sampler: &mut Sampler<'_>,
        transport: PerfTransport,
        point: BenchmarkPoint,
        oracle: &Oracle,
        arena: Option<&Arena>,
    ) -> Result<PerfRow> {
        let parameters = self.settings.benchmark.parameters;
        let rank = sampler.comm.rank();
        sampler.comm.set_algorithm(point.algorithm);
        let algorithm = sampler.comm.algorithm(point.collective, point.count, parameters.kind);
        #[cfg(feature = "cuda")]
        let algorithm = match &sampler.gpu {
            Some(gpu) => {
                gpu.set_algorithm(point.algorithm);
                gpu.algorithm(point.collective, point.count, parameters.kind)
            }
            None => algorithm,
        };
        sampler.comm.set_algorithm(None);
        let deterministic = sampler.comm.is_deterministic();
        let algorithm = algorithm?;
        let prediction = None;
        let out_of_place = None;
        let in_place = None;
        let mut row = PerfRow {
            parameters,
            transport,
            encryption: self.encryption.filter(|_| encryption::applies(transport)),
            deterministic,
            reuses_buffers: self.settings.reuse_buffers,
            point,
            algorithm,
            is_own: false,
            prediction,
            out_of_place,
            in_place,
        };
        let own = self.settings.own.as_deref().map(|own| own.schedules.as_slice());
        if let Some(report) = &self.report {
            if let Some(schedules) = own {
                row.is_own = true;
                row.prediction = TunerPrediction::of_schedules(
                    &sampler.comm,
                    point.collective,
                    row.bytes(),
                    schedules,
                );
            } else if report.has_report() {
                row.prediction = TunerPrediction::of(
                    &sampler.comm,
                    point.collective,
                    row.bytes(),
                    row.algorithm,
                );
            }
            let size = sizes::name(row.bytes());
            report.begin(format!("{} {size} over {transport}", names::dashed(point.collective)));
        }
        for place in point.placements() {
            let mut work = Workload::new(parameters, point, *place, rank, oracle, arena)?.by(own);
            #[cfg(feature = "cuda")]
            if let Some(gpu) = &sampler.gpu {
                work = work.on_device(gpu, parameters.kind)?;
            }
            let measured: Option<Measurement> =
                if sampler.stopped { None } else { sampler.measure(&mut work)? };
            match place {
                BufferPlacement::OutOfPlace => row.out_of_place = measured,
                BufferPlacement::InPlace => row.in_place = measured,
            }
        }
        Ok(row)
    }
}

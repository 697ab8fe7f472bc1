//! One rank, from its communicators to the last line.

use crate::perf::benchmark::{BenchmarkPoint, BufferPlacement};
use crate::perf::check::oracle::Oracle;
use crate::perf::communicators::{PerfTransport, RankCommunicators};
use crate::perf::mapping::RankMapping;
use crate::perf::measure::limits::MachineLimit;
use crate::perf::measure::workload::Workload;
use crate::perf::measure::{Measurement, Sampler, SamplingOptions};
use crate::perf::output::PerfOutput;
use crate::perf::output::machine;
use crate::perf::output::prediction::TunerPrediction;
use crate::perf::output::row::PerfRow;
use crate::perf::output::table;
use crate::perf::settings::PerfSettings;
use crate::{names, sizes};
use anyhow::{Context, Result};
use maypole::Communicator;
use std::sync::atomic::AtomicBool;

/// How it ended, as rank 0 knows it; on the others always well.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PerfOutcome {
    pub(crate) wrong: u64,
    pub(crate) interrupted: bool,
}

/// Measures everything; all ranks call it, and all leave it after the same point. `stop` asks for
/// the end.
pub(crate) fn run(
    mut joined: RankCommunicators,
    settings: &PerfSettings,
    stop: &AtomicBool,
) -> Result<PerfOutcome> {
    let points = settings.benchmark.points();
    let transports = joined.comms.len();
    let (_, first) = joined.comms.first_mut().context("no transport joins these ranks")?;
    let report = match first.rank() {
        0 => Some(PerfOutput::new(points.len() * transports, settings)?),
        _ => None,
    };
    let mapping = RankMapping::take(first, settings.bind)?;
    let costs = *first.costs();
    let mut session = PerfRun { settings, mapping, stop, report };
    session.say(|session| machine::describe(&session.mapping) + "\n" + &table::head())?;
    if let Some(report) = &mut session.report {
        report.describe(|| machine::facts(&session.mapping, &costs));
    }
    let mut stopped = false;
    for (transport, mut comm) in joined.comms {
        if settings.deterministic {
            comm.set_deterministic(true);
        }
        stopped = stopped || session.measure(transport, comm, &points)?;
    }
    let Some(report) = session.report else { return Ok(PerfOutcome::default()) };
    report.end(session.mapping.is_one_host(), stopped)?;
    Ok(PerfOutcome { wrong: report.totals.wrong, interrupted: stopped })
}

struct PerfRun<'a> {
    settings: &'a PerfSettings,
    mapping: RankMapping,
    stop: &'a AtomicBool,
    /// Rank 0's.
    report: Option<PerfOutput>,
}

impl PerfRun<'_> {
    fn say(&self, text: impl FnOnce(&Self) -> String) -> Result<()> {
        self.report.as_ref().map_or(Ok(()), |report| report.say(&text(self)))
    }

    /// All points over one transport; true if the user stopped them.
    fn measure(
        &mut self,
        transport: PerfTransport,
        comm: Communicator,
        points: &[BenchmarkPoint],
    ) -> Result<bool> {
        let effort = SamplingOptions {
            iters: self.settings.iters,
            warmup: self.settings.warmup,
            budget: self.settings.budget,
            check: self.settings.check,
            leave_out: self.settings.sabotage,
        };
        let mut meter = Sampler::new(comm, effort, &self.mapping, self.stop);
        if self.settings.report.is_some() && self.mapping.is_one_host() {
            let limit =
                MachineLimit::measure(&mut meter.comm, transport, &self.settings.benchmark)?;
            if let (Some(report), Some(limit)) = (&mut self.report, limit) {
                report.limit(limit);
            }
        }
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
            let row = self.point(&mut meter, transport, *point, oracle)?;
            if let Some(report) = &mut self.report {
                report.add(&row)?;
            }
            if meter.stopped {
                break;
            }
        }
        let stopped = meter.stopped;
        meter.comm.close()?;
        Ok(stopped)
    }

    fn point(
        &self,
        meter: &mut Sampler<'_>,
        transport: PerfTransport,
        point: BenchmarkPoint,
        oracle: &Oracle,
    ) -> Result<PerfRow> {
        let parameters = self.settings.benchmark.parameters;
        let rank = meter.comm.rank();
        meter.comm.set_algorithm(point.algorithm);
        let algorithm = meter.comm.algorithm(point.collective, point.count, parameters.kind);
        meter.comm.set_algorithm(None);
        let deterministic = meter.comm.is_deterministic();
        let algorithm = algorithm?;
        let prediction = None;
        let out_of_place = None;
        let in_place = None;
        let mut row = PerfRow {
            parameters,
            transport,
            deterministic,
            point,
            algorithm,
            prediction,
            out_of_place,
            in_place,
        };
        if let Some(report) = &self.report {
            if report.has_report() {
                row.prediction =
                    TunerPrediction::of(&meter.comm, point.collective, row.bytes(), row.algorithm);
            }
            let size = sizes::name(row.bytes());
            report.begin(format!("{} {size} over {transport}", names::dashed(point.collective)));
        }
        for place in point.placements() {
            let mut work = Workload::new(parameters, point, *place, rank, oracle);
            let measured: Option<Measurement> =
                if meter.stopped { None } else { meter.measure(&mut work)? };
            match place {
                BufferPlacement::OutOfPlace => row.out_of_place = measured,
                BufferPlacement::InPlace => row.in_place = measured,
            }
        }
        Ok(row)
    }
}

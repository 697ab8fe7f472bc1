//! Measures the points of collectives.

use super::PerfRun;
use crate::names;
use crate::perf::benchmark::{Benchmark, BenchmarkPoint, BufferPlacement, CallParameters};
use crate::perf::check::oracle::Oracle;
use crate::perf::communicators::PerfTransport;
use crate::perf::encryption;
use crate::perf::measure::batch::SampledWork;
use crate::perf::measure::overlap::{self, Beside, Overlap};
use crate::perf::measure::workload::{Workload, arena_bytes};
use crate::perf::measure::{Measurement, Sampler};
use crate::perf::output::prediction::TunerPrediction;
use crate::perf::output::row::PerfRow;
use crate::sizes;
use anyhow::Result;
use maypole::algorithms::Algorithm;
use maypole::{Arena, Communicator};

impl PerfRun<'_> {
    /// Measures all points of one type, operation and root.
    pub(super) fn benchmark(
        &mut self,
        sampler: &mut Sampler<'_>,
        transport: PerfTransport,
        benchmark: &Benchmark,
    ) -> Result<()> {
        let points = benchmark.points();
        let arena = self.arena(&mut sampler.comm, benchmark.parameters, &points)?;
        let mut oracle = None;
        for point in points {
            let fresh = || (point.collective, Oracle::new(benchmark.parameters, point.collective));
            if oracle.as_ref().is_none_or(|(collective, _)| *collective != point.collective) {
                oracle = Some(fresh());
            }
            let (_, oracle) = oracle.as_ref().expect("just made");
            let ordinary = self.settings.options.registered_too.then_some(None);
            for arena in ordinary.into_iter().chain([arena.as_ref()]) {
                let parameters = benchmark.parameters;
                let place = PointPlace { transport, parameters, oracle, arena };
                let row = self.point(sampler, place, &point)?;
                if let Some(report) = &mut self.report {
                    report.add(&row);
                }
                if sampler.stopped {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The memory of all buffers, if they are to be registered. Collective.
    fn arena(
        &self,
        comm: &mut Communicator,
        parameters: CallParameters,
        points: &[BenchmarkPoint],
    ) -> Result<Option<Arena>> {
        if !self.settings.registered {
            return Ok(None);
        }
        let bytes = arena_bytes(parameters, points, comm.rank());
        Ok(Some(comm.arena(bytes)?))
    }

    /// The row of a point.
    fn point(
        &self,
        sampler: &mut Sampler<'_>,
        place: PointPlace<'_>,
        point: &BenchmarkPoint,
    ) -> Result<PerfRow> {
        let mut row = self.row(sampler, place, point)?;
        self.predict(sampler, &mut row);
        let places = if self.settings.options.overlap { 1 } else { point.placements().len() };
        for buffers in &point.placements()[..places] {
            let measured = match self.settings.options.overlap {
                true => {
                    row.overlap = overlap(sampler, &mut place.work(point, *buffers, sampler)?)?;
                    row.overlap.as_ref().map(|overlap| overlap.both.clone())
                }
                false => self.alone(sampler, place, point, *buffers)?,
            };
            match buffers {
                BufferPlacement::OutOfPlace => row.out_of_place = measured,
                BufferPlacement::InPlace => row.in_place = measured,
            }
        }
        Ok(row)
    }

    /// A row without a measurement.
    fn row(
        &self,
        sampler: &mut Sampler<'_>,
        place: PointPlace<'_>,
        point: &BenchmarkPoint,
    ) -> Result<PerfRow> {
        let PointPlace { transport, parameters, arena, .. } = place;
        Ok(PerfRow {
            parameters,
            transport,
            is_encrypted: encryption::applies(&sampler.comm, transport),
            deterministic: sampler.comm.is_deterministic(),
            reuses_buffers: self.settings.options.sampling.reuse_buffers,
            together: self.settings.options.sampling.together,
            point: point.clone(),
            algorithm: algorithm(sampler, point, parameters)?,
            is_own: false,
            prediction: None,
            out_of_place: None,
            in_place: None,
            is_registered: arena.is_some(),
            overlap: None,
        })
    }

    /// Adds the tuner's prediction where it is shown, and shows the point in the progress bar.
    fn predict(&self, sampler: &Sampler<'_>, row: &mut PerfRow) {
        let Some(report) = &self.report else { return };
        let (comm, collective, bytes) = (&sampler.comm, row.point.collective, row.bytes());
        if let Some(own) = self.settings.own.as_deref() {
            let schedules = own.schedules.as_slice();
            row.is_own = true;
            row.prediction = TunerPrediction::of_schedules(comm, collective, bytes, schedules);
        } else if report.has_report() {
            row.prediction = TunerPrediction::of(comm, collective, bytes, row.algorithm);
        }
        #[cfg(feature = "cuda")]
        if let Some(gpu) = &sampler.gpu {
            row.prediction = TunerPrediction::on_gpus(gpu, collective, bytes);
        }
        let (name, size) = (names::dashed(collective), sizes::name(bytes));
        report.begin(format!("{name} {size} over {}", row.transport));
    }

    /// Measures a call without concurrent ones.
    fn alone(
        &self,
        sampler: &mut Sampler<'_>,
        place: PointPlace<'_>,
        point: &BenchmarkPoint,
        buffers: BufferPlacement,
    ) -> Result<Option<Measurement>> {
        let own = self.settings.own.as_deref().map(|own| own.schedules.as_slice());
        let mut work = place.work(point, buffers, sampler)?.by(own);
        #[cfg(feature = "cuda")]
        if let Some(gpu) = &sampler.gpu {
            work = work.on_device(gpu, place.parameters.kind)?;
        }
        measure(sampler, &mut work)
    }
}

/// The place of a point's calls, and their expected results.
#[derive(Clone, Copy)]
struct PointPlace<'a> {
    transport: PerfTransport,
    parameters: CallParameters,
    oracle: &'a Oracle,
    /// The memory of the buffers, if it is registered.
    arena: Option<&'a Arena>,
}

impl<'a> PointPlace<'a> {
    fn work(
        self,
        point: &BenchmarkPoint,
        buffers: BufferPlacement,
        sampler: &Sampler<'_>,
    ) -> Result<Workload<'a>> {
        let Self { parameters, oracle, arena, .. } = self;
        let rank = sampler.comm.rank();
        Workload::new(parameters, point.clone(), buffers, rank, oracle, arena)
    }
}

/// The algorithm that runs on private memory.
fn algorithm(
    sampler: &mut Sampler<'_>,
    point: &BenchmarkPoint,
    parameters: CallParameters,
) -> Result<Algorithm> {
    let count = point.mean_count(parameters.world);
    #[cfg(feature = "cuda")]
    if let Some(gpu) = &sampler.gpu {
        gpu.set_algorithm(point.algorithm);
        return Ok(gpu.algorithm(point.collective, count, parameters.kind)?);
    }
    sampler.comm.set_algorithm(point.algorithm);
    let algorithm = sampler.comm.algorithm(point.collective, count, parameters.kind);
    sampler.comm.set_algorithm(None);
    Ok(algorithm?)
}

/// `None` once the user has stopped the measurement.
fn measure(sampler: &mut Sampler<'_>, work: &mut dyn SampledWork) -> Result<Option<Measurement>> {
    Ok(if sampler.stopped { None } else { sampler.measure(work)? })
}

/// Measures requests, computing that takes as long, and both together.
fn overlap(sampler: &mut Sampler<'_>, work: &mut Workload<'_>) -> Result<Option<Overlap>> {
    work.set_beside(Beside { calls: true, turns: 0 });
    let Some(call) = measure(sampler, work)? else { return Ok(None) };
    let turns = overlap::turns_of(call.time.p50);
    work.set_beside(Beside { calls: false, turns });
    let Some(compute) = measure(sampler, work)? else { return Ok(None) };
    work.set_beside(Beside { calls: true, turns });
    let both = measure(sampler, work)?;
    Ok(both.map(|both| Overlap { call, compute, both }))
}

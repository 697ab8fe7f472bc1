//! Measures the points of collectives.

use super::PerfRun;
use crate::perf::benchmark::{Benchmark, BenchmarkPoint, BufferPlacement, CallParameters};
use crate::perf::check::oracle::Oracle;
use crate::perf::communicators::{TransportName, is_encrypted};
use crate::perf::measure::batch::SampledWork;
use crate::perf::measure::overlap::{self, Beside, Overlap};
use crate::perf::measure::workload::{Workload, arena_bytes};
use crate::perf::measure::{Measurement, Sampler};
use crate::perf::output::json;
use crate::perf::output::prediction::TunerPrediction;
use crate::sizes;
use anyhow::Result;
use maypole::algorithms::Algorithm;
use maypole::{Arena, Communicator};
use serde_json::{Value, json};

impl PerfRun<'_> {
    /// Measures all points of one type, operation and root.
    pub(super) fn benchmark(
        &mut self,
        sampler: &mut Sampler<'_>,
        transport: TransportName,
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
                let objects = self.point(sampler, place, &point)?;
                if let Some(report) = &mut self.report {
                    objects.into_iter().for_each(|object| report.add(object));
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
        if !self.settings.options.has_registered() {
            return Ok(None);
        }
        let bytes = arena_bytes(parameters, points, comm.rank());
        Ok(Some(comm.arena(bytes)?))
    }

    /// The results of a point: an object for each placement of the buffers.
    fn point(
        &self,
        sampler: &mut Sampler<'_>,
        place: PointPlace<'_>,
        point: &BenchmarkPoint,
    ) -> Result<Vec<Value>> {
        let about = self.about(sampler, place, point)?;
        let overlaps = self.settings.options.overlap;
        let places = if overlaps { 1 } else { point.placements().len() };
        let mut objects = Vec::new();
        for &buffers in &point.placements()[..places] {
            let measured = if overlaps {
                overlap(sampler, &mut place.work(point, buffers, sampler)?)?
            } else {
                self.alone(sampler, place, point, buffers)?.map(|alone| (alone, None))
            };
            objects.extend(measured.map(|(measured, hidden)| {
                let of = (point, place.parameters.world);
                json::of_point(&about, of, buffers, &measured, hidden)
            }));
        }
        Ok(objects)
    }

    /// What is equal for all placements of a point. Shows the point as progress.
    fn about(
        &self,
        sampler: &mut Sampler<'_>,
        place: PointPlace<'_>,
        point: &BenchmarkPoint,
    ) -> Result<Value> {
        let PointPlace { transport, parameters, arena, .. } = place;
        let (collective, sampling) = (point.collective, &self.settings.options.sampling);
        let bytes = point.whole(parameters.world) * parameters.kind.size();
        #[cfg(feature = "cuda")]
        if let Some(gpu) = &sampler.gpu {
            gpu.set_algorithm(point.algorithm);
        }
        let prediction = self.predict(sampler, point, bytes);
        if let Some(report) = &self.report {
            let (name, size) = (collective.option_name(), sizes::name(bytes));
            report.begin(format!("{name} {size} over {transport}"));
        }
        let counts = point.shares.as_ref().map(|shares| {
            (0..shares.len()).map(|rank| point.block(rank).len()).collect::<Vec<_>>()
        });
        let mut about = json!({
            "collective": collective.name(),
            "ranks": parameters.world,
            "transport": transport,
            "requested": point.algorithm.map_or("auto", Algorithm::name),
            "bytes": bytes,
            "count": point.count,
            "type": parameters.kind.name(),
            "op": collective.reduces().then(|| parameters.op.name()),
            "root": collective.root(),
            "deterministic": sampler.comm.is_deterministic(),
            "encrypted": is_encrypted(&sampler.comm, transport),
            "offset": parameters.offset,
            "registered": arena.is_some(),
            "reuses_buffers": sampling.reuse_buffers,
            "counts": counts,
            "off_cache_bytes": sampling.off_cache,
            "tuners_choice": prediction.map(|prediction| prediction.choice.name()),
            "predicted_us": prediction.map(|prediction| prediction.us),
        });
        if sampling.together {
            json::add(&mut about, json!({ "together": true }));
        }
        Ok(about)
    }

    /// The tuner's prediction where it is shown: in a report, for the schedules of a file, and on GPUs.
    fn predict(
        &self,
        sampler: &mut Sampler<'_>,
        point: &BenchmarkPoint,
        bytes: usize,
    ) -> Option<TunerPrediction> {
        let report = self.report.as_ref()?;
        let (comm, collective) = (&mut sampler.comm, point.collective);
        #[cfg(feature = "cuda")]
        if let Some(gpu) = &sampler.gpu {
            return TunerPrediction::of(&gpu.explain(collective, bytes));
        }
        if let Some(own) = self.settings.own.as_deref() {
            return TunerPrediction::of_schedules(comm, collective, bytes, &own.schedules);
        }
        if !report.has_report() {
            return None;
        }
        comm.set_algorithm(point.algorithm);
        let explained = comm.explain(collective, bytes);
        comm.set_algorithm(None);
        TunerPrediction::of(&explained)
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
            work.buffers.on_device(gpu, None)?;
        }
        measure(sampler, &mut work)
    }
}

/// The place of a point's calls, and their expected results.
#[derive(Clone, Copy)]
struct PointPlace<'a> {
    transport: TransportName,
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

/// `None` once the user has stopped the measurement.
fn measure(sampler: &mut Sampler<'_>, work: &mut dyn SampledWork) -> Result<Option<Measurement>> {
    Ok(if sampler.stopped { None } else { sampler.measure(work)? })
}

/// Measures requests, computing that takes as long, and both together.
fn overlap(
    sampler: &mut Sampler<'_>,
    work: &mut Workload<'_>,
) -> Result<Option<(Measurement, Option<Overlap>)>> {
    work.set_beside(Beside { calls: true, turns: 0 });
    let Some(call) = measure(sampler, work)? else { return Ok(None) };
    let turns = overlap::turns_of(call.time.p50);
    work.set_beside(Beside { calls: false, turns });
    let Some(compute) = measure(sampler, work)? else { return Ok(None) };
    work.set_beside(Beside { calls: true, turns });
    let Some(both) = measure(sampler, work)? else { return Ok(None) };
    let hidden = Overlap::of(&call, &compute, &both);
    Ok(Some((both, Some(hidden))))
}

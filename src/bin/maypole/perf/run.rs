//! One rank, from its communicators to the last line.

use crate::perf::args::Settings;
use crate::perf::benchmark::{Place, Point};
use crate::perf::check::oracle::Oracle;
use crate::perf::communicators::{Joined, Joint};
use crate::perf::mapping::Seats;
use crate::perf::measure::limits::Limit;
use crate::perf::measure::workload::Work;
use crate::perf::measure::{Effort, Measured, Meter};
use crate::perf::output::Report;
use crate::perf::output::machine;
use crate::perf::output::prediction::Prediction;
use crate::perf::output::row::Row;
use crate::perf::output::table;
use crate::{names, sizes};
use anyhow::{Context, Result};
use maypole::Communicator;
use std::sync::atomic::AtomicBool;

/// How it ended, as rank 0 knows it; on the others always well.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) wrong: u64,
    pub(crate) interrupted: bool,
}

/// Measures everything; all ranks call it, and all leave it after the same point. `stop` asks for
/// the end.
pub(crate) fn run(mut joined: Joined, settings: &Settings, stop: &AtomicBool) -> Result<Verdict> {
    let points = settings.what.points();
    let transports = joined.comms.len();
    let (_, first) = joined.comms.first_mut().context("no transport joins these ranks")?;
    let report = match first.rank() {
        0 => Some(Report::new(points.len() * transports, settings)?),
        _ => None,
    };
    let (seats, costs) = (Seats::take(first, settings.bind)?, *first.costs());
    let mut session = Session { settings, seats, stop, report };
    session.say(|session| machine::describe(&session.seats) + "\n" + &table::head())?;
    if let Some(report) = &mut session.report {
        report.describe(|| machine::facts(&session.seats, &costs));
    }
    let mut stopped = false;
    for (transport, mut comm) in joined.comms {
        if settings.deterministic {
            comm.set_deterministic(true);
        }
        stopped = stopped || session.measure(transport, comm, &points)?;
    }
    let Some(report) = session.report else { return Ok(Verdict::default()) };
    report.end(session.seats.is_one_host(), stopped)?;
    Ok(Verdict { wrong: report.totals.wrong, interrupted: stopped })
}

struct Session<'a> {
    settings: &'a Settings,
    seats: Seats,
    stop: &'a AtomicBool,
    /// Rank 0's.
    report: Option<Report>,
}

impl Session<'_> {
    fn say(&self, text: impl FnOnce(&Self) -> String) -> Result<()> {
        self.report.as_ref().map_or(Ok(()), |report| report.say(&text(self)))
    }

    /// All points over one transport; true if the user stopped them.
    fn measure(&mut self, transport: Joint, comm: Communicator, points: &[Point]) -> Result<bool> {
        let effort = Effort {
            iters: self.settings.iters,
            warmup: self.settings.warmup,
            budget: self.settings.budget,
            check: self.settings.check,
            leave_out: self.settings.sabotage,
        };
        let mut meter = Meter::new(comm, effort, &self.seats, self.stop);
        if self.settings.report.is_some() && self.seats.is_one_host() {
            let limit = Limit::measure(&mut meter.comm, transport, &self.settings.what)?;
            if let (Some(report), Some(limit)) = (&mut self.report, limit) {
                report.limit(limit);
            }
        }
        let mut oracle = None;
        for point in points {
            let fresh =
                || (point.collective, Oracle::new(self.settings.what.given, point.collective));
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
        meter: &mut Meter<'_>,
        transport: Joint,
        point: Point,
        oracle: &Oracle,
    ) -> Result<Row> {
        let given = self.settings.what.given;
        let rank = meter.comm.rank();
        meter.comm.set_algorithm(point.algorithm);
        let algorithm = meter.comm.algorithm(point.collective, point.count, given.kind);
        meter.comm.set_algorithm(None);
        let deterministic = meter.comm.is_deterministic();
        let algorithm = algorithm?;
        let (prediction, apart, same) = (None, None, None);
        let mut row =
            Row { given, transport, deterministic, point, algorithm, prediction, apart, same };
        if let Some(report) = &self.report {
            if report.has_page() {
                row.prediction =
                    Prediction::of(&meter.comm, point.collective, row.bytes(), row.algorithm);
            }
            let size = sizes::name(row.bytes());
            report.begin(format!("{} {size} over {transport}", names::dashed(point.collective)));
        }
        for place in point.places() {
            let mut work = Work::new(given, point, *place, rank, oracle);
            let measured: Option<Measured> =
                if meter.stopped { None } else { meter.measure(&mut work)? };
            match place {
                Place::Apart => row.apart = measured,
                Place::Same => row.same = measured,
            }
        }
        Ok(row)
    }
}

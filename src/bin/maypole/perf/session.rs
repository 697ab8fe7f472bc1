//! One rank, from its communicators to the last line.

use super::args::Settings;
use super::machine::{self, Seat};
use super::measure::{Effort, Measured, Meter};
use super::oracle::Oracle;
use super::points::{Place, Point};
use super::ranks::{Joined, Transport};
use super::report::Report;
use super::row::Row;
use super::table;
use super::work::Work;
use crate::{names, sizes};
use anyhow::{Context, Result};
use maypole::Communicator;
use maypole_transports::{affinity, cores};
use std::sync::atomic::AtomicBool;

/// How it ended, as rank 0 knows it; on the others always well.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Verdict {
    pub(super) wrong: u64,
    pub(super) interrupted: bool,
}

/// Measures everything; all ranks call it, and all leave it after the same point. `stop` asks for the end.
pub(super) fn run(mut joined: Joined, settings: &Settings, stop: &AtomicBool) -> Result<Verdict> {
    let points = settings.what.points();
    let first = &mut joined.first_mut().context("no transport joins these ranks")?.1;
    let report = match first.rank() {
        0 => Some(Report::new(points.len() * joined.len(), settings.json.as_deref())?),
        _ => None,
    };
    let first = &mut joined[0].1;
    // Counted before binding, which leaves one.
    let cores = cores::available();
    let hosts = hosts(first)?;
    let seats = take_seats(first, &hosts, cores, settings.bind)?;
    let mut session = Session { settings, cores, one_host: hosts.iter().all(|host| *host == 0), stop, report };
    session.say(|| machine::describe(&hosts, &seats, cores) + "\n" + &table::head())?;
    let mut stopped = false;
    for (transport, comm) in joined {
        stopped = stopped || session.measure(transport, comm, &points)?;
    }
    let Some(report) = session.report else { return Ok(Verdict::default()) };
    report.end(session.one_host, stopped)?;
    Ok(Verdict { wrong: report.totals.wrong, interrupted: stopped })
}

/// The host of each rank: those with one number read one clock.
fn hosts(comm: &mut Communicator) -> Result<Vec<usize>> {
    let marks = gather(comm, [machine::mark()])?;
    let first = |mark: &[u64; 1]| marks.iter().position(|other| other == mark);
    let firsts: Vec<_> = marks.iter().map(first).collect();
    let mut distinct = firsts.clone();
    distinct.sort_unstable();
    distinct.dedup();
    Ok(firsts.iter().map(|first| distinct.iter().position(|other| other == first).unwrap_or(0)).collect())
}

/// Binds each rank to a core, if that was asked for or if nobody asked and there are enough, and tells who sits where.
fn take_seats(comm: &mut Communicator, hosts: &[usize], cores: usize, bind: Option<bool>) -> Result<Vec<Seat>> {
    let rank = comm.rank();
    let neighbours = |ranks: &[usize]| ranks.iter().filter(|host| **host == hosts[rank]).count();
    let core = match bind.unwrap_or(neighbours(hosts) <= cores) {
        true => affinity::bind(neighbours(&hosts[..rank])).context("cannot bind to a core; see --bind")? as u64,
        false => Seat::NOWHERE,
    };
    let seats = gather(comm, [u64::from(std::process::id()), core])?;
    Ok(seats.into_iter().map(|[pid, core]| Seat { pid, core }).collect())
}

fn gather<const N: usize>(comm: &mut Communicator, mine: [u64; N]) -> Result<Vec<[u64; N]>> {
    let mut all = vec![0; N * comm.world()];
    comm.all_gather(&mine, &mut all)?;
    Ok(all.as_chunks().0.to_vec())
}

struct Session<'a> {
    settings: &'a Settings,
    cores: usize,
    one_host: bool,
    stop: &'a AtomicBool,
    /// Rank 0's.
    report: Option<Report>,
}

impl Session<'_> {
    fn say(&self, text: impl FnOnce() -> String) -> Result<()> {
        self.report.as_ref().map_or(Ok(()), |report| report.say(&text()))
    }

    /// All points over one transport; true if the user stopped them.
    fn measure(&mut self, transport: Transport, comm: Communicator, points: &[Point]) -> Result<bool> {
        let effort = Effort {
            iters: self.settings.iters,
            warmup: self.settings.warmup,
            budget: self.settings.budget,
            check: self.settings.check,
            leave_out: self.settings.sabotage,
        };
        let mut meter = Meter::new(comm, effort, self.cores, self.one_host, self.stop);
        let mut oracle = None;
        for point in points {
            let fresh = || (point.collective, Oracle::new(self.settings.what.given, point.collective));
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

    fn point(&self, meter: &mut Meter<'_>, transport: Transport, point: Point, oracle: &Oracle) -> Result<Row> {
        let given = self.settings.what.given;
        let rank = meter.comm.rank();
        meter.comm.set_algorithm(point.algorithm);
        let algorithm = meter.comm.algorithm(point.collective, point.count, given.kind);
        meter.comm.set_algorithm(None);
        let mut row = Row { given, transport, point, algorithm: algorithm?, apart: None, same: None };
        if let Some(report) = &self.report {
            let size = sizes::name(row.bytes());
            report.begin(format!("{} {size} over {transport}", names::dashed(point.collective)));
        }
        for place in point.places() {
            let mut work = Work::new(given, point, *place, rank, oracle);
            let measured: Option<Measured> = if meter.stopped { None } else { meter.measure(&mut work)? };
            match place {
                Place::Apart => row.apart = measured,
                Place::Same => row.same = measured,
            }
        }
        Ok(row)
    }
}

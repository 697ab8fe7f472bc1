//! Two ranks that send vectors to one another, and the times of these.

use super::{COPY, SAMPLE};
use crate::statistics;
use anyhow::{Context, Result};
use maypole::algorithms::Algorithm;
use maypole::tuner::Plan;
use maypole::{Communicator, ReduceOp};
use maypole_kernels::ViewMut;
use maypole_transports::process_memory::{MemoryBeacon, ProcessMemory};
use std::time::Instant;

/// The times of one size in picoseconds: one way, and combined both ways.
pub(super) struct TunePoint {
    pub(super) bytes: usize,
    pub(super) ping: f64,
    pub(super) fold: f64,
}

/// Two ranks over one transport.
pub(super) struct RankPair {
    comm: Communicator,
    samples: u32,
    /// Every sample so far, divided by the median of its point.
    pub(super) relative: Vec<f64>,
}

impl RankPair {
    pub(super) fn new(comm: Communicator, samples: u32) -> Self {
        Self { comm, samples, relative: Vec::new() }
    }

    pub(super) fn series(&mut self, sizes: &[usize]) -> Result<Vec<TunePoint>> {
        sizes.iter().map(|bytes| self.point(*bytes)).collect()
    }

    fn point(&mut self, bytes: usize) -> Result<TunePoint> {
        let mut data = vec![0f32; bytes / size_of::<f32>()];
        let ping = self.time(Algorithm::Linear, |comm| {
            comm.broadcast(&mut data, 0)?;
            Ok(comm.broadcast(&mut data, 1)?)
        })?;
        let fold =
            self.time(Algorithm::OneShot, |comm| Ok(comm.all_reduce(&mut data, ReduceOp::Max)?))?;
        Ok(TunePoint { bytes, ping: ping / 2.0, fold })
    }

    /// The times of copies by the kernel, without the message that announces the bytes, which takes
    /// `message` picoseconds. They combine nothing. If a rank cannot read the other one's memory, the reason.
    pub(super) fn copies(
        &mut self,
        message: u64,
    ) -> Result<std::result::Result<Vec<TunePoint>, String>> {
        self.comm.set_plan(None);
        let mut own = vec![1u8; COPY[COPY.len() - 1]];
        let beacon = MemoryBeacon::new()?;
        let ProcessMemory { pid, beacon: word, mark } = beacon.memory();
        let mine = (pid, word, mark, own.as_ptr().addr() as u64);
        let (pid, beacon, mark, address) =
            self.comm.all_gather_values(&mine)?[1 - self.comm.rank()];
        let peer = ProcessMemory { pid, beacon, mark };
        let refusal = peer.check().err().map(|error| error.to_string());
        let refusals = self.comm.all_gather_values(&refusal)?;
        if let Some(why) = refusals.into_iter().flatten().next() {
            return Ok(Err(why));
        }
        let points = COPY.into_iter().map(|bytes| {
            let into = &mut own[..bytes];
            let both = self.time(Algorithm::Linear, |comm| {
                (0..2).try_for_each(|reader| {
                    if comm.rank() == reader {
                        peer.read(address, ViewMut::of(into)).context("cannot copy")?;
                    }
                    Ok(comm.broadcast(&mut [0u8], reader)?)
                })
            })?;
            let ping = (both / 2.0 - message as f64).max(1.0);
            Ok(TunePoint { bytes, ping, fold: ping })
        });
        points.collect::<Result<_>>().map(Ok)
    }

    /// The least picoseconds of a call with one window.
    fn time(
        &mut self,
        algorithm: Algorithm,
        mut call: impl FnMut(&mut Communicator) -> Result<()>,
    ) -> Result<f64> {
        let mut batch = |comm: &mut Communicator, calls: u32| -> Result<f64> {
            comm.set_plan(None);
            comm.barrier()?;
            comm.set_plan(Some(Plan { algorithm, window: 1 << 30 }));
            let start = Instant::now();
            (0..calls).try_for_each(|_| call(comm))?;
            Ok(start.elapsed().as_nanos() as f64 * 1e3 / f64::from(calls))
        };
        batch(&mut self.comm, 20)?;
        let one = batch(&mut self.comm, 20)?;
        let calls = (SAMPLE.as_nanos() as f64 * 1e3 / one).clamp(4.0, 10_000.0) as u32;
        self.comm.set_plan(None);
        let calls = self.comm.broadcast_value(Some(calls), 0)?;
        let samples = (0..self.samples).map(|_| batch(&mut self.comm, calls));
        let samples: Vec<f64> = samples.collect::<Result<_>>()?;
        let middle = statistics::median(samples.clone()).context("there are no samples")?;
        self.relative.extend(samples.iter().map(|sample| sample / middle));
        Ok(samples.into_iter().fold(f64::INFINITY, f64::min))
    }
}

//! What the machine could do at best, measured in the same run by the same ranks: the line that results are held against.
//!
//! All ranks move bytes at once, as they do in a collective, but nothing is combined and nobody waits for anything but
//! bytes: over shared memory each copies a buffer of its own to another, over TCP each sends to the next rank and receives
//! from the one before, through sockets of its own. The best of several tries counts.

use super::pages::Pages;
use super::points::{What, bus_factor};
use super::ranks::Joint;
use anyhow::{Context, Result, ensure};
use maypole::Communicator;
use maypole_transports::clock::monotonic_ns;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// A try lasts at least so long.
const LONG_US: f64 = 300.0;
const MOST_CALLS: f64 = 10_000.0;
const TRIES: usize = 9;
/// From one size to the next.
const FACTOR: usize = 4;
/// Bytes of a system call.
const PIECE: usize = 256 << 10;
/// Looks at both sockets before another rank may have the core.
const LOOKS: u32 = 50;
/// Without a byte for so long, the other end is gone.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long it takes at best to move so many bytes to every rank.
#[derive(Clone, Debug)]
pub(super) struct Limit {
    pub(super) transport: Joint,
    /// Bytes that each rank gets, ascending, and microseconds.
    pub(super) points: Vec<(f64, f64)>,
}

impl Limit {
    /// What moves bytes so fast.
    pub(super) fn name(&self) -> &'static str {
        match self.transport {
            Joint::Tcp => "raw TCP, all ranks at once",
            _ => "memory copy, all ranks at once",
        }
    }

    /// Microseconds for a collective of `bytes` in all, each of whose links carries `factor` times as many.
    pub(super) fn us(&self, bytes: usize, factor: f64) -> Option<f64> {
        let moved = bytes as f64 * factor;
        let above = self.points.iter().position(|(size, _)| *size >= moved)?;
        let (x1, y1) = self.points[above];
        let Some((x0, y0)) = above.checked_sub(1).map(|below| self.points[below]) else { return Some(y1) };
        // Times grow as powers of sizes do.
        let part = (moved / x0).ln() / (x1 / x0).ln();
        Some(y0 * (y1 / y0).powf(part))
    }

    /// Measures it; `None` where nothing so simple would say anything. Collective.
    pub(super) fn measure(comm: &mut Communicator, transport: Joint, what: &What) -> Result<Option<Self>> {
        let world = comm.world();
        let bytes = |size: &usize| {
            let factors = what.collectives.iter().map(|collective| bus_factor(*collective, world));
            (*size as f64 * factors.fold(0.0, f64::max)).ceil() as usize
        };
        let most = what.sizes.iter().map(bytes).max().unwrap_or(0);
        if world == 1 || most == 0 || transport == Joint::Mixed {
            return Ok(None);
        }
        let sizes = std::iter::successors(Some(1usize), |size| (*size < most).then(|| size * FACTOR));
        let mut ring = if transport == Joint::Tcp { Some(Ring::new(comm)?) } else { None };
        let mut points = Vec::new();
        for size in sizes {
            let (from, mut into) = (Pages::new(size), Pages::new(size));
            let us = best(comm, || match &mut ring {
                Some(ring) => ring.exchange(from.bytes(), into.bytes_mut()),
                None => {
                    into.bytes_mut().copy_from_slice(std::hint::black_box(from.bytes()));
                    std::hint::black_box(into.bytes());
                    Ok(())
                }
            })?;
            points.push((size as f64, us));
        }
        Ok(Some(Self { transport, points }))
    }
}

/// The best try, in microseconds a call.
fn best(comm: &mut Communicator, mut call: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut attempt = |calls: u64| -> Result<f64> {
        comm.barrier()?;
        let start = monotonic_ns();
        for _ in 0..calls {
            call()?;
        }
        let times = [start, monotonic_ns()];
        let mut all = vec![0; times.len() * comm.world()];
        comm.all_gather(&times, &mut all)?;
        let (ranks, _) = all.as_chunks::<2>();
        let start = ranks.iter().map(|[start, _]| *start).min().unwrap_or(0);
        let end = ranks.iter().map(|[_, end]| *end).max().unwrap_or(0);
        // Never nothing: a clock may not have ticked.
        Ok((end - start).max(1) as f64 / 1e3 / calls as f64)
    };
    let mut calls = 1;
    let mut least = attempt(1)?.min(attempt(1)?);
    // All ranks see the same times and so make the same decisions.
    while least * (calls as f64) < LONG_US && (calls as f64) < MOST_CALLS {
        calls = (LONG_US / least).clamp(2.0 * calls as f64, MOST_CALLS) as u64;
        least = attempt(calls)?;
    }
    for _ in 0..TRIES {
        least = least.min(attempt(calls)?);
    }
    Ok(least)
}

/// Sockets to the next rank and from the one before.
struct Ring {
    next: TcpStream,
    before: TcpStream,
}

impl Ring {
    /// Collective; all ranks are on this host.
    fn new(comm: &mut Communicator) -> Result<Self> {
        let (rank, world) = (comm.rank(), comm.world());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen on loopback")?;
        let mut ports = vec![0; world];
        comm.all_gather(&[listener.local_addr()?.port()], &mut ports)?;
        // What connects waits in the listener's queue until it is accepted.
        let next = TcpStream::connect((Ipv4Addr::LOCALHOST, ports[(rank + 1) % world]))?;
        let (before, _) = listener.accept()?;
        for socket in [&next, &before] {
            socket.set_nodelay(true)?;
            socket.set_nonblocking(true)?;
        }
        Ok(Self { next, before })
    }

    fn exchange(&mut self, from: &[u8], into: &mut [u8]) -> Result<()> {
        let (mut sent, mut received, mut idle, mut since) = (0, 0, 0, None);
        while sent < from.len() || received < into.len() {
            let out = &from[sent..from.len().min(sent + PIECE)];
            let left = moved(if out.is_empty() { Ok(0) } else { self.next.write(out) })?;
            let end = into.len().min(received + PIECE);
            let room = &mut into[received..end];
            let came = moved(if room.is_empty() { Ok(0) } else { self.before.read(room) })?;
            (sent, received) = (sent + left, received + came);
            idle = if left + came == 0 { idle + 1 } else { 0 };
            if idle >= LOOKS {
                std::thread::yield_now();
            }
            // The clock is worth a look only when nothing has moved for long.
            if idle.is_multiple_of(1 << 16) && idle > 0 {
                let waited = since.get_or_insert_with(Instant::now).elapsed();
                ensure!(waited < PATIENCE, "another rank's socket is silent");
            } else if idle == 0 {
                since = None;
            }
        }
        Ok(())
    }
}

/// Bytes that moved: none if they would have had to wait.
fn moved(result: std::io::Result<usize>) -> Result<usize> {
    match result {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(0),
        other => other.context("a socket between ranks failed"),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::points::Given;
    use super::*;
    use maypole::collective::Collective;
    use maypole::{DataType, ReduceOp};

    pub(in super::super) fn example() -> Limit {
        Limit { transport: Joint::Shm, points: vec![(1.0, 1.0), (100.0, 10.0), (10_000.0, 1000.0)] }
    }

    #[test]
    fn between_sizes_times_are_powers() {
        let limit = example();
        assert!((limit.us(10, 1.0).unwrap() - 10f64.sqrt()).abs() < 1e-9);
        assert!((limit.us(2000, 0.5).unwrap() - 100.0).abs() < 1e-9);
        assert_eq!((limit.us(0, 1.0), limit.us(20_000, 1.0)), (Some(1.0), None));
    }

    #[test]
    fn copying_and_sockets_are_measured() {
        let given = Given { kind: DataType::F32, op: ReduceOp::Sum, world: 3 };
        let (collectives, sizes) = (vec![Collective::AllReduce], vec![8, 100_000]);
        let what = What { collectives, algorithms: vec![None], sizes, given };
        for transport in [Joint::Shm, Joint::Tcp] {
            let limits = Communicator::run_local(3, |mut comm| Limit::measure(&mut comm, transport, &what).unwrap());
            for limit in limits.into_iter().map(Option::unwrap) {
                assert!(limit.us(100_000, 4.0 / 3.0).is_some_and(|us| us > 0.1), "{limit:?}");
            }
        }
    }
}

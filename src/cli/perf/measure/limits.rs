//! Measures the machine's limit: the least time to move bytes between all ranks, in the same run
//! and by the same ranks. A report compares results with it.
//!
//! All ranks move bytes concurrently, as in a collective, but nothing is combined. Over shared
//! memory each rank copies memory that its neighbour has just written. Over TCP each rank sends to
//! the next rank and receives from the one before, through plain sockets. The best of several
//! trials counts.

use crate::perf::benchmark::{Benchmark, bus_factor};
use crate::perf::communicators::PerfTransport;
use anyhow::{Context, Result, ensure};
use maypole::Communicator;
use maypole_transports::clock::monotonic_ns;
use maypole_transports::shm::SharedBuffer;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// The least microseconds of a trial over sockets, which has many exchanges.
const LONG_US: f64 = 300.0;
const MOST_CALLS: f64 = 10_000.0;
/// The fewest and the most trials, and the microseconds after which the trials may end.
const FEWEST: u32 = 5;
const BUDGET_US: f64 = 60e3;
const MOST_TRIES: u32 = 100;
/// The smallest size in bytes, and the factor from one size to the next.
const SMALLEST: usize = 8;
const FACTOR: usize = 4;
/// The most bytes of one system call.
const PIECE: usize = 256 << 10;
/// How often both sockets are tried without a byte before the rank yields its core: for a rank with
/// a core of its own, and for a rank that shares its core.
const ATTEMPTS_BEFORE_YIELD: [u32; 2] = [5000, 1];
/// After this time without a byte, the exchange fails.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(60);

/// The least time to move a number of bytes to every rank.
#[derive(Clone, Debug)]
pub(crate) struct MachineLimit {
    pub(crate) transport: PerfTransport,
    /// Bytes that each rank receives, ascending, and microseconds.
    pub(crate) points: Vec<(f64, f64)>,
}

impl MachineLimit {
    /// How the bytes were moved.
    pub(crate) fn name(&self) -> &'static str {
        match self.transport {
            PerfTransport::Tcp => "raw TCP",
            _ => "plain copy",
        }
    }

    /// Microseconds for a collective whose whole has `bytes` bytes and whose links each carry
    /// `factor` times as many. `None` outside the measured sizes.
    pub(crate) fn us(&self, bytes: usize, factor: f64) -> Option<f64> {
        let moved = bytes as f64 * factor;
        if moved <= 0.0 {
            return None;
        }
        let above = self.points.iter().position(|(size, _)| *size >= moved)?;
        let (x1, y1) = self.points[above];
        let Some((x0, y0)) = above.checked_sub(1).map(|below| self.points[below]) else {
            return Some(y1);
        };
        // Interpolates between two sizes on logarithmic axes.
        let part = (moved / x0).ln() / (x1 / x0).ln();
        Some(y0 * (y1 / y0).powf(part))
    }

    /// Measures the limit. Returns `None` for one rank, for collectives without data, for verbs,
    /// for GPUs and for mixed transports, where a simple exchange is no limit. Collective.
    pub(crate) fn measure(
        comm: &mut Communicator,
        transport: PerfTransport,
        what: &Benchmark,
    ) -> Result<Option<Self>> {
        let world = comm.world();
        let bytes = |size: &usize| {
            let factors = what.collectives.iter().map(|collective| bus_factor(*collective, world));
            (*size as f64 * factors.fold(0.0, f64::max)).ceil() as usize
        };
        let most = what.sizes.iter().map(bytes).max().unwrap_or(0);
        let has_none = match transport {
            PerfTransport::Ib | PerfTransport::Mixed | PerfTransport::MixedIb => true,
            #[cfg(feature = "cuda")]
            PerfTransport::Cuda => true,
            _ => false,
        };
        if world == 1 || most == 0 || has_none {
            return Ok(None);
        }
        let sizes =
            std::iter::successors(Some(SMALLEST), |size| (*size < most).then(|| size * FACTOR));
        let sizes: Vec<usize> = sizes.collect();
        let longest = sizes.last().copied().unwrap_or(SMALLEST);
        let mut mover: Box<dyn ByteMover> = match transport {
            PerfTransport::Tcp => Box::new(SocketMover::new(comm)?),
            _ => Box::new(SharedMemoryMover::new(comm, longest)?),
        };
        let from = vec![1; longest];
        let mut into = vec![0; longest];
        let us = |size| best(comm, mover.as_mut(), &from[..size], &mut into[..size]);
        let times: Vec<f64> = sizes.iter().copied().map(us).collect::<Result<_>>()?;
        // Ranks that share a core copy one after the other.
        let turns = if transport == PerfTransport::Tcp { 1 } else { comm.crowding() } as f64;
        Ok(Some(Self {
            transport,
            points: sizes
                .iter()
                .map(|size| *size as f64)
                .zip(times.iter().map(|us| us * turns))
                .collect(),
        }))
    }
}

/// A way to move bytes.
trait ByteMover {
    /// Prepares an exchange, untimed.
    fn prepare(&mut self, from: &[u8]);

    /// Moves `from` to the next rank, and bytes of the rank before to `into`.
    fn exchange(&mut self, from: &[u8], into: &mut [u8]) -> Result<()>;

    /// True if exchanges can follow each other without preparation.
    fn repeats(&self) -> bool;
}

/// Microseconds of an exchange in the best trial.
fn best(
    comm: &mut Communicator,
    mover: &mut dyn ByteMover,
    from: &[u8],
    into: &mut [u8],
) -> Result<f64> {
    let mut attempt = |mover: &mut dyn ByteMover, calls: u64| -> Result<f64> {
        mover.prepare(from);
        comm.barrier()?;
        let start = monotonic_ns();
        for _ in 0..calls {
            mover.exchange(std::hint::black_box(from), into)?;
        }
        let took = monotonic_ns() - start;
        let clock = clock_cost();
        let mut all = vec![0; comm.world()];
        comm.all_gather((&[took.saturating_sub(clock)], &mut all))?;
        // At least 1 ns: the clock may not have ticked.
        Ok(all.into_iter().fold(1, u64::max) as f64 / 1e3 / calls as f64)
    };
    let mut calls = 1;
    let mut least = attempt(mover, 1)?.min(attempt(mover, 1)?);
    // All ranks have the same times, so they make the same decisions.
    while mover.repeats() && least * (calls as f64) < LONG_US && (calls as f64) < MOST_CALLS {
        calls = (LONG_US / least).max(2.0 * calls as f64).min(MOST_CALLS) as u64;
        least = attempt(mover, calls)?;
    }
    let mut tries = 0;
    let mut spent = 0.0;
    while tries < FEWEST || (spent < BUDGET_US && tries < MOST_TRIES) {
        let us = attempt(mover, calls)?;
        least = least.min(us);
        tries += 1;
        spent += us * calls as f64;
    }
    Ok(least)
}

/// Nanoseconds between two readings of the clock in a row.
fn clock_cost() -> u64 {
    let out_of_place = |_| {
        let start = monotonic_ns();
        monotonic_ns() - start
    };
    (0..5).map(out_of_place).min().unwrap_or(0)
}

/// This rank's shared memory, which the next rank reads, and that of the rank before.
struct SharedMemoryMover {
    mine: SharedBuffer,
    before: SharedBuffer,
}

impl SharedMemoryMover {
    /// Collective; all ranks are processes, or threads, of this host and this user.
    fn new(comm: &mut Communicator, len: usize) -> Result<Self> {
        let mine = SharedBuffer::create(len)
            .context("cannot make shared memory for the machine's limit")?;
        let place = [u64::from(std::process::id()), mine.fd().as_raw_fd() as u64];
        let mut places = vec![0; place.len() * comm.world()];
        comm.all_gather((&place, &mut places))?;
        let (places, _) = places.as_chunks::<2>();
        let [pid, fd] = places[(comm.rank() + comm.world() - 1) % comm.world()];
        let path = format!("/proc/{pid}/fd/{fd}");
        let file = File::options()
            .read(true)
            .write(true)
            .open(&path)
            .with_context(|| format!("cannot open {path}"))?;
        let before =
            SharedBuffer::from_fd(file.into(), len).context("cannot map another rank's memory")?;
        // A rank may close its descriptor only after its neighbour has opened it.
        comm.barrier()?;
        Ok(Self { mine, before })
    }
}

impl ByteMover for SharedMemoryMover {
    fn prepare(&mut self, from: &[u8]) {
        self.mine.store(from);
    }

    fn exchange(&mut self, _: &[u8], into: &mut [u8]) -> Result<()> {
        self.before.load(into);
        Ok(())
    }

    fn repeats(&self) -> bool {
        // A second copy would read the bytes from its own cache.
        false
    }
}

/// Sockets to the next rank and from the one before.
struct SocketMover {
    next: TcpStream,
    before: TcpStream,
    attempts_before_yield: u32,
}

impl SocketMover {
    /// Collective; all ranks are on this host.
    fn new(comm: &mut Communicator) -> Result<Self> {
        let rank = comm.rank();
        let world = comm.world();
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen on loopback")?;
        let mut ports = vec![0; world];
        comm.all_gather((&[listener.local_addr()?.port()], &mut ports))?;
        // The connection waits in the next rank's queue until it is accepted there.
        let next = TcpStream::connect((Ipv4Addr::LOCALHOST, ports[(rank + 1) % world]))?;
        let (before, _) = listener.accept()?;
        for socket in [&next, &before] {
            socket.set_nodelay(true)?;
            socket.set_nonblocking(true)?;
        }
        let attempts_before_yield = ATTEMPTS_BEFORE_YIELD[usize::from(comm.crowding() > 1)];
        Ok(Self { next, before, attempts_before_yield })
    }
}

impl ByteMover for SocketMover {
    fn prepare(&mut self, _: &[u8]) {}

    fn repeats(&self) -> bool {
        true
    }

    fn exchange(&mut self, from: &[u8], into: &mut [u8]) -> Result<()> {
        let mut sent = 0;
        let mut received = 0;
        let mut idle = 0;
        let mut since = None;
        while sent < from.len() || received < into.len() {
            let out = &from[sent..from.len().min(sent + PIECE)];
            let left = moved(if out.is_empty() { Ok(0) } else { self.next.write(out) })?;
            let end = into.len().min(received + PIECE);
            let room = &mut into[received..end];
            let came = moved(if room.is_empty() { Ok(0) } else { self.before.read(room) })?;
            sent += left;
            received += came;
            idle = if left + came == 0 { idle + 1 } else { 0 };
            if idle >= self.attempts_before_yield {
                std::thread::yield_now();
            }
            // The clock is read only after many attempts in vain.
            if idle.is_multiple_of(1 << 16) && idle > 0 {
                let waited = since.get_or_insert_with(Instant::now).elapsed();
                ensure!(
                    waited < EXCHANGE_TIMEOUT,
                    "no byte from another rank for {EXCHANGE_TIMEOUT:?} while measuring the \
                     machine's limit"
                );
            } else if idle == 0 {
                since = None;
            }
        }
        Ok(())
    }
}

/// The number of bytes that moved; 0 if the socket was not ready.
fn moved(result: std::io::Result<usize>) -> Result<usize> {
    match result {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Ok(0)
        }
        other => other.context("a socket between ranks failed"),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::perf::benchmark::tests::parameters;
    use maypole::DataType;
    use maypole::schedule::collective::Collective;

    pub(crate) fn example() -> MachineLimit {
        MachineLimit {
            transport: PerfTransport::Shm,
            points: vec![(1.0, 1.0), (100.0, 10.0), (10_000.0, 1000.0)],
        }
    }

    #[test]
    fn times_between_sizes_are_interpolated() {
        let limit = example();
        assert!((limit.us(10, 1.0).unwrap() - 10f64.sqrt()).abs() < 1e-9);
        assert!((limit.us(2000, 0.5).unwrap() - 100.0).abs() < 1e-9);
        assert_eq!(
            (limit.us(1, 0.5), limit.us(0, 1.0), limit.us(20_000, 1.0)),
            (Some(1.0), None, None)
        );
    }

    #[test]
    fn copying_and_sockets_are_measured() {
        let (collectives, algorithms) = (vec![Collective::AllReduce], vec![None]);
        let (sizes, parameters) = (vec![8, 100_000], parameters(DataType::F32, 3));
        let what = Benchmark { collectives, algorithms, sizes, shares: None, parameters };
        for transport in [PerfTransport::Shm, PerfTransport::Tcp] {
            let limits = Communicator::run_local(3, |mut comm| {
                MachineLimit::measure(&mut comm, transport, &what).unwrap()
            });
            for limit in limits.into_iter().map(Option::unwrap) {
                assert!(limit.us(100_000, 4.0 / 3.0).is_some_and(|us| us > 0.1), "{limit:?}");
            }
        }
    }
}

//! Ranks find one another, agree, get connected, and fail together: over loopback, with real
//! threads and processes.

pub(crate) mod death;
mod failing;
mod joining;
mod strangers;
mod together;

use maypole::world::RankSentence;
use maypole::world::bootstrap::{JoinConfig, JoinError, join};
use maypole::world::service::{Cause, FailureKind, GroupId, Service};
use maypole_transports::shm::Segment;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A limit above everything that the tests take on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);
pub(crate) const WORLD: GroupId = GroupId::WORLD;

/// Writes one byte of a segment. Each rank has bytes of its own.
pub(crate) fn write(segment: &Segment, at: usize, byte: u8) {
    // SAFETY: no other rank writes the byte, and others read it after an exchange.
    unsafe { segment.view() }.slice(at, 1).fill_from(&[byte]);
}

/// Reads bytes of a segment that were written before an exchange.
pub(crate) fn read(segment: &Segment, at: usize, len: usize) -> Vec<u8> {
    // SAFETY: no rank writes after the exchange.
    unsafe { segment.view() }.slice(at, len).as_view().to_vec()
}

pub(crate) fn soon() -> Instant {
    Instant::now() + LONG
}

/// A new job. Its ports are used by no other test of this process, and its name is used by no other
/// process. Its key is never all zeros, which stands for no key.
pub(crate) fn job(world: usize) -> JoinConfig {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let base = 20_000 + ((std::process::id().wrapping_mul(101) + number * 8) % 11_000) as u16;
    JoinConfig {
        address: None,
        ports: (base..base + 8).collect(),
        job: format!("{}-{number}", std::process::id()),
        key: Some([number as u8 | 1; 32]),
        equal: vec![("MAYPOLE_COLOUR".to_owned(), "red".to_owned())],
        join_timeout: LONG,
        timeout: LONG,
        ..JoinConfig::new(0, world, "")
    }
}

/// Joins all ranks, each on a thread of its own, and returns the results of `body`, by rank.
pub(crate) fn each<T: Send>(
    config: &JoinConfig,
    change: impl Fn(&mut JoinConfig) + Sync,
    body: impl Fn(Result<Service, JoinError>) -> T + Sync,
) -> Vec<T> {
    std::thread::scope(|threads| {
        let start = |rank| {
            let mut config = JoinConfig { rank, ..config.clone() };
            let change = &change;
            let body = &body;
            threads.spawn(move || {
                change(&mut config);
                body(join(config))
            })
        };
        let ranks: Vec<_> = (0..config.world).map(start).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

pub(crate) fn world<T: Send>(size: usize, body: impl Fn(&Service) -> T + Sync) -> Vec<T> {
    each(&job(size), |_| {}, |service| body(&service.unwrap()))
}

pub(crate) fn everybody(service: &Service) -> Vec<usize> {
    (0..service.world()).collect()
}

pub(crate) fn cause(sequence: u64, kind: FailureKind, rank: usize) -> Cause {
    let text = RankSentence::default().rank(rank).words(format!(" says {kind:?}"));
    Cause { sequence, kind, rank, text, culprit: None, detail: None }
}

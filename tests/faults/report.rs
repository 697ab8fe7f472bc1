//! Deaths at random moments, and how a rank process reports the error that ended its calls.

use crate::spawn::{LIMIT, World, say};
use maypole::{Communicator, Error, ReduceOp, Result};
use std::time::{Duration, Instant};

/// How long a failed call, the calls after it and leaving may take on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// How many worlds a test of random moments makes: `usual`, or `MAYPOLE_TEST_ROUNDS`.
pub(crate) fn rounds(usual: u64) -> u64 {
    let asked = std::env::var("MAYPOLE_TEST_ROUNDS").ok();
    asked.map_or(usual, |rounds| rounds.parse().expect("a number of rounds"))
}

/// A random number below `end`, and different in every run.
pub(crate) fn random(end: u64) -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish() % end
}

/// Kills this process later, if the test has set after how many microseconds.
pub(crate) fn die_if_told() {
    let Ok(delay) = std::env::var("TEST_DEATH") else { return };
    let delay = Duration::from_micros(delay.parse().unwrap());
    std::thread::spawn(move || {
        std::thread::sleep(delay);
        std::process::abort();
    });
}

/// Waits until this rank, which is in no call, receives the failure of the group.
pub(crate) fn await_failure(comm: &Communicator) {
    let start = Instant::now();
    while comm.status().failure.is_none() {
        assert!(start.elapsed() < LIMIT, "this rank never hears of the failure");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The links of a world of six ranks, which differ from round to round.
pub(crate) fn linked(world: World, round: u64) -> World {
    match round % 3 {
        0 => world.set("MAYPOLE_TRANSPORT", "shm"),
        1 => world.set("MAYPOLE_TRANSPORT", "tcp"),
        _ => world.hosts(&[0, 0, 1, 1, 2, 2]),
    }
}

/// One process of a world that changes. Its number never changes.
pub(crate) struct Member {
    pub(crate) comm: Communicator,
    pub(crate) id: u64,
    /// The numbers of the ranks of `comm`.
    pub(crate) ids: Vec<u64>,
}

impl Member {
    /// A rank of the first world.
    pub(crate) fn new(comm: Communicator) -> Self {
        let (id, ids) = (comm.rank() as u64, (0..comm.world() as u64).collect());
        Self { comm, id, ids }
    }

    /// One sum of `len` elements, to which each rank contributes the bit of its number. Panics if it is wrong.
    pub(crate) fn sum(&mut self, len: usize) -> Result<()> {
        let mut data = vec![1u64 << self.id; len];
        self.comm.all_reduce(&mut data, ReduceOp::Sum)?;
        let expected: u64 = self.ids.iter().map(|id| 1u64 << id).sum();
        assert!(data.iter().all(|sum| *sum == expected), "{data:?}, not {expected}");
        Ok(())
    }

    /// Shrinks until all remaining ranks agree on the world.
    pub(crate) fn settle(&mut self) {
        loop {
            let mut ids = vec![0; self.comm.world()];
            if self.comm.all_gather((&[self.id], &mut ids)).is_ok() {
                assert_eq!(ids[self.comm.rank()], self.id);
                self.ids = ids;
                return;
            }
            self.comm = self.comm.shrink().unwrap();
        }
    }

    /// Continues with the ranks that still exist.
    pub(crate) fn go_on(&mut self) {
        self.comm = self.comm.shrink().unwrap();
        self.settle();
    }
}

fn kind(error: &Error) -> &'static str {
    match error {
        Error::Mismatch { .. } => "mismatch",
        Error::TimedOut { .. } => "timed out",
        Error::PeerLost { .. } => "lost",
        Error::Aborted { .. } => "aborted",
        Error::Connect { .. } => "connect",
        _ => "other",
    }
}

/// Reports how a rank failed. Asserts that later calls fail, too, and that it leaves in time.
pub(crate) fn report(mut comm: Communicator, error: &Error, since: Instant) {
    say("took", since.elapsed().as_millis());
    say("kind", kind(error));
    say("error", error);
    assert_eq!((error.rank(), error.operation().is_some()), (Some(comm.rank()), true), "{error}");
    let matched = !matches!(error, Error::Mismatch { .. });
    assert_eq!(
        error.is_retryable(),
        matched,
        "a death or a deadline may pass, a mismatch will not: {error}"
    );
    say("culprit", error.culprit().map_or("none".to_owned(), |rank| rank.to_string()));
    let since = Instant::now();
    for later in [
        comm.barrier(),
        comm.all_reduce(&mut [1.0f32], ReduceOp::Sum),
        comm.split(None, 0).map(drop),
    ] {
        assert!(
            matches!(&later, Err(Error::Failed { first, .. }) if first.text == error.to_string()),
            "{later:?}"
        );
    }
    assert!(since.elapsed() < Duration::from_secs(2), "later calls fail at once");
    comm.close().unwrap();
    assert!(since.elapsed() < SOON, "leaving took {:?}", since.elapsed());
}

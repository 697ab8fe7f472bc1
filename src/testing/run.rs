//! How a run of a simulated world ended.

use crate::network::CorruptedByte;
use std::time::Duration;

/// How one rank of a [`SimulatedWorld`](crate::SimulatedWorld) ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RankOutcome<T> {
    /// It returned this value.
    Returned(T),
    /// It was dropped before it could return.
    Dropped,
}

/// How a run of a [`SimulatedWorld`](crate::SimulatedWorld) ended.
///
/// Two runs with the same seed, the same settings and the same code are equal.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SimulatedRun<T> {
    pub(crate) seed: u64,
    pub(crate) outcomes: Vec<RankOutcome<T>>,
    pub(crate) turns: u64,
    pub(crate) trace: u64,
    pub(crate) elapsed: Duration,
    pub(crate) corrupted: Vec<CorruptedByte>,
}

impl<T> SimulatedRun<T> {
    /// Returns the seed, which reproduces the run.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns how each rank ended, by rank.
    pub fn outcomes(&self) -> &[RankOutcome<T>] {
        &self.outcomes
    }

    /// Returns the values of the ranks that were not dropped, each with its rank.
    pub fn survivors(&self) -> impl Iterator<Item = (usize, &T)> {
        let outcomes = self.outcomes.iter().enumerate();
        outcomes.filter_map(|(rank, outcome)| match outcome {
            RankOutcome::Returned(value) => Some((rank, value)),
            RankOutcome::Dropped => None,
        })
    }

    /// Returns the values of all ranks, by rank.
    ///
    /// # Panics
    /// If a rank was dropped.
    pub fn into_values(self) -> Vec<T> {
        let value = |(rank, outcome)| match outcome {
            RankOutcome::Returned(value) => value,
            RankOutcome::Dropped => panic!("rank {rank} was dropped and has no value"),
        };
        self.outcomes.into_iter().enumerate().map(value).collect()
    }

    /// Returns the ranks that were dropped.
    pub fn dropped(&self) -> impl Iterator<Item = usize> {
        let outcomes = self.outcomes.iter().enumerate();
        let dropped = outcomes.filter(|(_, outcome)| matches!(outcome, RankOutcome::Dropped));
        dropped.map(|(rank, _)| rank)
    }

    /// Returns the bytes that were corrupted. A byte that was to be corrupted is missing here if
    /// the ranks sent fewer bytes.
    pub fn corrupted(&self) -> &[CorruptedByte] {
        &self.corrupted
    }

    /// Returns how many turns the threads took together.
    pub fn turns(&self) -> u64 {
        self.turns
    }

    /// Returns a hash of everything that the seed decided: turns, delays, amounts. Runs with the
    /// same hash went the same way.
    pub fn trace(&self) -> u64 {
        self.trace
    }

    /// Returns the time that the run took by its simulated clock.
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }
}

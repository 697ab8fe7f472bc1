//! The time of a number of bytes, from the costs of rounds.

use super::protocol::WireProtocol;
use super::{CollectiveCost, MOST_WINDOWS, PredictedTime};

impl CollectiveCost {
    /// Predicts the time of `bytes`, with the number of windows and the protocol that are fastest.
    ///
    /// `bytes` is the size of the whole: of the vector, or of all blocks together.
    pub fn predict(&self, bytes: f64) -> PredictedTime {
        let windows = std::iter::successors(Some(1), |windows| Some(windows * 2))
            .take_while(|&w| w <= MOST_WINDOWS);
        fastest(windows.map(|windows| self.predict_in(windows, bytes)))
    }

    /// Predicts the time of `bytes` in so many windows, by the fastest protocol.
    pub fn predict_in(&self, windows: usize, bytes: f64) -> PredictedTime {
        fastest(self.protocols.iter().enumerate().map(|(nth, protocol)| PredictedTime {
            seconds: self.seconds(bytes, windows, nth),
            windows,
            protocol: protocol.name,
        }))
    }

    /// The time of `bytes` in so many windows, by protocol number `protocol`.
    fn seconds(&self, bytes: f64, windows: usize, protocol: usize) -> f64 {
        let WireProtocol { base, share, .. } = self.protocols[protocol];
        let window = bytes / windows as f64 / share;
        let paces = self.rounds.iter().map(|rounds| {
            let first: f64 = rounds.iter().map(|round| round.seconds * window).sum();
            let alone = rounds.iter().map(|round| round.latency[protocol] + round.seconds * window);
            first + (windows - 1) as f64 * alone.fold(self.busiest * window, f64::max)
        });
        base + self.latency[protocol] + paces.fold(f64::INFINITY, f64::min)
    }
}

/// The fastest; the first of several.
fn fastest(all: impl Iterator<Item = PredictedTime>) -> PredictedTime {
    all.min_by(|a, b| a.seconds.total_cmp(&b.seconds)).expect("there is at least one protocol")
}

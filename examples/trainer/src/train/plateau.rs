//! A learning rate that adapts: it falls when the loss no longer does.
//!
//! What it does: follows the mean of the last losses, about ten of them. When that mean has not
//! fallen by a thousandth for `patience` steps, the rate is halved, and the steps are counted anew.
//! The losses are those of the whole batch, equal on every rank, so every rank halves at the same
//! step and nothing is sent.
//!
//! Source: "reduce on plateau" is an old rule of thumb; He et al., "Deep
//! Residual Learning" (2015), section 3.4, divide the rate "when the error plateaus".

use serde::{Deserialize, Serialize};

/// The part of the mean that the newest loss is.
const NEWEST: f64 = 0.1;
/// The part by which the mean has to fall to count as progress.
const PROGRESS: f64 = 1e-3;
/// What the rate is multiplied by.
const REDUCTION: f64 = 0.5;

/// The state of a rate that falls on a plateau.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PlateauRate {
    /// Steps without progress before the rate falls.
    patience: u64,
    /// What the rate of the schedule is multiplied by.
    factor: f64,
    /// The mean of the last losses; none before the first.
    mean: Option<f64>,
    /// The lowest mean that counted as progress.
    best: Option<f64>,
    /// Steps since then, or since the rate fell.
    waited: u64,
}

impl PlateauRate {
    /// The state before the first loss. The rate falls after `patience` steps without progress, one
    /// at least.
    ///
    /// ```
    /// use maypole_trainer::train::plateau::PlateauRate;
    /// let mut rate = PlateauRate::new(2);
    /// [3.0, 3.0, 3.0].map(|loss| rate.observe(loss));
    /// assert_eq!(rate.factor(), 0.5);
    /// ```
    pub fn new(patience: u64) -> Self {
        Self { patience: patience.max(1), factor: 1.0, mean: None, best: None, waited: 0 }
    }

    /// What the rate of the schedule is multiplied by: 1 at first.
    pub fn factor(&self) -> f64 {
        self.factor
    }

    /// Observes the loss of a step. A loss that is not finite is ignored.
    pub fn observe(&mut self, loss: f64) {
        if !loss.is_finite() {
            return;
        }
        let mean = self.mean.map_or(loss, |mean| mean + NEWEST * (loss - mean));
        self.mean = Some(mean);
        if self.best.is_none_or(|best| mean < best * (1.0 - PROGRESS)) {
            self.best = Some(mean);
            self.waited = 0;
            return;
        }
        self.waited += 1;
        if self.waited >= self.patience {
            self.factor *= REDUCTION;
            self.waited = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_stays_while_the_loss_falls_and_halves_when_it_does_not() {
        let mut rate = PlateauRate::new(5);
        for step in 0..100 {
            rate.observe(10.0 * 0.98_f64.powi(step));
        }
        assert_eq!(rate.factor(), 1.0, "the loss falls by two hundredths a step");
        // The mean continues to fall for a while, because it lags.
        for _ in 0..80 {
            rate.observe(10.0 * 0.98_f64.powi(99));
        }
        let after = rate.factor();
        assert!(after < 1.0 && after.log2().fract() == 0.0, "{after}");
        for _ in 0..5 {
            rate.observe(f64::NAN);
        }
        assert_eq!(rate.factor(), after, "a NaN loss does not count");
        for _ in 0..5 {
            rate.observe(10.0 * 0.98_f64.powi(99));
        }
        assert_eq!(rate.factor(), after / 2.0);
    }
}

//! How far the ratio of two lower quartiles can be trusted: the bootstrap.
//!
//! Other programs only ever add time, and on a busy machine they add it to half of the samples or more.
//! So not medians are compared, but lower quartiles: of four samples, one is as fast.
//!
//! Samples are drawn again and again, with replacement, from those that were measured; the ratios of
//! their quartiles are spread as those of repeated measurements would be. Samples that follow one another
//! are alike, because the machine changes slowly. So whole blocks of them are drawn.
//!
//! Source: "The jackknife and the bootstrap for general stationary observations", Künsch 1989.

use crate::perf::check::values::hash;
use crate::statistics::median;
use serde::Serialize;

/// How often samples are drawn.
const DRAWS: usize = 1000;

/// A ratio, and the interval in which it lies with some probability.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct RatioInterval {
    #[serde(rename = "speed")]
    pub(crate) ratio: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl RatioInterval {
    /// The lower quartile of `above` divided by that of `below`. The ratio lies outside of the interval with
    /// the probability `error`. `None` without samples.
    pub(crate) fn of_quartiles(above: &[f64], below: &[f64], error: f64) -> Option<Self> {
        let ratio = lower_quartile(above.to_vec())? / lower_quartile(below.to_vec())?;
        let drawn = (0..DRAWS as u64).filter_map(|draw| {
            let above = lower_quartile(resampled(above, 2 * draw))?;
            Some(above / lower_quartile(resampled(below, 2 * draw + 1))?)
        });
        Some(Self::within(ratio, drawn.collect(), error))
    }

    /// The median of `ratios`, which were measured one after the other.
    pub(crate) fn of_ratios(ratios: &[f64], error: f64) -> Option<Self> {
        let ratio = median(ratios.to_vec())?;
        let draw = |draw: u64| {
            let pick = |nth: usize| ratios[index(draw, nth, ratios.len())];
            median((0..ratios.len()).map(pick).collect())
        };
        Some(Self::within(ratio, (0..DRAWS as u64).filter_map(draw).collect(), error))
    }

    fn within(ratio: f64, mut drawn: Vec<f64>, error: f64) -> Self {
        drawn.sort_by(f64::total_cmp);
        let cut = (drawn.len() as f64 * error / 2.0) as usize;
        let cut = cut.min(drawn.len().saturating_sub(1) / 2);
        let (low, high) = (drawn[cut], drawn[drawn.len() - 1 - cut]);
        Self { ratio, low: low.min(ratio), high: high.max(ratio) }
    }

    /// True if the ratio differs from 1 by `least` or more, and 1 lies outside of the interval.
    pub(crate) fn is_change(&self, least: f64) -> bool {
        (self.ratio - 1.0).abs() >= least && !(self.low..=self.high).contains(&1.0)
    }
}

/// The sample below which a quarter of them lies; `None` without samples.
pub(crate) fn lower_quartile(mut samples: Vec<f64>) -> Option<f64> {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 4).copied()
}

/// As many samples as there are, drawn in blocks.
fn resampled(samples: &[f64], draw: u64) -> Vec<f64> {
    let block = (samples.len() as f64).sqrt().ceil() as usize;
    let mut drawn = Vec::with_capacity(samples.len() + block);
    while drawn.len() < samples.len() {
        let start = index(draw, drawn.len(), samples.len());
        // A block that reaches the end continues at the beginning.
        drawn.extend((start..start + block).map(|nth| samples[nth % samples.len()]));
    }
    drawn.truncate(samples.len());
    drawn
}

/// A random number below `len`, the same for the same `draw` and `nth`.
fn index(draw: u64, nth: usize, len: usize) -> usize {
    (hash(hash(draw) ^ nth as u64) % len as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `count` samples around `middle` that differ by up to a tenth.
    fn samples(middle: f64, count: u64, seed: u64) -> Vec<f64> {
        let noise = |nth| (hash(seed ^ hash(nth)) % 1000) as f64 / 1000.0 - 0.5;
        (0..count).map(|nth| middle * (1.0 + noise(nth) / 5.0)).collect()
    }

    #[test]
    fn equal_samples_are_seldom_a_change() {
        let changed = |seed: &u64| {
            let [above, below] = [2 * seed, 2 * seed + 1].map(|seed| samples(10.0, 100, seed));
            RatioInterval::of_quartiles(&above, &below, 0.05).unwrap().is_change(0.0)
        };
        let found = (0..100).filter(changed).count();
        assert!(found <= 12, "{found} of 100, where 5 are expected");
    }

    #[test]
    fn a_slowdown_of_15_percent_is_a_change() {
        for seed in 0..20 {
            let (above, below) = (samples(10.0, 60, seed), samples(11.5, 60, seed + 100));
            let interval = RatioInterval::of_quartiles(&above, &below, 0.002).unwrap();
            assert!(interval.is_change(0.05) && interval.high < 1.0, "{interval:?}");
            assert!((0.8..0.95).contains(&interval.ratio), "{interval:?}");
        }
    }

    #[test]
    fn wild_samples_have_a_wide_interval() {
        let above = [1.0, 9.0, 2.0, 8.0, 3.0, 7.0];
        let interval = RatioInterval::of_quartiles(&above, &[4.0, 4.1, 4.2], 0.05).unwrap();
        assert!(interval.low < 0.3 && interval.high > 0.7, "{interval:?}");
        assert_eq!(RatioInterval::of_quartiles(&[], &[1.0], 0.05), None);
    }

    #[test]
    fn a_disturbance_of_half_of_the_samples_is_no_change() {
        let still = samples(10.0, 100, 1);
        let disturbed: Vec<f64> = still
            .iter()
            .enumerate()
            .map(|(nth, us)| us * if nth < 55 { 3.0 } else { 1.0 })
            .collect();
        let interval = RatioInterval::of_quartiles(&still, &disturbed, 0.005).unwrap();
        assert!(!interval.is_change(0.05), "{interval:?}");
    }

    #[test]
    fn rounds_that_agree_are_a_change_and_others_are_not() {
        let of = |ratios: &[f64]| RatioInterval::of_ratios(ratios, 0.05).unwrap();
        assert!(of(&[0.85, 0.86, 0.84, 0.88, 0.85, 0.87, 0.86]).is_change(0.05));
        assert!(!of(&[0.85, 1.2, 0.84, 1.1, 0.85, 1.02, 0.86]).is_change(0.05));
    }
}

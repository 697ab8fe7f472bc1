//! A summary of samples.

use serde::Serialize;

/// The distribution of samples in a few figures, in the unit of the samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Summary {
    pub(crate) min: f64,
    #[serde(skip)]
    pub(crate) p10: f64,
    /// The lower quartile.
    #[serde(skip)]
    pub(crate) p25: f64,
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) mean: f64,
    /// The standard deviation; 0 for one sample.
    pub(crate) stdev: f64,
}

impl Summary {
    /// Summarises the samples; `None` without samples. A percentile is one of the samples, not a
    /// value between two.
    pub(crate) fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |hundredths: usize| sorted[sorted.len() * hundredths / 100];
        let min = *sorted.first()?;
        let mean = sorted.iter().sum::<f64>() / sorted.len() as f64;
        let squares = sorted.iter().map(|sample| (sample - mean).powi(2)).sum::<f64>();
        let stdev = (squares / sorted.len().saturating_sub(1).max(1) as f64).sqrt();
        let [p10, p25, p50, p90, p99] = [10, 25, 50, 90, 99].map(at);
        Some(Self { min, p10, p25, p50, p90, p99, mean, stdev })
    }

    /// The distance between the tenth and the ninetieth percentile, divided by the median.
    pub(crate) fn spread(&self) -> f64 {
        if self.p50 > 0.0 { (self.p90 - self.p10) / self.p50 } else { 0.0 }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A median of 100.
    pub(crate) fn example() -> Summary {
        let [min, p10, p25, p50, p90, p99] = [90.0, 95.0, 97.0, 100.0, 120.0, 150.0];
        Summary { min, p10, p25, p50, p90, p99, mean: 101.0, stdev: 12.0 }
    }

    #[test]
    fn percentiles_are_samples() {
        let samples: Vec<f64> = (0..200).rev().map(f64::from).collect();
        let summary = Summary::of(&samples).unwrap();
        let Summary { min, p10, p25, p50, p90, p99, mean, stdev } = summary;
        let expected = [0.0, 20.0, 50.0, 100.0, 180.0, 198.0, 99.5];
        assert_eq!([min, p10, p25, p50, p90, p99, mean], expected);
        assert!((stdev - 57.879).abs() < 1e-3, "{stdev}");
        assert!((summary.spread() - 1.6).abs() < 1e-9);
    }

    #[test]
    fn every_figure_of_one_sample_is_that_sample() {
        let Summary { min, p10, p25, p50, p90, p99, mean, stdev } = Summary::of(&[3.0]).unwrap();
        assert_eq!([min, p10, p25, p50, p90, p99, mean], [3.0; 7]);
        assert_eq!(stdev, 0.0);
        assert_eq!(Summary::of(&[]), None);
    }
}

//! A summary of samples.

/// The distribution of samples in five figures, in the unit of the samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Summary {
    pub(crate) min: f64,
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) mean: f64,
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
        Some(Self { min, p50: at(50), p90: at(90), p99: at(99), mean })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples() {
        let samples: Vec<f64> = (0..200).rev().map(f64::from).collect();
        let expected = Summary { min: 0.0, p50: 100.0, p90: 180.0, p99: 198.0, mean: 99.5 };
        assert_eq!(Summary::of(&samples), Some(expected));
    }

    #[test]
    fn every_figure_of_one_sample_is_that_sample() {
        let expected = Summary { min: 3.0, p50: 3.0, p90: 3.0, p99: 3.0, mean: 3.0 };
        assert_eq!(Summary::of(&[3.0]), Some(expected));
        assert_eq!(Summary::of(&[]), None);
    }
}

//! Whether the first samples of a series differ from the later ones: then the machine was not warm.

use crate::statistics::median;

/// The fewest samples for a decision.
const FEWEST: usize = 12;
/// By which part of the median the first samples have to differ.
const LEAST: f64 = 0.1;

/// True if the median of the first quarter of the samples lies apart from the others: by a tenth or
/// more, and outside of four fifths of them.
pub(crate) fn drifts(samples: &[f64]) -> bool {
    if samples.len() < FEWEST {
        return false;
    }
    let (first, later) = samples.split_at(samples.len() / 4);
    let mut sorted = later.to_vec();
    sorted.sort_by(f64::total_cmp);
    let usual = sorted[sorted.len() / 10]..=sorted[sorted.len() * 9 / 10];
    let medians = median(first.to_vec()).zip(median(sorted));
    medians.is_some_and(|(first, later)| {
        (first / later - 1.0).abs() >= LEAST && !usual.contains(&first)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(first: f64) -> Vec<f64> {
        let at = |nth: usize| if nth < 5 { first } else { 100.0 + (nth % 7) as f64 };
        (0..20).map(at).collect()
    }

    #[test]
    fn slow_or_fast_first_samples_are_a_drift() {
        assert!(drifts(&series(130.0)) && drifts(&series(80.0)));
        assert!(!drifts(&series(104.0)), "as the others");
        assert!(!drifts(&series(109.0)), "too near");
    }

    #[test]
    fn noise_and_few_samples_are_none() {
        let wild: Vec<f64> = (0..40).map(|nth| 100.0 + f64::from(nth * 37 % 40)).collect();
        assert!(!drifts(&wild));
        assert!(!drifts(&[300.0, 300.0, 100.0, 100.0, 100.0]));
    }
}

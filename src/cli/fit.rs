//! Least squares: from times measured at several sizes to the costs of a message and of a byte.

/// `time = start + slope * size`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LinearFit {
    /// The time of size zero.
    pub(crate) start: f64,
    /// The additional time of one unit of size.
    pub(crate) slope: f64,
}

impl LinearFit {
    /// The time of `size`.
    pub(crate) fn at(&self, size: f64) -> f64 {
        self.start + self.slope * size
    }
}

/// The line that fits `points` (size, time) best, relative to their times: an error of a
/// microsecond matters more at 2 us than at 200 us. Neither part is less than zero.
pub(crate) fn fit_line(points: &[(f64, f64)]) -> LinearFit {
    let mut w = 0.0;
    let mut wx = 0.0;
    let mut wy = 0.0;
    let mut wxx = 0.0;
    let mut wxy = 0.0;
    for &(x, y) in points {
        let weight = 1.0 / (y * y).max(1e-12);
        w += weight;
        wx += weight * x;
        wy += weight * y;
        wxx += weight * x * x;
        wxy += weight * x * y;
    }
    let spread = w * wxx - wx * wx;
    let slope = if spread > 0.0 { ((w * wxy - wx * wy) / spread).max(0.0) } else { 0.0 };
    let start = if w > 0.0 { (wy - slope * wx) / w } else { 0.0 };
    if start >= 0.0 {
        return LinearFit { start, slope };
    }
    // The start would be negative, so the line goes through the origin.
    LinearFit { start: 0.0, slope: if wxx > 0.0 { (wxy / wxx).max(0.0) } else { 0.0 } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn planted_costs_are_recovered(start in 0.01..100.0f64, slope in 0.0..10.0f64) {
            let points = [8.0f64, 64.0, 1024.0, 16384.0].map(|x| (x, start + slope * x));
            let found = fit_line(&points);
            prop_assert!((found.start - start).abs() <= 1e-6 * (start + slope), "{found:?}");
            prop_assert!((found.slope - slope).abs() <= 1e-6 * (start + slope), "{found:?}");
        }

        #[test]
        fn neither_part_is_negative_for_any_points(
            points in proptest::collection::vec((0.0..1e9f64, 0.0..1e9f64), 0..6),
        ) {
            let found = fit_line(&points);
            prop_assert!(found.start >= 0.0 && found.slope >= 0.0, "{found:?}");
        }
    }

    #[test]
    fn nothing_costs_less_than_nothing() {
        assert_eq!(fit_line(&[(1.0, 1.0), (2.0, 4.0), (3.0, 9.0)]).start, 0.0);
    }
}

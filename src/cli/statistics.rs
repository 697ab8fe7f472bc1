//! Statistics of samples.

/// The median; of an even number of values, the mean of the two in the middle. `None` without
/// values.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    if values.len() % 2 == 1 {
        return Some(upper);
    }
    Some((values[middle - 1] + upper) / 2.0)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_median_lies_in_the_middle() {
        assert_eq!(super::median(vec![]), None);
        assert_eq!(super::median(vec![3.0]), Some(3.0));
        assert_eq!(super::median(vec![9.0, 1.0, 3.0]), Some(3.0));
        assert_eq!(super::median(vec![4.0, 1.0, 2.0, 9.0]), Some(3.0));
    }
}

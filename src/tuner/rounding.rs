//! The lengths that are priced.

/// The number of bytes by which a call of `bytes` bytes is priced: the next that is one of eight in each
/// doubling. So a program that calls with ever new lengths has few of them priced.
///
/// ```
/// use maypole::tuner::priced_bytes;
/// assert_eq!([7, 16, 17, 1000, 1 << 20].map(priced_bytes), [7, 16, 18, 1024, 1 << 20]);
/// ```
pub fn priced_bytes(bytes: usize) -> usize {
    let step = 1usize << bytes.checked_ilog2().unwrap_or(0).saturating_sub(3);
    bytes.checked_next_multiple_of(step).unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_rounded_by_less_than_an_eighth() {
        let mut all: Vec<usize> = (0..20_000).map(priced_bytes).collect();
        for (bytes, priced) in all.iter().enumerate() {
            assert!(*priced >= bytes && (*priced - bytes) * 8 <= bytes, "{bytes}: {priced}");
        }
        all.dedup();
        assert!(all.len() < 8 * 15, "{} lengths", all.len());
        assert_eq!(
            [0, 1, 15, 16, 17, 100, 1 << 20].map(priced_bytes),
            [0, 1, 15, 16, 18, 104, 1 << 20]
        );
        assert_eq!(priced_bytes(usize::MAX), usize::MAX);
    }
}

//! Numbers for things that have names.

use std::collections::HashMap;
use std::hash::Hash;

/// By place: the number of the label there. Labels are numbered from 0 on in the order in which they
/// first occur.
pub(crate) fn numbers<T: Eq + Hash>(labels: impl IntoIterator<Item = T>) -> Vec<usize> {
    let mut known = HashMap::new();
    let number = |label| {
        let fresh = known.len();
        *known.entry(label).or_insert(fresh)
    };
    labels.into_iter().map(number).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn labels_are_numbered_as_they_first_occur() {
        assert_eq!(super::numbers(["b", "a", "b", "c", "a"]), [0, 1, 0, 2, 1]);
    }
}

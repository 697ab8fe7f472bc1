//! Numbers for things that have names, and things in the order of their numbers.

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

/// The `items` by their numbers, which are below `count`, and in their order among those of one
/// number; and the start offset of each number's items, followed by the end offset.
pub(crate) fn sorted<T: Clone + Default>(
    count: usize,
    items: impl Iterator<Item = (usize, T)> + Clone,
) -> (Vec<u32>, Vec<T>) {
    let mut starts = vec![0; count + 1];
    items.clone().for_each(|(number, _)| starts[number + 1] += 1);
    for number in 0..count {
        starts[number + 1] += starts[number];
    }
    let mut free = starts.clone();
    let mut list = vec![T::default(); starts[count] as usize];
    for (number, item) in items {
        list[free[number] as usize] = item;
        free[number] += 1;
    }
    (starts, list)
}

#[cfg(test)]
mod tests {
    #[test]
    fn labels_are_numbered_as_they_first_occur() {
        assert_eq!(super::numbers(["b", "a", "b", "c", "a"]), [0, 1, 0, 2, 1]);
    }

    #[test]
    fn items_of_one_number_keep_their_order() {
        let items = [(2, 'a'), (0, 'b'), (2, 'c'), (0, 'd')];
        let sorted = super::sorted(4, items.into_iter());
        assert_eq!(sorted, (vec![0, 2, 2, 4, 4], vec!['b', 'd', 'a', 'c']));
    }
}
